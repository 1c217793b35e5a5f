"""The training program of a trial, the same in every mode. A study runs its own copy of this package.

It imports the standard library, torch and the workload's framework, and nothing of TrainCheck: the peer tool has an
environment of its own, and TrainCheck itself comes from outside, as it does for any user.
"""
