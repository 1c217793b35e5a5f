"""Figures of a pilot counted again from the raw lines of its ledgers, by code that shares nothing with the accounting.

Standard library only. Time is counted on a grid of all moments at which anything changed, not with intervals.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

Line = dict[str, Any]

HARNESS = {"opened", "audited", "attested", "activation", "closed"}


def lines(path: Path) -> list[Line]:
    """The entries of a ledger whose chain holds, checked with nothing but SHA-256."""
    found, previous = [], "0" * 64
    for number, text in enumerate(path.read_text().splitlines()):
        line = json.loads(text)
        said = line.pop("hash")
        body = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(body.encode()).hexdigest() == said, f"{path}: {number}"
        assert (line["number"], line["previous"]) == (number, previous)
        previous = said
        found.append({**line, "hash": said})
    return found


def requests(device: list[Line]) -> dict[str, Line]:
    """Request -> its moments by kind, its owner, purpose and number of devices."""
    found: dict[str, Line] = {}
    for line in device:
        name = line["data"].get("request")
        if line["kind"] == "asked":
            found[name] = {key: line["data"][key] for key in ("owner", "purpose", "devices")}
        if name in found and line["kind"] != "replayed":
            found[name][line["kind"]] = line["at_ns"]
    return found


def device_seconds(held: Iterable[Line], until: int | None = None) -> float:
    """Devices x worker lifetime."""
    total = 0
    for one in held:
        if "worker_started" in one:
            end = one["worker_ended"] if until is None else min(one["worker_ended"], until)
            total += one["devices"] * max(0, end - one["worker_started"])
    return float(Fraction(total, 10**9))


def covered(spans: list[tuple[int, int]], begin: int, end: int) -> int:
    """Nanoseconds of [begin, end] at which any of ``spans`` is open."""
    grid = sorted({begin, end, *(min(max(moment, begin), end) for span in spans for moment in span)})
    return sum(
        later - earlier
        for earlier, later in pairwise(grid)
        if any(one <= earlier and later <= other for one, other in spans)
    )


class Recount:
    """One trial."""

    def __init__(self, ledger: list[Line], device: list[Line]) -> None:
        self.ledger = ledger
        self.name = ledger[0]["data"]["trial"]
        self.held = [one for one in requests(device).values() if one["owner"] == self.name]
        self.zero = next(
            line["at_ns"] for line in ledger if line["kind"] == "model_requested" and line["data"]["carries_task"]
        )
        self.end = max(line["at_ns"] for line in ledger if line["kind"] not in HARNESS)

    def of(self, kind: str) -> list[Line]:
        return [line for line in self.ledger if line["kind"] == kind]

    def waits(self) -> list[tuple[int, int]]:
        return [(one["asked"], one.get("granted", one.get("refused", self.end))) for one in self.held]

    def suspensions(self, until: int) -> dict[str, list[tuple[int, int]]]:
        ends = {line["data"]["interval"]: line["at_ns"] for line in self.of("resumed")}
        found: dict[str, list[tuple[int, int]]] = {}
        for line in self.of("suspended"):
            span = (line["at_ns"], ends.get(line["data"]["interval"], until))
            found.setdefault(line["data"]["reason"], []).append(span)
        return found

    def point(self, moment: int, number: int | None) -> Line:
        """What had been used up; ``number`` is of the entry at that moment, None at the end."""
        still = [span for spans in self.suspensions(moment).values() for span in spans]
        raw = moment - self.zero
        answers = [line for line in self.of("model_answered") if number is None or line["number"] < number]
        after = [line for line in self.of("model_answered") if number is not None and line["number"] > number][:1]
        fields = ("input", "cached_input", "output", "reasoning")
        sums = {name: sum(line["data"]["tokens"][name] for line in answers) for name in fields}
        sums["total"] = sums["input"] + sums["cached_input"] + sums["output"]
        upper = sums["total"] + sum(
            line["data"]["tokens"][name] for line in after for name in ("input", "cached_input", "output")
        )
        turns = [line["data"]["turn"] for line in self.of("turn_started") if number is None or line["number"] < number]
        return {
            "clocks": {
                "raw_s": raw / 1e9,
                "queue_adjusted_s": (raw - covered(self.waits(), self.zero, moment)) / 1e9,
                "adjusted_s": (raw - covered([*self.waits(), *still], self.zero, moment)) / 1e9,
            },
            "tokens": sums,
            "tokens_next": upper,
            "device_seconds": device_seconds(self.held, None if number is None else moment),
            "turn": turns[-1],
        }

    def transport(self) -> Line:
        kinds = [(line["kind"], line["data"]) for line in self.ledger]
        lasting = {
            reason: covered(spans, self.zero, self.end) / 1e9 for reason, spans in self.suspensions(self.end).items()
        }
        everything = [span for spans in self.suspensions(self.end).values() for span in spans]
        marks = "".join(
            "a" if kind == "model_answered" else "f"
            for kind, data in kinds
            if kind in ("model_answered", "solver_failed") or (kind == "model_failed" and data["transport"])
        )
        return {
            "model_requests": len({data["request"] for kind, data in kinds if kind == "model_requested"}),
            "solver_failures": sum(kind == "solver_failed" for kind, _ in kinds),
            "transport_failures": sum(kind == "model_failed" and data["transport"] for kind, data in kinds),
            "retries": sum(kind == "model_requested" and data["attempt"] > 1 for kind, data in kinds),
            "recoveries": marks.count("fa"),
            "queue_wait_s": covered(self.waits(), self.zero, self.end) / 1e9,
            "suspended_s": covered(everything, self.zero, self.end) / 1e9,
            "suspensions": dict(sorted(lasting.items())),
        }

    def sources(self) -> list[str]:
        return [line["data"]["source"] for line in self.of("submitted")]


def judged(source: str, graded: Line, scenarios: list[str]) -> str:
    """A source over all required scenarios, from the verdicts of its replays."""
    verdicts = [graded["sources"][source][name]["verdict"] for name in scenarios]
    if any(verdict in ("incorrect", "expected_failure") for verdict in verdicts):
        return "incorrect"
    return "correct" if all(verdict == "correct" for verdict in verdicts) else "unknown"
