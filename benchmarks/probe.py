"""Nanoseconds a probe adds to one call: bare, with 1 and with 4 captures, on a Python function, a builtin and a method.

Plain and probed loops alternate in one process, a round of each at a time; a figure is the median over rounds of their
difference per call, with the quartiles beside it. Times are the thread's processor time, the kernel's part for pages of
the segments included, so that other work on the machine counts little. The segments are files in a temporary folder.

    python benchmarks/probe.py [--calls 300000] [--rounds 11] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count, repeat
from typing import Any

from traincheck.collect import _probe

BUDGET = {"bare": 60.0, "4 captures": 150.0}
SEGMENT_BYTES = 8 << 20  # the default of a plan
CAPTURES: dict[str, list[tuple[int, int, tuple[tuple[Any, ...], ...]]]] = {
    "bare": [],
    "1 capture": [(1, 0, (("arg", 0, None),))],
    "4 captures": [
        (1, 0, (("arg", 0, None),)),
        (2, 0, (("arg", 1, None),)),
        (3, 0, (("arg", 2, None),)),
        (4, 1, (("ret",),)),
    ],
}


def python_function(a: Any, b: Any, c: Any) -> Any:
    return a


class Holder:
    def method(self, b: Any, c: Any) -> Any:
        return b


@dataclass
class Figure:
    target: str
    probe: str
    plain_ns: float
    added_ns: float
    low_ns: float
    high_ns: float
    budget_ns: float | None


def loop_function(f: Callable[..., Any], calls: int) -> int:
    start = time.thread_time_ns()
    for _ in repeat(None, calls):
        f(3, 0.5, "sum")
    return time.thread_time_ns() - start


def loop_getattr(f: Callable[..., Any], calls: int) -> int:
    start = time.thread_time_ns()
    for _ in repeat(None, calls):
        f(3, "real", None)
    return time.thread_time_ns() - start


def loop_method(f: Callable[..., Any], calls: int) -> int:
    holder = Holder()
    start = time.thread_time_ns()
    for _ in repeat(None, calls):
        holder.method(0.5, "sum")
    return time.thread_time_ns() - start


def pair(target: str, captures: list[Any]) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """(a plain loop, the same loop with the probe on) for a target."""
    if target == "function":
        probe = _probe.Probe(python_function, 1, captures=captures)
        return lambda n: loop_function(python_function, n), lambda n: loop_function(probe, n)
    if target == "builtin":
        probe = _probe.Probe(getattr, 1, captures=captures)
        return lambda n: loop_getattr(getattr, n), lambda n: loop_getattr(probe, n)
    original = Holder.__dict__["method"]
    probe = _probe.Probe(original, 1, captures=captures)

    def probed(n: int) -> int:
        Holder.method = probe  # type: ignore[method-assign,assignment]
        try:
            return loop_method(probe, n)
        finally:
            Holder.method = original  # type: ignore[method-assign]

    return lambda n: loop_method(original, n), probed


def measure(target: str, name: str, calls: int, rounds: int, clock: int) -> Figure:
    plain, probed = pair(target, CAPTURES[name])
    numbers = count(1)
    plains, added = [], []
    for round_ in range(rounds + 2):  # the first two warm up
        folder = tempfile.mkdtemp()
        before = plain(calls)
        _probe.open(folder, SEGMENT_BYTES, lambda kind, obj: next(numbers), clock)
        try:
            with_probe = probed(calls)
            if _probe.dropped():
                raise SystemExit(f"records were dropped ({_probe.last_error()}): make room in {tempfile.gettempdir()}")
        finally:
            _probe.close()
            shutil.rmtree(folder)
        after = plain(calls)
        if round_ >= 2:
            base = (before + after) / 2
            plains.append(base / calls)
            added.append((with_probe - base) / calls)
    low, middle, high = statistics.quantiles(added, n=4)
    return Figure(target, name, statistics.median(plains), middle, low, high, BUDGET.get(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--clock", type=int, default=-1, help="-1 choose, 0 monotonic, 1 time-stamp counter")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = [
        measure(target, name, options.calls, options.rounds, options.clock)
        for target in ("function", "builtin", "method")
        for name in CAPTURES
    ]
    if options.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "calls": options.calls}
        json.dump({**machine, "rounds": options.rounds, "figures": [asdict(f) for f in figures]}, sys.stdout, indent=2)
        print()
        return
    print(f"{'target':10} {'probe':11} {'plain ns':>9} {'added ns':>9} {'quartiles':>15} {'budget':>7}")
    for f in figures:
        budget = "" if f.budget_ns is None else f"{f.budget_ns:.0f}"
        quartiles = f"{f.low_ns:.1f} .. {f.high_ns:.1f}"
        print(f"{f.target:10} {f.probe:11} {f.plain_ns:9.1f} {f.added_ns:9.1f} {quartiles:>15} {budget:>7}")


if __name__ == "__main__":
    main()
