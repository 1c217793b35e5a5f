"""Writing a report whole, and keeping that one could not be made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.pilot import report
from traincheck.pilot.layout import Layout
from traincheck.pilot.report import failures


def write(layout: Layout, target: Path, qualifications: Sequence[Path] = ()) -> dict[str, Any]:
    """Write all files into ``target`` and give the content.

    A report that can't be made is kept as such (``report/failures.jsonl``), and later reports list it. Raises
    TraincheckError, OSError.
    """
    try:
        content, files = report.texts(layout, qualifications)
    except TraincheckError as error:
        if layout.plan.exists():  # in a folder that is no pilot's nothing is written
            failures.record(layout, error.message)
        raise
    target.mkdir(parents=True, exist_ok=True)
    write_whole({target / name: text for name, text in files.items()})
    return content
