"""Plots as inline SVG: the share of trials without a valid repair over time, a curve for each arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

_WIDTH: Final = 720
_HEIGHT: Final = 220
_LEFT: Final = 56
_BOTTOM: Final = _HEIGHT - 28
COLOURS: Final = 5


def survival(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(case, SVG) of each case with a counted trial. Colours are the page's classes ``c0`` to ``c4``, by arm."""
    arms: Sequence[str] = report["arms"]
    found = []
    for case in report["failures"]:
        held = [row for row in report["survival"] if row["case"] == case]
        longest = max((row["longest_s"] for row in held), default=0.0)
        if longest > 0:
            found.append((case, _curves(case, held, arms, longest)))
    return found


def _curves(case: str, held: Sequence[Mapping[str, Any]], arms: Sequence[str], longest: float) -> str:
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = _up(share)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{share:.0%}", "end"))
    for part in (0.0, 0.5, 1.0):
        anchor = "end" if part == 1.0 else "middle"  # the last one must not be cut off
        parts.append(_text(_along(part * longest, longest), _HEIGHT - 8, f"{part * longest:,.0f} s", anchor))
    for row in held:
        css = f"c{arms.index(row['arm']) % COLOURS}"
        points, last = [], 1.0
        for time, share in row["curve"]:
            x = _along(time, longest)
            points += [f"{x:.1f},{_up(last):.1f}", f"{x:.1f},{_up(share):.1f}"]
            last = share
        points.append(f"{_along(row['longest_s'], longest):.1f},{_up(last):.1f}")
        parts.append(
            f'<polyline class="{css}" points="{" ".join(points)}"><title>{escape(row["arm"])}: {row["repaired"]} of '
            f"{row['trials']} repaired</title></polyline>"
        )
    label = escape(f"share of trials of case {case} without a valid repair")
    head = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img" aria-label="{label}">'
    return head + "".join(parts) + "</svg>"


def _up(share: float) -> float:
    return _BOTTOM - share * (_BOTTOM - 10)


def _along(time: float, longest: float) -> float:
    return _LEFT + time / longest * (_WIDTH - 8 - _LEFT)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
