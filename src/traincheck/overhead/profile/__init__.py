"""Where the cost of watching goes: a profile of a study's workload by component.

``components`` (what belongs to which) -> ``ledger`` (exclusive CPU time of one thread) -> ``selftest``; ``inside`` runs
them in the training process, with ``windows`` (which steps are watched), ``witness`` (no own code is left out) and
``calibrate`` (the compiled core). These import only what the training process has anyway. ``command`` starts the
processes, ``counts`` reads their traces, ``result`` sums up. docs/overhead.md says what the figures mean.
"""
