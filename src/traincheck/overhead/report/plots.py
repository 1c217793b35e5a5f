"""Plots as inline SVG: paired slowdowns, time of each step, bytes of each step. Colours are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from traincheck.overhead.statistics import finite, median

Report = Mapping[str, Any]

_WIDTH: Final = 720
_LABEL: Final = 190
_ROW: Final = 26
_SMALL: Final = (340, 150)
_COLOURS: Final = 8


def slowdowns(report: Report) -> str:
    """A row for each mode: pairs by wall time (full dots) and CPU time (rings), their medians as bars; log scale."""
    rows = [mode for mode in report["modes"] if mode["slowdown"]["wall"] or mode["slowdown"]["cpu"]]
    every = [value for mode in rows for told in mode["slowdown"].values() if told for value in _shown(told["each"])]
    if not every:
        return ""
    low, high = min(0.9, *every), max(1.1, *every)
    place = _log(low / 1.03, high * 1.03, _LABEL, _WIDTH - 20)
    height = _ROW * len(rows) + 34
    parts = [_tick(place(value), height, f"{value:g}x", value == 1) for value in _ratio_ticks(low, high)]
    for number, mode in enumerate(rows):
        y = _ROW * number + 16
        parts.append(_text(0, y + 4, f"{mode['mode']} ({mode['cohort']})"))
        for clock, shift in (("wall", -5), ("cpu", 5)):
            told = mode["slowdown"][clock]
            each = _shown(told["each"]) if told else []
            if not each:
                continue
            x = [place(value) for value in (min(each), max(each), median(each) or 1.0)]
            parts.append(f'<line class="{clock}" x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="{y + shift}" y2="{y + shift}"/>')
            parts.append(f'<rect class="{clock}" x="{x[2] - 1.5:.1f}" y="{y + shift - 5}" width="3" height="10"/>')
            for value in each:
                dot = f'<circle class="{clock}" cx="{place(value):.1f}" cy="{y + shift}" r="3.2">'
                parts.append(f"{dot}<title>{clock} {value:.4f}x</title></circle>")
    return _svg(_WIDTH, height, parts, "paired slowdowns by mode")


def step_times(report: Report) -> list[tuple[str, str]]:
    """(title, SVG) for each cohort and mode: wall ms of every step, plain runs grey, watched runs coloured."""
    found = []
    for cohort, mode in _groups(report):
        mine = [one for one in report["series"] if (one["cohort"], one["of"]) == (cohort, mode)]
        lines = [(f"{one['trial']}", "plain" if one["mode"] == "plain" else "watched", one["wall_ms"]) for one in mine]
        drawn = _lines(lines, "ms", [value for _, _, values in lines for value in _shown(values)])
        if drawn:
            found.append((_title(cohort, mode), drawn))
    return found


def bytes_per_step(report: Report) -> str:
    """A line for each mode: bytes of records of every step of its first audited trial; log scale."""
    lines: list[tuple[str, str, Sequence[Any]]] = []
    for cohort, mode in _groups(report):
        for one in report["series"]:
            if (one["cohort"], one["mode"]) == (cohort, mode) and one["bytes_per_step"]:
                # A step that is not observed has no bytes, and no place on a log scale: one byte stands for them.
                heights = [max(1, value) / 1e3 for value in finite(one["bytes_per_step"])]
                lines.append((_title(cohort, mode), f"c{len(lines) % _COLOURS}", heights))
                break
    values = [value for _, _, series in lines for value in _shown(series)]
    drawn = _lines(lines, "kB", values, size=(_WIDTH, 220), logarithmic=True)
    if not drawn:
        return ""
    key = "".join(f'<li><span class="{css}"></span>{escape(name)}</li>' for name, css, _ in lines)
    return f'{drawn}<ul class="key">{key}</ul>'


def _shown(values: Iterable[Any]) -> list[float]:
    """What has a place in a plot: numbers above zero that a ratio or a time can be."""
    return [value for value in finite(values) if 1e-9 < value < 1e12]


def _title(cohort: str, mode: str) -> str:
    return mode if cohort == mode else f"{mode} ({cohort})"


def _groups(report: Report) -> list[tuple[str, str]]:
    return list(dict.fromkeys((one["cohort"], one["of"]) for one in report["series"]))


def _lines(
    lines: Sequence[tuple[str, str, Sequence[Any]]],
    unit: str,
    values: Sequence[float],
    size: tuple[int, int] = _SMALL,
    logarithmic: bool = False,
) -> str:
    """Values over steps (from 1). What is no finite number leaves a gap."""
    longest = max((len(series) for _, _, series in lines), default=0)
    if not values or not longest:
        return ""
    width, height = size
    left, bottom = 62, height - 20
    top = max(values) * 1.05
    rise = _log(min(values) / 1.2, top * 1.2, bottom, 8) if logarithmic else _linear(0, top, bottom, 8)
    along = _linear(1, max(longest, 2), left, width - 8)
    marks = [min(values), max(values)] if logarithmic else [0, max(values) / 2, max(values)]
    parts = []
    for mark in sorted(set(marks)):
        y = rise(mark)
        parts.append(f'<line class="grid" x1="{left}" x2="{width - 8}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(left - 6, y + 4, f"{_short(mark)} {unit}", "end"))
    for step in sorted({1, longest}):
        parts.append(_text(along(step), height - 5, f"step {step}" if step == 1 else str(step), "middle"))
    for name, css, series in lines:
        for run in _runs(series):
            points = " ".join(f"{along(step):.1f},{rise(value):.1f}" for step, value in run)
            drawn = f'<polyline class="{css}" points="{points}">' if len(run) > 1 else _dot(css, along, rise, run[0])
            parts.append(f"{drawn}<title>{escape(name)}</title></{'polyline' if len(run) > 1 else 'circle'}>")
    return _svg(width, height, parts, f"{unit} of each step")


def _dot(css: str, along: Callable[[float], float], rise: Callable[[float], float], at: tuple[int, float]) -> str:
    return f'<circle class="{css}" cx="{along(at[0]):.1f}" cy="{rise(at[1]):.1f}" r="2.5">'


def _runs(series: Sequence[Any]) -> Iterable[list[tuple[int, float]]]:
    """Stretches of (step, value) between values that are no finite number."""
    run: list[tuple[int, float]] = []
    for step, value in enumerate(series, start=1):
        found = _shown([value])
        if found:
            run.append((step, found[0]))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _linear(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _log(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    straight = _linear(math.log(low), math.log(high), start, end)
    return lambda value: straight(math.log(value))


def _ratio_ticks(low: float, high: float) -> list[float]:
    fine = [0.9, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5] if high < 2 else [0.5, 1.0, 1.5, 2.0, 3.0, 5.0]
    coarse = [10.0**power * digit for power in range(-2, 5) for digit in (1, 2, 5)]
    ticks = fine if high < 6 else coarse
    return [tick for tick in ticks if low / 1.03 <= tick <= high * 1.03 or tick == 1.0]


def _tick(x: float, height: int, text: str, strong: bool) -> str:
    css = "one" if strong else "grid"
    line = f'<line class="{css}" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 18}"/>'
    return line + _text(x, height - 4, text, "middle")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"


def _svg(width: int, height: int, parts: Iterable[str], label: str) -> str:
    head = f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"
