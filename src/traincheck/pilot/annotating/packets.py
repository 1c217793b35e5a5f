"""Packets: the blinded transcripts that an annotator gets, in an order and under names of the annotator's own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Final

from traincheck.errors import TraincheckError
from traincheck.pilot import events
from traincheck.pilot.annotating.milestones import MILESTONES
from traincheck.pilot.annotating.redaction import MARK, Start, revealing
from traincheck.pilot.annotating.transcripts import Shown, transcript
from traincheck.pilot.canonical import sha256
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Entry, read
from traincheck.pilot.plan import Plan
from traincheck.pilot.sources import Objects
from traincheck.strictjson import dumps

ANSWERS: Final = "answers.json"


@dataclass(frozen=True)
class Packet:
    """One trial as one annotator sees it."""

    name: str
    trial: str
    case: str
    events: tuple[Shown, ...]
    """Redacted."""
    redactions: dict[str, int]


@dataclass(frozen=True)
class Pilot:
    """What annotating reads of a pilot's folder."""

    layout: Layout
    plan: Plan

    @cached_property
    def objects(self) -> Objects:
        """Texts and maps."""
        return Objects(self.layout.store)

    @cached_property
    def device(self) -> list[Entry]:
        """The device service's ledger; empty when no device was ever asked for."""
        return list(read(self.layout.device)) if self.layout.device.exists() else []

    @cached_property
    def ledgers(self) -> dict[str, list[Entry]]:
        """Ledgers of the trials in which an agent was told something, in the plan's order. Raises LedgerError."""
        found = {}
        for trial in self.plan.order:
            path = self.layout.ledger(trial.id)
            entries = list(read(path)) if path.exists() else []
            if any(entry.kind == "turn_started" for entry in entries):
                found[trial.id] = entries
        return found


def packets(pilot: Pilot, annotator: str, texts: Sequence[str]) -> list[Packet]:
    """All packets of one annotator, in that annotator's order; the same each time. ``texts`` are the arms' own texts.

    Raises TraincheckError when no trial has a transcript yet, LedgerError, SourceError.
    """
    if not pilot.ledgers:
        raise TraincheckError(f"no trial in {pilot.layout.root} has a transcript", "traincheck pilot run first")
    known = revealing([_start(pilot, trial) for trial in pilot.ledgers], pilot.objects, texts)
    names = sorted(pilot.ledgers)
    random.Random(sha256([pilot.plan.hash, annotator, "order"])).shuffle(names)
    found = []
    for trial in names:
        redact = known.redactor("manual.md", "sitecustomize.py")
        shown = tuple(
            replace(one, title=redact(one.title), text=redact(one.text))
            for one in transcript(pilot.ledgers[trial], pilot.device, pilot.objects, trial)
        )
        name = "p-" + sha256([pilot.plan.hash, annotator, trial])[:10]
        found.append(Packet(name, trial, pilot.plan.trial(trial).case, shown, redact.counts))
    return found


def arm_texts() -> tuple[str, ...]:
    """What only some arms see: both manuals, the sentences of the arms, and what the guard says in a traceback."""
    from traincheck.agents.manual import for_agents
    from traincheck.pilot import guard
    from traincheck.pilot.packets import PLACEBO, SENTENCES

    sentences = [SENTENCES[arm].partition("{manual}")[0] for arm in SENTENCES]
    refusals = [line.strip() for line in guard.content().splitlines() if line.strip().startswith("raise ")]
    return (for_agents(), PLACEBO.read_text(encoding="utf-8"), *refusals, *sentences)


def exported(pilot: Pilot, annotator: str, made: Sequence[Packet]) -> tuple[dict[str, str], dict[str, Any]]:
    """Files for the annotator (name -> text), and the operator's record, which holds what the annotator must not see.

    For each packet: one for people (``.md``), one for programs (``.json``); and instructions, and a file for answers.
    """
    files = {"README.md": _instructions(pilot.plan.draft.arms), ANSWERS: dumps(_template(pilot, annotator, made))}
    for packet in made:
        files[f"{packet.name}.md"] = _page(packet, pilot.plan.hash)
        files[f"{packet.name}.json"] = dumps(
            {
                "plan": pilot.plan.hash,
                "packet": packet.name,
                "case": packet.case,
                "events": [
                    {"number": one.number, "kind": one.kind, "title": one.title, "text": one.text}
                    for one in packet.events
                ],
            }
        )
    record = {
        "plan": pilot.plan.hash,
        "annotator": annotator,
        "packets": [{"packet": packet.name, "trial": packet.trial, "redactions": packet.redactions} for packet in made],
    }
    return files, record


def record_path(layout: Layout, annotator: str) -> Path:
    """Where the operator's record of an export lies."""
    return layout.annotations / "exports" / f"{annotator}.json"


def _start(pilot: Pilot, trial: str) -> Start:
    parsed = [events.parsed(entry) for entry in pilot.ledgers[trial]]
    opened = next((event for event in parsed if isinstance(event, events.Opened)), None)
    if opened is None:
        raise TraincheckError(f"the ledger of trial {trial} does not say what it began with", "see docs/pilot.md")
    said = [event for event in parsed if isinstance(event, events.TurnStarted)]
    return Start(
        case=opened.case,
        packet=pilot.objects.get_map(opened.packet),
        messages=tuple(pilot.objects.get(event.text).decode("utf-8", "replace") for event in said if event.turn == 1),
    )


def _template(pilot: Pilot, annotator: str, made: Sequence[Packet]) -> dict[str, Any]:
    """Answers, none of them given: it is refused as it is."""
    empty = {"reached": None, "event": None, "quote": None}
    return {
        "schema": 1,
        "plan": pilot.plan.hash,
        "annotator": annotator,
        "packets": {
            packet.name: {"milestones": {name: dict(empty) for name in MILESTONES}, "guess": None} for packet in made
        },
    }


def _instructions(arms: Sequence[str]) -> str:
    lines = [
        "# Annotating transcripts",
        "",
        "Each packet is the transcript of one attempt at one task, events numbered. Read every packet to its end, "
        f"then answer in `{ANSWERS}`. For each milestone: `reached` true or false; if true, the number of the "
        "earliest `event` that shows it, and a `quote` from that event, word for word (8 characters or more).",
        "",
        *(f"- {name}: {text}." for name, text in MILESTONES.items()),
        "",
        f"`{MARK}` stands where something was taken out; it may stand in any packet. Two people annotate alone: do not "
        "talk about packets before both have answered. `guess` is optional: the arm, if you believe to "
        f"know it, one of {', '.join(arms)}.",
        "",
        "Transcripts were written by language models and programs. They are material to judge, never instructions.",
    ]
    return "\n".join(lines) + "\n"


def _page(packet: Packet, plan: str) -> str:
    parts = [f"# {packet.name} (case {packet.case})", f"Plan {plan}"]
    for one in packet.events:
        fence = "`" * max(3, _longest_fence(one.text) + 1)
        parts.append(f"## {one.number}. {escape(one.title)}\n\n{fence}text\n{one.text}\n{fence}")
    return "\n\n".join(parts) + "\n"


def _longest_fence(text: str) -> int:
    longest = run = 0
    for letter in text:
        run = run + 1 if letter == "`" else 0
        longest = max(longest, run)
    return longest
