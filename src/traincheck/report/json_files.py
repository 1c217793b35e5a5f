"""``results.json`` and ``findings.json``: the result for programs. Strict JSON, the same bytes for the same result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from traincheck.strictjson import dumps

if TYPE_CHECKING:
    from traincheck.check import Result


def files(result: Result, folder: Path) -> dict[Path, str]:
    """Both files: path -> text."""
    whole = result.to_json()
    findings = {"schema": whole["schema"], "run": whole["run"], "findings": whole["findings"]}
    return {folder / "results.json": dumps(whole), folder / "findings.json": dumps(findings)}
