"""``report.md``: the report for a repository, tables and plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traincheck.pilot.report.sections import sections
from traincheck.pilot.report.tables import Table


def render(report: Mapping[str, Any]) -> str:
    """The report as Markdown; the same bytes for the same content."""
    parts = [f"# Diagnosis pilot: {_cell(report['name'])}", f"Plan `{report['plan']}`."]
    if report["about"]:
        parts.append(_cell(report["about"]))
    for section in sections(report):
        parts.append(f"## {section.title}")
        parts += map(_cell, section.words)
        if section.lines:
            parts.append("\n".join(f"- {_cell(line)}" for line in section.lines))
        for table in section.tables:
            if table.title:
                parts.append(f"### {_cell(table.title)}")
            parts.append(_table(table))
        if not section.words and not section.lines and not section.tables:
            parts.append("None.")
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    if not table.rows:
        return "None."
    heads = [header.removeprefix(">") for header in table.headers]
    rule = ["---:" if header.startswith(">") else "---" for header in table.headers]
    return "\n".join(_row(row) for row in (heads, rule, *table.rows))


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: Any) -> str:
    """One line, and nothing that would break a table or become a tag."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
