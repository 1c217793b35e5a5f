"""Why an invariant exists, and why a candidate is none: examples and counter-examples in the runs they come from."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from traincheck.errors import TraincheckError
from traincheck.infer import Inference, Rejected
from traincheck.invariants import Equivalent, Invariant
from traincheck.manage.select import apis_of, is_about
from traincheck.manage.words import condition_line, support_line
from traincheck.relations.base import Needs, Numbered, Place, merge, unwatched
from traincheck.relations.names import as_recorded, learnable, short
from traincheck.relations.registry import BY_NAME
from traincheck.relations.tables import Tables

MOST_CALLS: Final = 4
MOST_VARIABLES: Final = 4
"""How much of an example is shown."""


@dataclass(frozen=True)
class Example:
    """Where an invariant applied in one reference: how often, and the first step of it event by event."""

    reference: str
    applications: int
    steps: int
    step: int
    rank: int | None
    events: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """An object of ``--explain --json``."""
        return {
            "reference": self.reference,
            "applications": self.applications,
            "steps": self.steps,
            "step": self.step,
            "rank": self.rank,
            "events": list(self.events),
        }


@dataclass(frozen=True)
class Kept:
    """An invariant with its examples."""

    invariant: Invariant
    examples: tuple[Example, ...]

    def to_json(self) -> dict[str, Any]:
        """An object of ``--explain --json``."""
        return {
            "id": self.invariant.key,
            "relation": self.invariant.relation,
            "text": self.invariant.text_description,
            "condition": condition_line(self.invariant),
            "support": support_line(self.invariant),
            "equivalents": [one.model_dump() for one in self.invariant.equivalents or ()],
            "examples": [example.to_json() for example in self.examples],
        }


@dataclass(frozen=True)
class Dropped:
    """A candidate that is no invariant, and what spoke against it. ``location`` is the line of the counter-example."""

    invariant: Invariant
    reason: str
    counterexample: str | None
    reference: str | None
    location: str | None

    def to_json(self) -> dict[str, Any]:
        """An object of ``--explain --json``."""
        return {
            "id": self.invariant.key,
            "relation": self.invariant.relation,
            "text": self.invariant.text_description,
            "reason": self.reason,
            "counterexample": self.counterexample,
            "reference": self.reference,
            "location": self.location,
        }


@dataclass(frozen=True)
class Folded:
    """An invariant that is listed under another, because a run that breaks it breaks that one."""

    equivalent: Equivalent
    under: Invariant

    def to_json(self) -> dict[str, Any]:
        """An object of ``--explain --json``."""
        return {
            "id": self.equivalent.id,
            "text": self.equivalent.text_description,
            "under": {"id": self.under.key, "text": self.under.text_description},
        }


@dataclass(frozen=True)
class Called:
    """What the references know of a function that was asked about."""

    function: str
    calls: int
    training_steps: int
    remark: str | None

    def to_json(self) -> dict[str, Any]:
        """An object of ``--explain --json``."""
        return {
            "function": self.function,
            "calls": self.calls,
            "training_steps": self.training_steps,
            "remark": self.remark,
        }


@dataclass(frozen=True)
class Answer:
    """All there is to say about what was asked for."""

    subject: str
    kept: tuple[Kept, ...]
    folded: tuple[Folded, ...]
    dropped: tuple[Dropped, ...]
    called: tuple[Called, ...]

    def to_json(self) -> dict[str, Any]:
        """The object of ``--explain --json``."""
        return {
            "schema": 1,
            "subject": self.subject,
            "kept": [one.to_json() for one in self.kept],
            "folded": [one.to_json() for one in self.folded],
            "dropped": [one.to_json() for one in self.dropped],
            "functions": [one.to_json() for one in self.called],
        }


def explain(learned: Inference, references: Sequence[Tables], subject: str) -> Answer:
    """Why there are invariants about ``subject``, and why there are no others.

    ``subject`` is an id (its first digits do), or the name of a function, variable or relation, whole or its end from a
    dot on, or a glob of one, or words of the sentence. ``references`` are those that ``learned`` comes from, in order.
    Raises ``TraincheckError`` when neither an invariant, nor a candidate, nor a function of the runs is called so.
    """
    kept = [Kept(one, tuple(_examples(one, references))) for one in learned if is_about(one, subject)]
    folded = [
        Folded(gone, one)
        for one in learned
        for gone in one.equivalents or ()
        if gone.id == subject or subject.lower() in gone.text_description.lower()
    ]
    dropped = [_dropped(one, references) for one in learned.rejected if is_about(one.invariant, subject)]
    called = _called(references, subject)
    relation = any(subject.lower() in (name.lower(), name.removesuffix("Relation").lower()) for name in BY_NAME)
    if not (kept or folded or dropped or called or relation):
        known = {api for one in learned for api in (*apis_of(one), *map(short, apis_of(one)))}
        near = difflib.get_close_matches(subject, sorted(known), n=3, cutoff=0.5)
        raise TraincheckError(
            f"expected the id or name of an invariant, candidate or function of these runs, found {subject!r}",
            f"one of {', '.join(near)}" if near else "`traincheck invariants show FILE` lists what was learned",
        )
    return Answer(subject, tuple(kept), tuple(folded), tuple(dropped), called)


def _examples(invariant: Invariant, references: Sequence[Tables]) -> Iterator[Example]:
    relation = BY_NAME[invariant.relation]
    for reference in references:
        if unwatched(relation, invariant, reference.watch) is not None:
            continue
        judged, _ = relation.evaluate([Numbered(0, invariant)], reference.window(), None)
        counts = merge([judged]).counts.filter(pl.col("applied") > 0)
        if counts.is_empty():
            continue
        # The first training step that has it; what only set-up shows is shown there.
        trained = counts.filter(pl.col("step") > 0)
        first = (counts if trained.is_empty() else trained).sort("step", "process").row(0, named=True)
        yield Example(
            reference=reference.name,
            applications=int(counts["applied"].sum()),
            steps=counts["step"].n_unique(),
            step=int(first["step"] or 0),
            rank=first["rank"],
            events=tuple(_events(relation.needs(invariant), reference, first)),
        )


def _events(needs: Needs, reference: Tables, at: dict[str, Any]) -> Iterator[str]:
    """The calls and values of one step of a process that the invariant speaks of."""
    here = (pl.col("process") == at["process"]) & (pl.col("step") == at["step"])
    around = {need.function for need in needs.states if need.function is not None}
    wanted = sorted(needs.functions | around)
    calls = reference.calls.filter(here, pl.col("function").is_in(wanted)).sort("begin_seq")
    for call in calls.head(MOST_CALLS).iter_rows(named=True):
        where = f" at {call['location']}" if call["location"] else ""
        yield f"{short(call['function'])}(){where}{_captured(needs, reference, call)}"
        if call["function"] in around or not around:
            yield from _changed(needs, reference, call)
    if calls.height > MOST_CALLS:
        yield f"and {calls.height - MOST_CALLS:,} more calls in this step"
    if not wanted:
        attributes = sorted({need.attribute for need in needs.states})
        looked = reference.states.filter(here, pl.col("attribute").is_in(attributes))
        for row in looked.head(MOST_VARIABLES).iter_rows(named=True):
            yield f"{row['variable']}.{row['attribute']} = {_brief(row['value'])} ({row['moment']} {row['reason']})"


def _captured(needs: Needs, reference: Tables, call: dict[str, Any]) -> str:
    paths = sorted(path for function, path in needs.captures if function == call["function"])
    if not paths:
        return ""
    mine = reference.captures.filter(
        pl.col("process") == call["process"],
        pl.col("call") == call["call"],
        pl.col("name").is_in(paths) | pl.col("path").is_in(paths),
        pl.col("value").is_not_null(),
    )
    told = [f"{row['name'] or row['path']}={row['value']}" for row in mine.iter_rows(named=True)]
    return f" with {', '.join(told[:MOST_VARIABLES])}" if told else ""


def _changed(needs: Needs, reference: Tables, call: dict[str, Any]) -> Iterator[str]:
    """Values before and after the call."""
    wanted = {(need.variable_type, as_recorded(need.attribute)) for need in needs.states}
    rows = reference.states.filter(
        pl.col("process") == call["process"],
        pl.col("call") == call["call"],
        pl.col("attribute").is_in(sorted({attribute for _, attribute in wanted})),
        pl.col("variable_type").is_in(sorted({kind for kind, _ in wanted})),
    )
    ends: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows.iter_rows(named=True):
        ends.setdefault((row["owner"], row["variable"], row["attribute"]), {})[row["moment"]] = _brief(row["value"])
    for (owner, variable, attribute), values in list(ends.items())[:MOST_VARIABLES]:
        earlier = reference.states.filter(
            pl.col("process") == call["process"],
            pl.col("seq") < call["begin_seq"],
            pl.col("attribute") == attribute,
            pl.col("variable") == variable,
            (pl.col("owner") == owner) if owner is not None else pl.col("owner").is_null(),
        )["value"]
        before = values.get("before") or (_brief(earlier[-1]) if len(earlier) else None)
        known = [text for text in (before, values.get("after")) if text is not None]
        yield f"  {variable}.{attribute}: {' --> '.join(known)}"
    if len(ends) > MOST_VARIABLES:
        yield f"  and {len(ends) - MOST_VARIABLES:,} more variables"


def _brief(value: str | None) -> str:
    """A digest by its first digits."""
    text = "unknown" if value is None else value
    return text if len(text) < 20 else f"{text[:8]}…"


def _dropped(rejected: Rejected, references: Sequence[Tables]) -> Dropped:
    place = rejected.place
    known = place is not None and place.reference < len(references)
    return Dropped(
        rejected.invariant,
        rejected.reason,
        rejected.counterexample,
        references[place.reference].name if known and place is not None else None,
        _location(references[place.reference], place) if known and place is not None else None,
    )


def _location(reference: Tables, place: Place) -> str | None:
    rows = reference.calls.filter(pl.col("process") == place.process, pl.col("call") == place.call)["location"]
    return rows[0] if len(rows) else None


def _called(references: Sequence[Tables], subject: str) -> tuple[Called, ...]:
    """Functions of that name: how often they were called says why nothing could be learned of some."""
    frames = [
        reference.calls.select(pl.lit(number).alias("reference"), pl.col("function").cast(pl.String), "step")
        for number, reference in enumerate(references)
    ]
    counts = (
        pl.concat(frames)
        .group_by("function")
        .agg(pl.len().alias("calls"), pl.struct("reference", "step").filter(pl.col("step") > 0).n_unique().alias("in"))
        .sort("function")
    )
    found = []
    for function, calls, steps in counts.iter_rows():
        if function == subject or function.endswith(f".{subject}") or short(function) == subject:
            remark = None
            if not learnable(function):
                remark = "nothing is learned about private functions, questions (is_…, get_…) and what is not training"
            elif steps < 2:
                remark = "called in fewer than two training steps: too seldom to learn from"
            found.append(Called(function, calls, steps, remark))
    return tuple(found)
