"""The earliest valid submission of a trial, in hindsight."""

from __future__ import annotations

from collections.abc import Sequence

from traincheck.pilot.verdicts import FirstValid, Occurrence


def first_valid(occurrences: Sequence[Occurrence]) -> FirstValid:
    """The first correct submission, and what stands before it. ``occurrences`` are in order.

    The initial snapshot (number 0), which nobody submitted, is none. A submission with a definite failure is
    resolved; one that is unknown blocks: a correct one after it may or may not be the first.
    """
    submitted = [one for one in occurrences if one.number > 0]
    correct = next((one.number for one in submitted if one.verdict == "correct"), None)
    unresolved = next((one.number for one in submitted if one.verdict == "unknown"), None)
    if correct is None:
        if unresolved is None:
            return FirstValid(status="none")
        return FirstValid(status="undetermined", earliest=unresolved)
    if unresolved is None or unresolved > correct:
        return FirstValid(status="proven", number=correct, earliest=correct, latest=correct)
    return FirstValid(status="bounded", earliest=unresolved, latest=correct)
