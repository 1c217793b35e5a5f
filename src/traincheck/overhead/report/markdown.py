"""``report.md``: the report for a repository, tables and plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traincheck.overhead.report import tables, words
from traincheck.overhead.report.tables import Table


def render(report: Mapping[str, Any]) -> str:
    """The report as Markdown; the same bytes for the same content."""
    parts = [f"# What checking costs: {_cell(report['study'])}", words.verdict(report)]
    if report["about"]:
        parts.append(f"Workload: {_cell(report['workload']['name'] or report['workload']['class'])}, "
                     f"{_cell(report['about'])}.")  # fmt: skip
    parts += ["## Slowdown", words.SLOWDOWNS, _table(tables.slowdowns(report))]
    parts += words.noise(report)
    why = words.intervals(report)
    if why:
        parts.append("No interval: " + "; ".join(why) + ".")
    parts += ["## Budgets", f"Published figures are of {report['published_on']}.", _table(tables.budget_rows(report))]
    parts += ["## Training stayed the same", _evidence(report), _table(tables.pairs(report))]
    parts += ["## What watching did", words.WATCHED, _table(tables.audits(report))]
    if report["outcomes"]:
        parts += ["## Outcomes", _table(tables.outcomes(report))]
    if report["agreement"]:
        parts.append(_table(tables.agreement(report)))
    parts += ["## Invariants", _cell(words.portability(report))]
    parts += ["## Phases", words.PHASES, _table(tables.phases(report))]
    parts += ["## Flagged and left out", *_left_out(report)]
    parts += ["## Limitations", "\n".join(f"- {_cell(text)}" for text in report["limitations"])]
    parts += ["## Provenance", _table(tables.provenance(report))]
    parts += ["### Commands", words.COMMANDS, "```\n" + "\n".join(tables.commands(report)) + "\n```"]
    parts += ["### Large files", "By path and hash only; they are in the study's folder.",
              _table(tables.large_files(report))]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _evidence(report: Mapping[str, Any]) -> str:
    evidence = report["evidence"]
    return (
        f"Evidence equal in {evidence['equal']}/{evidence['pairs']} pairs, {evidence['facts_compared']:,} facts "
        "compared: parameters, gradients, buffers, optimizer state, generators, batches, losses."
    )


def _left_out(report: Mapping[str, Any]) -> list[str]:
    lines = [f"- {row['trial']}: under foreign load, {row['foreign_cpus']} CPUs" for row in report["flagged"]]
    lines += [f"- {row['trial']} does not count: {'; '.join(row['reasons'])}" for row in report["invalid_trials"]]
    lines += [f"- {row['mode']} was not run: {row['reason']}" for row in report["not_run"]]
    return ["\n".join(map(_cell, lines))] if lines else ["None."]


def _table(table: Table) -> str:
    if not table.rows:
        return "None."
    heads = [header.removeprefix(">") for header in table.headers]
    rule = ["---:" if header.startswith(">") else "---" for header in table.headers]
    return "\n".join(_row(row) for row in (heads, rule, *table.rows))


def _row(cells: Any) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: Any) -> str:
    """One line, and nothing that would break a table."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
