"""What went wrong and is kept: reports that could not be made, annotations that were refused."""

from __future__ import annotations

import json
from typing import Any, Final

from traincheck.errors import TraincheckError
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger, read
from traincheck.pilot.planning import load

_KIND: Final = "report_failed"


def record(layout: Layout, why: str) -> None:
    """Keep that a report could not be made. Raises LedgerError, OSError."""
    try:
        plan = load(layout.plan).hash
    except TraincheckError:  # it may be what is wrong
        plan = None
    layout.report.mkdir(parents=True, exist_ok=True)
    with Ledger(layout.report / "failures.jsonl") as ledger:
        ledger.add(_KIND, {"plan": plan, "why": why})


def kept(layout: Layout) -> dict[str, Any]:
    """Reports that failed and answers that were refused, each with its reason. Raises LedgerError, OSError."""
    path = layout.report / "failures.jsonl"
    refused = []
    for file in sorted((layout.annotations / "rejected").glob("*.json")):
        held = json.loads(file.read_text(encoding="utf-8"))
        refused.append({"kept_as": f"annotations/rejected/{file.stem}.answers", **held})
    return {
        "failed_reports": [str(entry.data["why"]) for entry in read(path)] if path.exists() else [],
        "refused_answers": refused,
    }
