"""Which steps are watched: blocks of watched and unwatched steps of one run, in alternating order.

Steps are taken from the training program's own clock. Between two blocks all probes go on or come off, outside of any
window; the first step of each block is not counted, because caches have to settle.
"""

from __future__ import annotations

import time
from typing import Any, Final

from traincheck.overhead.profile.ledger import Ledger

WARM: Final = "warm-up"
OFF: Final = "off"
ON: Final = "on"
WITNESSED: Final = "witnessed"


def plan(steps: int, first: int, every: int = 1) -> list[str]:
    """Kind of each step of a run in which at least ``steps`` are counted on either side.

    ``first``: first step that may be counted. ``every``: sampling interval; a block counts that many steps, so that one
    of them is observed. Sides begin in turn (off on, on off, …), an even number of times. The last ``every`` steps are
    witnessed.
    """
    length = max(3, every)
    rounds = -(-steps // length)
    rounds += rounds % 2
    kinds = [WARM] * (first - 1)
    for number in range(rounds):
        for side in (OFF, ON) if number % 2 == 0 else (ON, OFF):
            kinds += [f"{side} {WARM}"] + [side] * length
    return kinds + [WITNESSED] * every


def watched(kind: str) -> bool:
    """Whether probes are on in such a step."""
    return not kind.startswith(OFF)


class Window:
    """One step: its kind, and what it cost by every clock. With a ledger, also by component."""

    def __init__(self, kind: str, records: int, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._kind, self._records = kind, records
        self._wall, self._process = time.perf_counter_ns(), time.process_time_ns()
        self._thread = ledger.begin() if ledger is not None else time.thread_time_ns()

    def end(self, records: int) -> dict[str, Any]:
        """The step is over: what it cost, in ns; records written in it, as positions in the stream."""
        row: dict[str, Any] = {"kind": self._kind, "records": [self._records, records]}
        if self._ledger is not None:
            thread, books = self._ledger.end()
            row |= {"spent_ns": [*books.spent], "spans": [*books.spans], "left": [*books.left]}
        else:
            thread = time.thread_time_ns()
        row |= {
            "thread_ns": thread - self._thread,
            "process_ns": time.process_time_ns() - self._process,
            "wall_ns": time.perf_counter_ns() - self._wall,
        }
        return row
