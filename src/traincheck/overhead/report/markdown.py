"""``report.md``: the report for a repository, tables and plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traincheck.overhead.report import tables, words
from traincheck.overhead.report.tables import Table
from traincheck.studykit import markdown
from traincheck.studykit.markdown import cell


def render(report: Mapping[str, Any]) -> str:
    """The report as Markdown; the same bytes for the same content."""
    parts = [f"# What checking costs: {cell(report['study'])}", words.verdict(report)]
    if report["about"]:
        parts.append(f"Workload: {cell(report['workload']['name'] or report['workload']['class'])}, "
                     f"{cell(report['about'])}.")  # fmt: skip
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
    parts += ["## Invariants", cell(words.portability(report))]
    parts += ["## Phases", words.PHASES, _table(tables.phases(report))]
    parts += ["## Flagged and left out", *_left_out(report)]
    parts += ["## Limitations", "\n".join(f"- {cell(text)}" for text in report["limitations"])]
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
    return ["\n".join(map(cell, lines))] if lines else ["None."]


def _table(table: Table) -> str:
    return markdown.table(table.headers, table.rows)
