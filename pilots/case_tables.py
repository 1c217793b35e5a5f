"""Tables of docs/measurements/pilot-cases.md, from what was measured.

python pilots/case_tables.py --qualified out/qualified/* --said out/says/*
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def qualified(found: dict[str, Any]) -> Iterator[str]:
    """One case's qualification."""
    held = sum(check["holds"] for check in found["checks"])
    yield f"\n### {found['case']}\n"
    yield f"{held} of {len(found['checks'])} checks hold; {found['device_seconds']:.0f} device-seconds.\n"
    yield "| source | scenario | verdict | relative L2 error of the gradients, by step |"
    yield "|---|---|---|---|"
    for source, scenarios in found["replays"].items():
        for scenario, judged in scenarios.items():
            errors = ", ".join(_short(error) for error in judged["gradient_errors"])
            yield f"| {source} | {scenario} | {judged['verdict']} | {errors} |"
    yield "\n| number | value | |\n|---|---|---|"
    for number in found["numbers"]:
        yield f"| {number['name']} | {_short(number['value'])} | {number['unit']} |"
    looked = found["preflight"]
    same = "the same bits" if looked["records_equal"] else looked["difference"]
    yield (
        f"\nPreflight, scenario {looked['scenario']}, with TrainCheck and without: {looked['records']} records of all "
        f"ranks and steps, {same}. Trace: {looked['trace_processes']} processes, {looked['trace_calls']} calls, "
        f"{looked['trace_records']} records, {'; '.join(looked['trace_faults']) or 'nothing lost'}."
    )
    for check in found["checks"]:
        if not check["holds"]:
            yield f"\n**Failed:** {check['name']}: wanted {check['wanted']}, found {check['found']}"


def said(found: dict[str, Any]) -> Iterator[str]:
    """What TrainCheck says of one case."""
    yield f"\n### {found['case']}\n"
    yield "| learned from | rules | checked | collect (s) | MB | check (s) | finding, since step |"
    yield "|---|---|---|---|---|---|---|"
    for source in ("controls", "a right program"):
        if source not in found:
            continue
        rules = sum(
            1 for line in Path(found[source]["infer"]["rules"]).read_text().splitlines() if '"relation"' in line
        )
        for kind in ("healthy, not learned from", "faulty"):
            for checked in found[source][kind]:
                scenario, overlay = checked["run"]
                findings = [f"{one['title']} ({one['first_step']})" for one in checked["findings"]]
                what = f"{scenario}, {'right program' if overlay else 'initial'} ({kind.partition(',')[0]})"
                yield (
                    f"| {source} | {rules} | {what} | {checked['watched_s']} | {checked['mb']} | {checked['check_s']} "
                    f"| {'<br>'.join(findings) or 'none'} |"
                )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--qualified", type=Path, nargs="*", default=[], metavar="DIR")
    parser.add_argument("--said", type=Path, nargs="*", default=[], metavar="DIR")
    given = parser.parse_args()
    for folder in given.qualified:
        print("\n".join(qualified(json.loads((folder / "qualification.json").read_text(encoding="utf-8")))))
    for folder in given.said:
        print("\n".join(said(json.loads((folder / "said.json").read_text(encoding="utf-8")))))


if __name__ == "__main__":
    main()
