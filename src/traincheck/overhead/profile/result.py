"""The sums of a profile: each component's part of a window, what the profiler itself added, and whether it all adds up.

The application is measured by itself, in the windows with every probe off; so is each other part, by its timer or by
counts and calibration. What remains of the watched window is *unattributed*: it holds what no part was measured to
be (noise, colder caches, calls that pass through a probe unrecorded). Too much of it, and the profile says so.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any, Final

from traincheck.overhead.profile import counts, windows
from traincheck.overhead.profile.components import (
    ABOUT,
    APPLICATION,
    CAPTURES,
    PROBE,
    TIMED,
    WATCHING,
    WRITING,
)

TOLERANCE: Final = 0.05
"""Part of the watched window that may stay unattributed."""

PROFILER: Final = "profiler"
UNATTRIBUTED: Final = "unattributed"

Row = dict[str, Any]


def blocks(told: Row, kind: str, sampled: bool) -> list[list[Row]]:
    """The windows of one kind in what a run told, by block. The costliest of each is left out, so that one disturbed
    step does not speak for all; where some steps are not observed, none is.
    """
    found = [list(rows) for of, rows in itertools.groupby(told["windows"], lambda row: row["kind"]) if of == kind]
    if sampled:
        return found
    return [sorted(rows, key=lambda row: int(row["thread_ns"]))[: max(1, len(rows) - 1)] for rows in found]


def kept(told: Row, kind: str, sampled: bool) -> list[Row]:
    """The windows of one kind that count."""
    return [row for rows in blocks(told, kind, sampled) for row in rows]


def side(told: Row, kind: str, sampled: bool) -> Row:
    """Figures of one kind of window of one run, in ms a step."""
    rows = kept(told, kind, sampled)
    thread = [row["thread_ns"] / 1e6 for row in rows]
    return {
        "windows": sum(row["kind"] == kind for row in told["windows"]),
        "kept": len(rows),
        "thread_ms": statistics.fmean(thread),
        "least_ms": min(thread),
        "most_ms": max(thread),
        "other_threads_ms": statistics.fmean((row["process_ns"] - row["thread_ns"]) / 1e6 for row in rows),
        "wall_ms": statistics.fmean(row["wall_ns"] / 1e6 for row in rows),
    }


def run_figures(told: Row, sampled: bool) -> Row:
    """Both sides of one run, and what watching costs: the mean over the rounds of a watched and an unwatched block, in
    ms a step, with its standard error.
    """
    on, off = blocks(told, windows.ON, sampled), blocks(told, windows.OFF, sampled)
    rounds = [_mean_ms(one) - _mean_ms(other) for one, other in zip(on, off, strict=True)]
    return {
        "on": side(told, windows.ON, sampled),
        "off": side(told, windows.OFF, sampled),
        "watching_ms": statistics.fmean(rounds),
        "error_ms": statistics.stdev(rounds) / len(rounds) ** 0.5,
        "rounds": len(rounds),
    }


def _mean_ms(rows: Sequence[Row]) -> float:
    return statistics.fmean(row["thread_ns"] / 1e6 for row in rows)


def summarize(
    told: Row, plainly: Row, recorded: counts.Recorded, sampled: bool, tolerance: float = TOLERANCE
) -> dict[str, Any]:
    """Everything about one mode. ``told``, ``plainly``: what the profiled and the unprofiled run wrote; ``recorded``:
    the trace of the former. ``sampled``: some steps are not observed, so all windows count.
    """
    for row in told["windows"]:
        row["counts"] = recorded.window(*row["records"])
    profiled, unprofiled = run_figures(told, sampled), run_figures(plainly, sampled)
    rows = kept(told, windows.ON, sampled)
    window, application = profiled["on"]["thread_ms"], profiled["off"]["thread_ms"]
    parts = _parts(told, rows, application)
    rest = next(part["ms"] for part in parts if part["component"] == UNATTRIBUTED)
    for part in parts:
        part["share"] = part["ms"] / window
    faults = _faults(told, window, rest, tolerance)
    return {
        "reconciles": not faults,
        "faults": faults,
        "window_ms": window,
        "parts": parts,
        "tolerance_ms": tolerance * window,
        "profiled": profiled,
        "unprofiled": unprofiled,
        "expansion": {
            "window": window / unprofiled["on"]["thread_ms"],
            "off_window": application / unprofiled["off"]["thread_ms"],
            "watching_ms": profiled["watching_ms"] - unprofiled["watching_ms"],
            "error_ms": (profiled["error_ms"] ** 2 + unprofiled["error_ms"] ** 2) ** 0.5,
            "spans": statistics.fmean(sum(row["spans"]) for row in rows),
            "span_ns": told["span"]["inner_ns"] + told["span"]["outer_ns"],
        },
        "counts": counts.mean([row["counts"] for row in rows]),
        "calibration": told["calibration"],
        "installation": told["installation"],
        "background_s": told["background_s"],
        "self_test": told["self_test"],
        "witness": told["witness"],
    }


def _parts(told: Row, rows: Sequence[Row], application_ms: float) -> list[dict[str, Any]]:
    """Exclusive parts of the mean window in ms, with their range over the windows; they add up to it."""
    each = [_split(told, row) for row in rows]
    for split in each:
        split[UNATTRIBUTED] -= application_ms
        split[APPLICATION] = application_ms
    found = []
    for name in (*WATCHING, PROFILER, UNATTRIBUTED, APPLICATION):
        values = [split[name] for split in each]
        part = {
            "component": name,
            "ms": statistics.fmean(values),
            "least_ms": min(values),
            "most_ms": max(values),
            "how": _HOW.get(name, "timed"),
            "about": ABOUT.get(name, _ALSO.get(name, "")),
        }
        found.append(part)
    return found


_HOW: Final = {
    PROBE: "counted and calibrated",
    CAPTURES: "counted and calibrated",
    APPLICATION: "measured with probes off",
    PROFILER: "counted and calibrated",
    UNATTRIBUTED: "the remainder",
}
_ALSO: Final = {
    PROFILER: "the timers of this profile",
    UNATTRIBUTED: "noise, colder caches, calls that pass a probe unrecorded",
}


def _split(told: Row, row: Row) -> dict[str, float]:
    """One watched window in ms. ``UNATTRIBUTED`` still holds the application."""
    calibration, count = told["calibration"], row["counts"]
    inner, outer = told["span"]["inner_ns"], told["span"]["outer_ns"]
    own = {}
    timers = 0.0
    for number, name in enumerate(TIMED):
        added = row["spans"][number] * inner + row["left"][number] * outer
        added = min(added, row["spent_ns"][number])
        timers += added
        own[name] = row["spent_ns"][number] - added
    hooks = row["left"][TIMED.index(APPLICATION)]
    core = {
        PROBE: sum(count["calls"][kind] * figure["ns"] for kind, figure in calibration["call"].items())
        + hooks * calibration["hook"]["ns"],
        CAPTURES: sum(n * _capture_ns(calibration, kind) for kind, n in count["captures"].items()),
    }
    opening = count["segments"] * calibration["segment"]["ns"]
    rest = own.pop(APPLICATION) - sum(core.values()) - opening
    own[WRITING] += opening
    return {name: ns / 1e6 for name, ns in {**own, **core, PROFILER: timers, UNATTRIBUTED: rest}.items()}


def _capture_ns(calibration: Row, kind: str) -> float:
    known: dict[str, Any] = calibration["capture"]
    if kind in known:
        return float(known[kind]["ns"])
    return float(statistics.median(figure["ns"] for name, figure in known.items() if name != "location"))


def _faults(told: Row, window: float, rest: float, tolerance: float) -> list[str]:
    """Why the profile does not reconcile."""
    faults = [f"TrainCheck's own {text}: {n} calls" for text, n in sorted(told["witness"]["faults"].items())]
    if not told["witness"]["calls"]:
        faults.append("the witness saw no code of TrainCheck's: it proves nothing")
    for number, row in enumerate(told["windows"], start=1):
        gap = sum(row["spent_ns"]) - row["thread_ns"]
        if gap:
            faults.append(f"step {number}: the parts are {gap} ns more than the window")
        if row["kind"] == windows.OFF and (row["counts"]["calls"] != {"python": 0, "builtin": 0} or any(row["spans"])):
            faults.append(f"step {number} was to be unwatched, and was watched")
    if abs(rest) > tolerance * window:
        faults.append(
            f"{rest:.3f} ms of the window of {window:.3f} ms are unattributed, {abs(rest) / window:.1%}: "
            f"more than {tolerance:.0%} (a quieter machine or more steps help where it is noise)"
        )
    return faults
