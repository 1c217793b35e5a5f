"""Annotators that know what the synthetic trials hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.pilot.synthetic_pilot import HYPOTHESIS, ORIGIN, RESULT, SOURCE_DIAGNOSIS
from traincheck.pilot.annotating.packets import Packet, Pilot, packets

QUOTES = {"M1": HYPOTHESIS, "M2": SOURCE_DIAGNOSIS, "M3": RESULT, "M5": ORIGIN}
"""What shows each milestone; M4 is never reached."""


def event_of(packet: Packet, quote: str) -> int:
    """The first event that holds the quote."""
    return next(event.number for event in packet.events if quote in event.text)


def filled(
    pilot: Pilot,
    annotator: str,
    changed: Mapping[str, Mapping[str, Any]] | None = None,
    guesses: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Answers of an annotator. ``changed``: trial -> milestone -> the answer that is given instead."""
    made = packets(pilot, annotator, ())
    found: dict[str, Any] = {}
    for packet in made:
        answers: dict[str, Any] = {"M4": {"reached": False}}
        for name, quote in QUOTES.items():
            held = any(quote in event.text for event in packet.events)
            answers[name] = (
                {"reached": True, "event": event_of(packet, quote), "quote": quote} if held else {"reached": False}
            )
        answers.update((changed or {}).get(packet.trial, {}))
        found[packet.name] = {"milestones": answers, "guess": (guesses or {}).get(packet.trial)}
    return {"schema": 1, "plan": pilot.plan.hash, "annotator": annotator, "packets": found}
