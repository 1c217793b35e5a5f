"""What a study leaves on disk: names, JSON files written whole, and the hashes by which a changed file is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.strictjson import strict
from traincheck.studykit.hashes import files_of
from traincheck.studykit.hashes import sha256_file as sha256_file
from traincheck.studykit.hashes import sha256_tree as sha256_tree

SCHEMA: Final = 1
"""Version of every JSON file of a study (docs/overhead.md)."""

STUDY: Final = "study.json"
POLICY: Final = "policy.toml"
PAIRS: Final = "pairs.json"
OUTCOMES: Final = "outcomes.json"
SUMMARY: Final = "summary.json"
HASHES: Final = "hashes.json"
PROGRAM: Final = "program"
ASSETS: Final = "assets"
TRIALS: Final = "trials"
INVARIANTS: Final = "invariants"
RULES: Final = "invariants.jsonl"
TRIAL: Final = "trial.json"
AUDIT: Final = "audit.json"
RESULTS: Final = "results.json"
TRACE: Final = "trace"

FILES: Final = (STUDY, POLICY, PAIRS, OUTCOMES, SUMMARY, HASHES, PROGRAM, ASSETS, TRIALS, INVARIANTS, "report.*")
"""What a study's folder holds, as patterns."""

_REPORTS: Final = ("report.md", "report.html", "report.json")


def write_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all. NaN and infinity become strings. Raises OSError."""
    write_whole({path: json.dumps(strict(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"})


def read_json(path: Path) -> Any:
    """The JSON in a file of a study. Raises TraincheckError when it is not there, no JSON, or of a newer schema."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise TraincheckError(f"expected {path}, there is no such file", "run the study again, or --resume") from error
    except ValueError as error:
        raise TraincheckError(f"{path} is not JSON: {error}", "run the study again") from error
    if isinstance(value, dict) and isinstance(value.get("schema"), int) and value["schema"] > SCHEMA:
        raise TraincheckError(f"{path} has schema {value['schema']}, this TrainCheck reads {SCHEMA}", "upgrade")
    return value


def write_hashes(folder: Path) -> None:
    """Hash everything in the study but reports and the list of hashes itself."""
    files = {
        path.relative_to(folder).as_posix(): {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        for path in files_of(folder)
        if path.relative_to(folder).as_posix() not in (HASHES, *_REPORTS)
    }
    write_json(folder / HASHES, {"schema": SCHEMA, "files": files})


def tampered(folder: Path) -> list[str]:
    """Sentences on every file that is missing, changed, or was not there when the study ended. Empty: nothing."""
    known = read_json(folder / HASHES)["files"]
    found = []
    here = {path.relative_to(folder).as_posix() for path in files_of(folder)} - {HASHES, *_REPORTS}
    for name, entry in known.items():
        if name not in here:
            found.append(f"{name} is missing")
        elif (seen := sha256_file(folder / name)) != entry["sha256"]:
            found.append(f"{name} was changed: its SHA-256 is {seen}, the study recorded {entry['sha256']}")
    return found + [f"{name} was not there when the study ended" for name in sorted(here - set(known))]
