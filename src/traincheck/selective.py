"""The selective plan: what a run must observe so that given invariants are judged as on a full trace.

It stands between relations, which say what they need, and collect, which knows no relation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from traincheck.collect.paths import compile_path
from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError

if TYPE_CHECKING:
    from traincheck.invariants import Invariant
    from traincheck.relations.base import Needs

Lookup = Callable[[Mapping[str, Sequence[str]]], Mapping[str, str]]
"""From functions and the capture paths wanted of them to those that cannot be observed, with the reason."""


@dataclass(frozen=True)
class Unobservable:
    """An invariant that cannot be observed as asked."""

    invariant: Invariant
    reason: str


class UnobservableError(TraincheckError):
    """Some invariants cannot be observed as asked.

    Remedy: take those lines out of the file, or give ``--allow-partial``: they are then reported as not observable.
    """

    def __init__(self, found: Sequence[Unobservable]) -> None:
        shown = [f"{one.invariant.text_description or one.invariant.key}: {one.reason}" for one in found[:5]]
        more = f"; and {len(found) - 5} more" if len(found) > 5 else ""
        count = "an invariant" if len(found) == 1 else f"{len(found)} invariants"
        super().__init__(
            f"cannot observe what {count} needs: {'; '.join(shown)}{more}"
            if len(found) == 1
            else f"cannot observe what {count} need: {'; '.join(shown)}{more}",
            "--allow-partial to collect for the others, or take these lines out of the file",
        )
        self.found = tuple(found)


def needs_of(invariant: Invariant) -> Needs | str:
    """What must be observed, or why this version cannot judge it at all."""
    from traincheck.relations.registry import relation_of, unjudged

    why, relation = unjudged(invariant), relation_of(invariant.relation)
    return why or "" if relation is None or why is not None else relation.needs(invariant)


def selective(
    plan: Plan, invariants: Iterable[Invariant], *, allow_partial: bool = False, lookup: Lookup | None = None
) -> Plan:
    """``plan`` narrowed to exactly what the invariants need; sampling, stages and workers stay.

    ``lookup`` says which functions the program's interpreter does not have. Raises ``UnobservableError`` when something
    cannot be observed, unless ``allow_partial``: the plan then names those invariants.
    """
    from traincheck.relations.state_needs import ALWAYS, parts_of, together

    wanted: list[tuple[Invariant, Needs]] = []
    refused: list[Unobservable] = []
    for invariant in invariants:
        needs = needs_of(invariant)
        why = needs if isinstance(needs, str) else _unreadable(needs)
        if isinstance(needs, str) or why is not None:
            refused.append(Unobservable(invariant, why or ""))
        else:
            wanted.append((invariant, needs))
    if lookup is not None and wanted:
        missing = lookup(_functions(needs for _, needs in wanted))
        for invariant, needs in wanted:
            names = sorted(name for name in _functions([needs]) if name in missing)
            if names:
                refused.append(Unobservable(invariant, missing[names[0]]))
        gone = {id(one.invariant) for one in refused}
        wanted = [(invariant, needs) for invariant, needs in wanted if id(invariant) not in gone]
    if refused and not allow_partial:
        raise UnobservableError(refused)
    functions = _functions(needs for _, needs in wanted)
    parts = together([ALWAYS, *(parts_of(needs) for _, needs in wanted)])
    packages = {*plan.packages, *(name.partition(".")[0] for name in functions)}
    return replace(
        plan,
        scope="selective",
        packages=tuple(dict.fromkeys([*plan.packages, *sorted(packages)])),
        functions=functions,
        state=True,
        observe={reason: sorted(some) for reason, some in parts.items()},
        unobservable=[{"id": one.invariant.key, "reason": one.reason} for one in refused],
    )


def _unreadable(needs: Needs) -> str | None:
    """Why something that is needed is nothing that can be captured or observed, or None."""
    from traincheck.relations.state_needs import never_observed

    for function, path in sorted(needs.captures):
        if path != "*":
            try:
                compile_path(path, None)
            except ValueError as error:
                return f"of {function}: {error}"
    return never_observed(needs)


def _functions(all_needs: Iterable[Needs]) -> dict[str, list[str]]:
    """Functions that must be recorded, with what is captured of each (``*``: all arguments and the result).

    A result may be a tuple or dict, and of those only capturing everything looks inside.
    """
    found: dict[str, set[str]] = {}
    for needs in all_needs:
        around = {need.function for need in needs.states if need.function is not None}
        for name in (*needs.functions, *around):
            found.setdefault(name, set())
        for name, path in needs.captures:
            found.setdefault(name, set()).add(path)
    return {name: ["*"] if paths & {"*", "ret"} else sorted(paths) for name, paths in sorted(found.items())}
