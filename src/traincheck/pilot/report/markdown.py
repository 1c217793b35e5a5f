"""``report.md``: the report for a repository, tables and plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traincheck.pilot.report.sections import sections
from traincheck.studykit import markdown
from traincheck.studykit.markdown import cell


def render(report: Mapping[str, Any]) -> str:
    """The report as Markdown; the same bytes for the same content."""
    parts = [f"# Diagnosis pilot: {cell(report['name'])}", f"Plan `{report['plan']}`."]
    if report["about"]:
        parts.append(cell(report["about"]))
    for section in sections(report):
        parts.append(f"## {section.title}")
        parts += map(cell, section.words)
        if section.lines:
            parts.append("\n".join(f"- {cell(line)}" for line in section.lines))
        for table in section.tables:
            if table.title:
                parts.append(f"### {cell(table.title)}")
            parts.append(markdown.table(table.headers, table.rows))
        if not section.words and not section.lines and not section.tables:
            parts.append("None.")
    return "\n\n".join(parts) + "\n"
