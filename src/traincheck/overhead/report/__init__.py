"""The report of a study: Markdown, JSON and one HTML page, all from one content, the same bytes for the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

MARKDOWN: Final = "report.md"
JSON: Final = "report.json"
HTML: Final = "report.html"
FILES: Final = (MARKDOWN, JSON, HTML)


def texts(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The content of the report on the study in ``folder``, and the text of each of its files.

    Raises TraincheckError when the study has not ended, or a file of it is missing or is none of ours.
    """
    from traincheck.errors import TraincheckError
    from traincheck.overhead.report import html, markdown
    from traincheck.overhead.report.content import content
    from traincheck.overhead.report.values import dumps, readable

    try:
        report: dict[str, Any] = readable(content(folder))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise TraincheckError(
            f"the study in {folder} is not as this TrainCheck writes it: {type(error).__name__}: {error}",
            f"traincheck overhead verify {folder}",
        ) from error
    return report, {MARKDOWN: markdown.render(report), JSON: dumps(report), HTML: html.render(report)}


def write(folder: Path, target: Path) -> dict[str, Any]:
    """Write all files into ``target`` and give the content. Raises TraincheckError, also when it can't be written."""
    from traincheck.errors import TraincheckError
    from traincheck.files import write_whole

    report, files = texts(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        write_whole({target / name: text for name, text in files.items()})
    except OSError as error:
        raise TraincheckError(
            f"cannot write the report to {target}: {error.strerror or error}", "another place with -o"
        ) from None
    return report
