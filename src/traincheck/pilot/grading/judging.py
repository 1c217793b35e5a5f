"""From what a replay left to a verdict. It rests on what was written; an exit code alone decides nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from traincheck.pilot.grading.comparison import Comparison
from traincheck.pilot.grading.records import Raised, Records
from traincheck.pilot.grading.running import Done
from traincheck.pilot.verdicts import Verdict

_MACHINE: Final = re.compile(
    r"No space left|Cannot allocate memory|can't allocate memory|Address already in use|EADDRINUSE|"
    r"Too many open files|Resource temporarily unavailable|Disk quota exceeded",
    re.IGNORECASE,
)
"""Exceptions that the machine is to blame for."""

_PEER: Final = re.compile(
    r"Connection (closed|reset|refused|was)|Broken pipe|timed? ?out|recvValue failed|sendBytes failed|"
    r"Socket closed|DistNetworkError|by peer",
    re.IGNORECASE,
)
"""Exceptions of a process that lost another one: they say nothing of the program by themselves."""


@dataclass(frozen=True)
class Judgement:
    """What one replay comes to."""

    verdict: Verdict
    """``correct``, ``incorrect`` or ``unknown``."""
    reason: str
    oracle: str | None = None
    infrastructure: bool = False
    """Unknown for a reason that trying again may mend."""


def judge(done: Done, records: Records, comparisons: Sequence[Comparison], ranks: int) -> Judgement:
    """The verdict on one replay; ``comparisons`` are those with every oracle of the scenario.

    Incorrect needs something definite: an error of the program's own, or state that differs from every oracle's.
    Correct needs every record, and all state of one oracle. Everything else is unknown.
    """
    definite, vague = _errors(records, done, ranks)
    if definite:
        return Judgement("incorrect", definite)
    # State that differs is definite also where the replay did not come to its end.
    if comparisons and all(one.differences for one in comparisons):
        nearest = min(comparisons, key=_nearness)
        others = f" (and from every other of {len(comparisons)} right programs)" if len(comparisons) > 1 else ""
        more = len(nearest.differences) - 1
        told = f"; {more} more" if more else ""
        return Judgement("incorrect", f"against {nearest.oracle}: {nearest.first}{told}{others}")
    if records.faults:
        return Judgement("unknown", f"fault of the observer: {_last_line(records.faults[0])}", infrastructure=True)
    match = next((one for one in comparisons if one.matches), None)
    if match is not None and done.reason == "exit":
        odd = f"; exit code {done.exit_code} after everything was written" if done.exit_code else ""
        return Judgement("correct", f"all state is that of {match.oracle}{odd}", oracle=match.oracle)
    return _unknown(done, records, comparisons, vague)


def _unknown(done: Done, records: Records, comparisons: Sequence[Comparison], vague: str) -> Judgement:
    missing = next((one.missing for one in comparisons if one.missing), [])
    what = "; ".join(missing[:4]) + ("; …" if len(missing) > 4 else "")
    if done.reason != "exit":
        why = {"timeout": "it did not end in time", "cancelled": "it was cancelled", "lost": "it was lost"}[done.reason]
        return Judgement("unknown", f"{why}: {what}" if what else why, infrastructure=True)
    if vague:
        return Judgement("unknown", f"{vague}: {what}" if what else vague, infrastructure=True)
    in_order = all(process.end is not None for process in records.ranks.values()) and done.exit_code == 0
    if in_order:
        return Judgement("unknown", f"the program ended in order, but not everything is recorded: {what}")
    return Judgement(
        "unknown", f"exit code {done.exit_code} without an error of the program: {what or 'no verdict'}",
        infrastructure=True,
    )  # fmt: skip


def _errors(records: Records, done: Done, ranks: int) -> tuple[str, str]:
    """The first definite error of the program itself, and the first that may have come from outside; or empty."""
    definite: list[Raised] = []
    vague: list[Raised] = []
    codes: dict[str, int | None] = {}
    launched = False
    for process in records.processes:
        raised = process.raised
        if raised is None:
            continue
        if raised.by_launcher:
            launched = True
            codes.update(raised.workers)
        else:
            (vague if _from_outside(raised) else definite).append(raised)
    first = min(definite, key=lambda raised: raised.at_ns, default=None)
    if first is not None:
        return _told(first), ""
    if not launched and ranks == 1 and done.reason == "exit" and done.exit_code > 0:
        codes["0"] = done.exit_code
    for rank, code in sorted(codes.items()):
        ended = next((one for one in records.processes if one.end is not None and _rank(one.end.rank) == rank), None)
        if ended is not None and ended.raised is None and code is not None and code > 0:
            return f"rank {rank} ended itself with exit code {code}", ""
    return "", _told(vague[0]) if vague else ""


def _from_outside(raised: Raised) -> bool:
    if raised.type in ("builtins.MemoryError", "builtins.KeyboardInterrupt"):
        return True
    return bool(_MACHINE.search(raised.text) or _PEER.search(f"{raised.type} {raised.text}"))


def _rank(name: str | None) -> str:
    return name if name is not None else "0"


def _told(raised: Raised) -> str:
    name = raised.type.removeprefix("builtins.")
    text = " ".join(raised.text.split())[:300]
    return f"rank {_rank(raised.rank)} raised {name} after {raised.steps} steps: {text}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "no words"


def _nearness(comparison: Comparison) -> tuple[int, int]:
    """The oracle that a source agrees with longest is the one to tell it from."""
    first = comparison.first
    step = first.step if first is not None and first.step else 1 << 30
    return (-step, len(comparison.differences))
