"""Half-open intervals of time, in integers (ns): united, clipped, added up."""

from __future__ import annotations

from collections.abc import Iterable

Interval = tuple[int, int]
"""From, to. One that ends before it begins is empty."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time without overlaps, in order; intervals that touch become one."""
    united: list[Interval] = []
    for begin, end in sorted(intervals):
        if end <= begin:
            continue
        if united and begin <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], end))
        else:
            united.append((begin, end))
    return united


def clipped(intervals: Iterable[Interval], begin: int, end: int) -> list[Interval]:
    """The parts that lie in [begin, end)."""
    parts = ((max(one, begin), min(other, end)) for one, other in intervals)
    return [(one, other) for one, other in parts if other > one]


def length(intervals: Iterable[Interval]) -> int:
    """Time covered by at least one of them."""
    return sum(end - begin for begin, end in union(intervals))
