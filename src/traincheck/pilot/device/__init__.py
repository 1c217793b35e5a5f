"""The device service: a process of its own that gives devices to jobs, one queue for all, and keeps account.

    python -m traincheck.pilot.device --socket S --ledger L --store STORE --jobs DIR --devices N

``client`` talks to it, ``launching.service`` runs it for the time of a ``with``. ``keeper`` is the small process that
stands between the service and each job, so that nothing of a job outlives it.
"""
