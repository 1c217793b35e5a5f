"""``results.json`` and ``findings.json``: the result for programs. Strict JSON, the same bytes for the same result."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from traincheck.check import Result


def files(result: Result, folder: Path) -> dict[Path, str]:
    """Both files: path -> text."""
    whole = result.to_json()
    findings = {"schema": whole["schema"], "run": whole["run"], "findings": whole["findings"]}
    return {folder / "results.json": dumps(whole), folder / "findings.json": dumps(findings)}


def dumps(value: Any) -> str:
    """Indented JSON with a final newline; NaN and infinity, which JSON has not, as text."""
    return json.dumps(_strict(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value
