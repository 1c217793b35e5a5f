"""FunctionLeadRelation: between two calls of A there is a call of B."""

from __future__ import annotations

from traincheck.relations.sequence_words import Ordered


class FunctionLead(Ordered):
    """``[A, B, …]``: after each call of A and before the next one on the same thread, a whole call of B.

    The last call of A is not judged: what follows it was not observed to its end. See docs/relations.md.
    """

    name = "FunctionLeadRelation"
    group = "func_lead"
    first = False
