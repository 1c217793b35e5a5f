"""The report of a pilot: Markdown, JSON and one HTML page, all from one content, the same bytes for the same folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from traincheck.pilot.layout import Layout

MARKDOWN: Final = "report.md"
JSON: Final = "report.json"
HTML: Final = "report.html"
FILES: Final = (MARKDOWN, JSON, HTML)


def texts(layout: Layout, qualifications: Sequence[Path] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """The content of the report on a pilot, and the text of each of its files.

    ``qualifications`` are folders that ``traincheck pilot qualify`` made.

    Raises TraincheckError when the plan does not hold, a case is not graded, or a file is missing or broken.
    """
    from traincheck.pilot.report import html, markdown
    from traincheck.pilot.report.content import content
    from traincheck.pilot.report.reading import read_pilot
    from traincheck.strictjson import dumps, strict

    report: dict[str, Any] = strict(content(read_pilot(layout, qualifications)))
    return report, {MARKDOWN: markdown.render(report), JSON: dumps(report), HTML: html.render(report)}
