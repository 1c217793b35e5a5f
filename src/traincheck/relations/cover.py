"""FunctionCoverRelation: before each call of B, and after the one before it, there is a call of A."""

from __future__ import annotations

from traincheck.relations.sequence_words import Ordered


class FunctionCover(Ordered):
    """``[A, B, …]``: before each call of B, since the last one on the same thread, a whole call of A.

    The first call of B is judged too, against all since the trace began. See docs/relations.md.
    """

    name = "FunctionCoverRelation"
    group = "func_cover"
    first = True
