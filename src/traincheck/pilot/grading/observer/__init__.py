"""What runs inside a replayed training and writes down, at every optimizer step, what the training was.

``boot`` loads this folder as a package of its own, so that the observed Python needs no TrainCheck: standard library
and torch only. It only reads: no draw from a generator, no autograd node, no version bump, no communication.
"""
