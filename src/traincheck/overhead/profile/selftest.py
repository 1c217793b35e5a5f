"""The profiler's test of itself, run in every profiled process before anything is profiled.

A window in which each part burns a known amount of CPU time, while another thread burns as much as it can, in the same
components: what the books say must be what was burnt, and nothing of the other thread's.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from traincheck.overhead.profile.components import APPLICATION, DIGESTS, OBSERVATION, TIMED
from traincheck.overhead.profile.ledger import Ledger

BURNT_MS: Final = {APPLICATION: 30, OBSERVATION: 20, DIGESTS: 40}
"""CPU time that the window burns, by component."""

TOLERANCE: Final = 0.1
"""How far the books may be off, as a part of what was burnt, plus a millisecond."""


def burn(ms: float) -> None:
    """Use ``ms`` of this thread's CPU time."""
    until = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < until:
        pass


def self_test(ledger: Ledger) -> dict[str, Any]:
    """What was burnt and what the books say, in ms. Raises RuntimeError when they are apart."""
    deep = ledger.timed(lambda: burn(BURNT_MS[DIGESTS]), DIGESTS)

    def look() -> None:
        burn(BURNT_MS[OBSERVATION] / 2)
        deep()
        burn(BURNT_MS[OBSERVATION] / 2)

    shallow = ledger.timed(look, OBSERVATION)
    stop, started = threading.Event(), threading.Event()
    burnt_elsewhere: list[int] = []

    def background() -> None:
        busy = ledger.timed(lambda: burn(1), DIGESTS)
        started.set()
        while not stop.is_set():
            busy()
        burnt_elsewhere.append(time.thread_time_ns())

    thread = threading.Thread(target=background, name="self-test", daemon=True)
    thread.start()
    started.wait()
    all_before = time.process_time_ns()
    began = ledger.begin()
    burn(BURNT_MS[APPLICATION])
    shallow()
    ended, books = ledger.end()
    all_after = time.process_time_ns()
    # Where the two threads took turns it has had little time of its own so far: it must have had some.
    limit = time.monotonic() + 5
    while time.process_time_ns() - all_before < (ended - began) + 20_000_000 and time.monotonic() < limit:
        time.sleep(0.005)
    stop.set()
    thread.join()

    window = (ended - began) / 1e6
    found = {name: books.spent[number] / 1e6 for number, name in enumerate(TIMED)}
    faults = [
        f"{name}: {ms} ms were burnt, the books say {found[name]:.1f}"
        for name, ms in BURNT_MS.items()
        if abs(found[name] - ms) > ms * TOLERANCE + 1
    ]
    faults += [f"{name}: nothing was burnt, the books say {ms:.1f}" for name, ms in found.items()
               if name not in BURNT_MS and ms > 0.5]  # fmt: skip
    total = sum(BURNT_MS.values())
    if abs(window - total) > total * TOLERANCE + 1:
        faults.append(f"the window: {total} ms were burnt in its thread, its clock says {window:.1f}")
    if sum(books.spent) != ended - began:
        faults.append(f"the parts are {sum(books.spent) / 1e6:.3f} ms, the window {window:.3f}")
    elsewhere = burnt_elsewhere[0] / 1e6
    if elsewhere < 10:
        faults.append(f"the other thread was to be busy, it had {elsewhere:.1f} ms")
    if not ledger.others().get(DIGESTS):
        faults.append("the other thread's own books are empty")
    if faults:
        raise RuntimeError(f"the profiler's test of itself failed: {'; '.join(faults)}")
    return {
        "burnt_ms": dict(BURNT_MS),
        "booked_ms": {name: found[name] for name in BURNT_MS},
        "window_ms": window,
        "process_ms": (all_after - all_before) / 1e6,
        "other_thread_ms": elsewhere,
    }
