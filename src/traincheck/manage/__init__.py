"""Managing sets of invariants: look at them, choose from them, put them together, compare them.

Works on the invariant files alone: no trace is read, nothing is judged. ``sets`` reads files with their sources,
``select`` chooses, ``words`` tells an invariant in full, ``merge`` and ``diff`` do what they say.
"""
