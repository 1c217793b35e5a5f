"""Changing a set of suppressions: all that was asked for, or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from traincheck.errors import TraincheckError
from traincheck.invariants import InvariantSet
from traincheck.manage.select import positions
from traincheck.suppressions import Day, Suppression, Suppressions


def add(
    there: Suppressions,
    invariants: InvariantSet,
    items: Sequence[str],
    reason: str,
    until: Day | None = None,
    *,
    replace: bool = False,
) -> tuple[list[Suppression], list[Suppression]]:
    """All suppressions after suppressing ``items`` (positions or ids) from ``there.today`` on; second: the new ones.

    Raises ``TraincheckError`` when an item is unknown, ``until`` is past, or one is suppressed already and ``replace``
    is not set.
    """
    if not reason.strip():
        raise TraincheckError("expected a reason, found none", 'say why: --reason "…"')
    if until is not None and until < there.today:
        raise TraincheckError(f"expected the last day of a suppression, but {until} is past", "a later day")
    chosen = {invariants[number].key: invariants[number] for number in positions(invariants, items)}
    known = {one.id: one for one in there}
    for key in chosen:
        if key in known and not replace:
            old = known[key]
            ended = " and ended" if old.expired(there.today) else ""
            raise TraincheckError(
                f"“{old.text}” ({key}) is in {there.files[0]} already: since {old.date}{ended}, {old.reason}",
                "--force to replace it",
            )
    new = [
        Suppression(id=key, text=one.text_description, reason=reason.strip(), date=there.today, until=until)
        for key, one in chosen.items()
    ]
    return [*(one for one in there if one.id not in chosen), *new], new


def remove(
    there: Suppressions, invariants: InvariantSet, items: Sequence[str]
) -> tuple[list[Suppression], list[Suppression]]:
    """All suppressions after taking out those of ``items``; second: those taken out.

    Ids may be of invariants that are no longer in the file. Raises ``TraincheckError`` when one is not suppressed.
    """
    known = {one.id: one for one in there}
    out: dict[str, Suppression] = {}
    for item in items:
        keys = [item] if item in known else [invariants[number].key for number in positions(invariants, [item])]
        for key in keys:
            if key not in known:
                raise TraincheckError(
                    f"invariant {item} is not suppressed in {there.files[0]}",
                    "`traincheck invariants suppress FILE --list` lists those that are",
                )
            out[key] = known[key]
    return [one for one in there if one.id not in out], list(out.values())
