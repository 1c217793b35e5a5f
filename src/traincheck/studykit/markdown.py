"""Markdown of reports: cells that can't break a table, and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def cell(value: Any) -> str:
    """One line, and nothing that would break a table or become a tag."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; ``>`` before a header flushes its column right. Without rows: ``None.``"""
    if not rows:
        return "None."
    heads = [header.removeprefix(">") for header in headers]
    rule = ["---:" if header.startswith(">") else "---" for header in headers]
    return "\n".join(_row(row) for row in (heads, rule, *rows))


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(cell(one) for one in cells) + " |"
