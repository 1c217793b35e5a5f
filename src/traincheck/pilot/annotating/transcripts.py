"""A trial as people read it: what was said, called, answered, run and submitted, in order and numbered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from traincheck.pilot import events
from traincheck.pilot.ledger import Entry
from traincheck.pilot.sources import Objects


@dataclass(frozen=True)
class Shown:
    """One event of a transcript."""

    number: int
    """From 1, within the transcript: numbers of a ledger's entries would show what was left out."""
    kind: str
    title: str
    text: str
    at_ns: int
    """Never shown to an annotator."""
    entry: int | None
    """Number in the trial's ledger; None for what is in the device service's."""


def transcript(entries: Iterable[Entry], device: Iterable[Entry], objects: Objects, trial: str) -> list[Shown]:
    """All events of one trial; device requests come from the device service's ledger (same clock).

    Raises LedgerError, SourceError.
    """
    rows: list[tuple[int, int, int | None, str, str, str]] = []  # time, tie, entry, kind, title, text
    for entry in entries:
        told = _told(events.parsed(entry), objects)
        if told is not None:
            rows.append((entry.at_ns, 0, entry.number, *told))
    for entry in device:
        event = events.parsed(entry, events.DEVICE)
        if isinstance(event, events.Asked) and event.owner == trial and event.purpose == "solver":
            title = f"request for {event.devices} device{'s' if event.devices != 1 else ''}"
            rows.append((entry.at_ns, 1, None, "device_request", title, " ".join(event.command)))
    rows.sort(key=lambda row: row[:2])  # stable: the ledger's order stays
    return [
        Shown(number=number, kind=kind, title=title, text=text, at_ns=at_ns, entry=entry_number)
        for number, (at_ns, _, entry_number, kind, title, text) in enumerate(rows, start=1)
    ]


def said_by_agent(shown: Sequence[Shown]) -> list[Shown]:
    """What the agent itself wrote: answers, calls, final messages, notes of submissions."""
    return [one for one in shown if one.kind in ("answer", "call", "final", "submission")]


def first_device_request_ns(device: Iterable[Entry], trial: str) -> int | None:
    """When the trial first asked for devices; None: it never did."""
    for entry in device:
        event = events.parsed(entry, events.DEVICE)
        if isinstance(event, events.Asked) and event.owner == trial and event.purpose == "solver":
            return entry.at_ns
    return None


def _told(event: events.Event, objects: Objects) -> tuple[str, str, str] | None:
    """Kind, title and text; None for what is not part of the conversation."""
    if isinstance(event, events.TurnStarted):
        return "operator", f"operator, turn {event.turn}", _text(objects, event.text)
    if isinstance(event, events.ModelAnswered) and event.text is not None:
        return "answer", "agent", _text(objects, event.text)
    if isinstance(event, events.ToolCalled):
        return "call", f"agent calls {event.tool}", _arguments(event.arguments)
    if isinstance(event, events.ToolAnswered):
        return "result", "result" + (" (failed)" if event.failed else ""), _text(objects, event.text)
    if isinstance(event, events.TurnEnded) and event.text is not None:
        return "final", f"agent, final message of turn {event.turn}", _text(objects, event.text)
    if isinstance(event, events.Submitted) and event.number > 0:
        return "submission", f"submission {event.number}", event.note
    return None


def _text(objects: Objects, name: str) -> str:
    return objects.get(name).decode("utf-8", "replace")


def _arguments(arguments: dict[str, Any]) -> str:
    lines = []
    for name, value in arguments.items():
        told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
        lines.append(f"{name}: {told}")
    return "\n".join(lines)
