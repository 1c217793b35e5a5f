"""Our ledger against Inspect's log of the same trial: two records of one thing, written by different code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from inspect_ai.event import ModelEvent, ToolEvent
from inspect_ai.log import EvalSample, read_eval_log

from traincheck.files import write_whole
from traincheck.pilot.inspecting.models import tokens
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Entry, read
from traincheck.strictjson import dumps

FILE: Final = "reconciled.json"
APART_S: Final = 5.0
"""By how much the two may tell the time of one answer differently."""

_FIELDS: Final = ("input", "cached_input", "output", "reasoning")


def write(layout: Layout, trial: str) -> list[str]:
    """Compare, and write ``reconciled.json`` beside the ledger; gives the differences. Raises LedgerError, OSError."""
    found = list(differences(layout.ledger(trial), layout.trial(trial) / "trial.eval"))
    write_whole({layout.trial(trial) / FILE: dumps({"trial": trial, "agree": not found, "differences": found})})
    return found


def differences(ledger: Path, log: Path) -> Iterator[str]:
    """One sentence on each thing that the two tell differently: answers, tokens, tool calls, failures, times."""
    entries = list(read(ledger))
    if not log.exists():
        yield "there is no log of Inspect"
        return
    samples = read_eval_log(str(log)).samples or []
    if len(samples) != 1:
        yield f"Inspect's log has {len(samples)} samples, a trial is one"
        return
    (sample,) = samples
    yield from _models(entries, sample)
    yield from _tools(entries, sample)
    yield from _times(entries, sample)


def _models(entries: list[Entry], sample: EvalSample) -> Iterator[str]:
    ours = [entry for entry in entries if entry.kind == "model_answered"]
    theirs = [event for event in sample.events if isinstance(event, ModelEvent)]
    good = [event for event in theirs if event.error is None and event.output.choices and not event.pending]
    if len(ours) != len(good):
        yield f"answers of the model: {len(ours)} in the ledger, {len(good)} in Inspect's log"
    sums = {name: sum(entry.data["tokens"][name] for entry in ours) for name in _FIELDS}
    counted = [tokens(event.output.usage) for event in good]
    logged = {name: sum(getattr(one, name) for one in counted) for name in _FIELDS}
    total = [tokens(usage) for usage in sample.model_usage.values()]
    summed = {name: sum(getattr(one, name) for one in total) for name in _FIELDS}
    for name in _FIELDS:
        if sums[name] != logged[name]:
            yield f"{name} tokens: {sums[name]} in the ledger, {logged[name]} in the events of Inspect's log"
        if sums[name] != summed[name]:
            yield f"{name} tokens: {sums[name]} in the ledger, {summed[name]} in the sum of Inspect's log"


def _tools(entries: list[Entry], sample: EvalSample) -> Iterator[str]:
    ours = {entry.data["call"]: entry.data["tool"] for entry in entries if entry.kind == "tool_called"}
    asked: dict[str, str] = {}
    for event in sample.events:
        if isinstance(event, ModelEvent) and event.error is None and event.output.choices:
            asked.update({call.id: call.function for call in event.output.message.tool_calls or ()})
    yield from _names("the model's tool calls", Counter(ours.values()), Counter(asked.values()))
    for name in sorted(set(ours) ^ set(asked)):
        where = "the ledger" if name in ours else "Inspect's log"
        yield f"tool call {name} is only in {where}"
    for event in sample.events:
        if (
            isinstance(event, ToolEvent)
            and event.id not in ours
            and f"mcp__tools__{event.function}" not in ours.values()
        ):
            yield f"Inspect ran tool call {event.id} ({event.function}), which the ledger has not"


def _names(what: str, ours: Counter[str], theirs: Counter[str]) -> Iterator[str]:
    for name in sorted({*ours, *theirs}):
        if ours[name] != theirs[name]:
            yield f"{what}, {name}: {ours[name]} in the ledger, {theirs[name]} in Inspect's log"


def _times(entries: list[Entry], sample: EvalSample) -> Iterator[str]:
    ours = [entry for entry in entries if entry.kind == "model_answered"]
    good = [
        event for event in sample.events
        if isinstance(event, ModelEvent) and event.error is None and event.completed is not None
    ]  # fmt: skip
    ended = sorted(event.completed.timestamp() for event in good if event.completed is not None)
    for entry, at in zip(sorted(entry.wall_ns / 1e9 for entry in ours), ended, strict=False):
        if abs(entry - at) > APART_S:
            yield f"an answer came at {entry:.3f} by the ledger, at {at:.3f} by Inspect's log"
            return
    inside = [entry for entry in entries if entry.kind in ("turn_started", "model_answered", "turn_ended")]
    span = (inside[-1].at_ns - inside[0].at_ns) / 1e9 if inside else 0.0
    if sample.total_time is not None and span > sample.total_time + APART_S:
        yield f"the solver worked for {span:.3f} s by the ledger, {sample.total_time:.3f} s by Inspect's log"
