"""Outputs of a check: terminal, JSON, one-file HTML, and the files of 0.x. They know results, not traces.

``write_all`` writes what ``traincheck check -o OUT`` leaves.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from traincheck.check import Result

FILES: Final = (
    "report.html",
    "results.json",
    "findings.json",
    "failed.log",
    "passed.log",
    "not_triggered.log",
    "violations_summary.json",
)
"""Names of all files in the output folder."""


def write_all(result: Result, folder: str | Path) -> Path:
    """Write all reports into ``folder`` (made if needed) and return it. Raises ``TraincheckError`` when it cannot."""
    from traincheck.errors import TraincheckError
    from traincheck.files import write_whole
    from traincheck.report import html, json_files, legacy

    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        write_whole(
            {
                **json_files.files(result, target),
                **legacy.files(result, target),
                target / "report.html": html.render(result),
            }
        )
    except OSError as error:
        raise TraincheckError(
            f"cannot write the results to {target}: {error.strerror or error}", "choose another place with -o"
        ) from None
    return target
