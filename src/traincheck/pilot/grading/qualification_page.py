"""``qualification.md``: what a reader wants to see of a case before any trial."""

from __future__ import annotations

from collections.abc import Iterable

from traincheck.pilot.cases import Case
from traincheck.pilot.grading.qualification import Judged, Qualification


def page(found: Qualification, case: Case) -> str:
    """The page as Markdown."""
    parts = [
        f"# {case.title}",
        f"Case `{found.case}` ({found.kind}). **{'Qualified' if found.valid else 'Not qualified'}.**",
        f"What kind of reproduction this is: {' '.join(found.reproduction.split())}",
        "## Fault and fix",
        "Relative L2 error against the nearest right program, over all tensors of all ranks.",
        _table(
            ("source", "scenario", "verdict", "gradients, step 1", "parameters, last step", "what differs first"),
            _replays(found),
        ),
        "## Checks",
        _table(
            ("holds", "check", "wanted", "found"),
            ((_holds(one.holds), _named(one.name, one.strict, one.relaxes), one.wanted, one.found)
             for one in found.checks),
        ),
    ]  # fmt: skip
    if found.numbers:
        rows = ((one.name, _number(one.value), one.unit, one.about) for one in found.numbers)
        parts += ["## Numbers", _table(("what", "value", "unit", "about"), rows)]
    if found.preflight is not None:
        look = found.preflight
        parts += [
            "## Preflight",
            f"No overhead benchmark: scenario `{look.scenario}` once plain and once under `traincheck collect`. "
            f"Observed state {'the same bits' if look.records_equal else 'differs'} in {look.records} records; "
            f"trace of {look.trace_processes} processes, {look.trace_calls} calls, {look.trace_records} records, "
            f"{len(look.trace_faults)} faults.",
        ]
    parts += [
        "## Cost",
        f"{found.device_seconds:.1f} device-seconds of qualification (allocated devices x worker lifetime).",
        "## What it was",
        _table(("what", "hash or version"), [*found.hashes.items(), *found.versions.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def _replays(found: Qualification) -> Iterable[tuple[str, ...]]:
    for source, replays in found.replays.items():
        for scenario, one in replays.items():
            yield (source, scenario, one.verdict, _at(one.gradient_errors, 0), _at(one.parameter_errors, -1), _why(one))


def _why(one: Judged) -> str:
    return one.reason if one.verdict != "correct" else ""


def _at(values: tuple[float | str | None, ...], place: int) -> str:
    return _number(values[place]) if values else "-"


def _number(value: float | int | str | bool | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _holds(holds: bool) -> str:
    return "yes" if holds else "**no**"


def _named(name: str, strict: bool, relaxes: str | None) -> str:
    if strict:
        return name
    return f"{name} (relaxed control{f' in place of: {relaxes}' if relaxes else ''})"


def _table(headers: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [headers, tuple("---" for _ in headers), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
