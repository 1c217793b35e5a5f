"""The run's folder: made before the command starts, completed after it ends."""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traincheck.collect.activation import PLAN_FILE
from traincheck.collect.plan import Plan
from traincheck.collect.processes import write_json

MANIFEST = "manifest.json"


def create(run: Path, plan: Plan, command: Sequence[str], started_ns: int) -> None:
    """Make the folder with its plan and manifest. Raises OSError."""
    from traincheck import __version__

    (run / "processes").mkdir(parents=True, exist_ok=True)
    write_json(str(run / PLAN_FILE), plan.to_json())
    manifest = {
        "schema": 1,
        "traincheck": __version__,
        "command": list(command),
        "cwd": os.getcwd(),
        "started_ns": started_ns,
        "ended_ns": None,
        "exit_code": None,
        "plan": plan.to_json(),
        "plan_hash": plan.digest(),
        "host": platform.node(),
        "launcher_pid": os.getpid(),
        "complete": False,
    }
    write_json(str(run / MANIFEST), manifest)


def clear(run: Path) -> None:
    """Remove an earlier trace, and only that: a folder that holds anything else is refused with FileExistsError."""
    known = {"manifest.json", PLAN_FILE, "processes", "compact"}
    names = {p.name for p in run.iterdir()} if run.is_dir() else {run.name}
    strange = sorted(n for n in names if n not in known and not n.startswith("not-watched-"))
    if strange:
        raise FileExistsError(f"{run} holds files that are no trace: {', '.join(strange[:5])}")
    shutil.rmtree(run)


def finish(run: Path, exit_code: int | None) -> str | None:
    """Complete the manifest; returns what went wrong, if anything."""
    try:
        path = run / MANIFEST
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest.update(ended_ns=time.time_ns(), exit_code=exit_code, complete=True)
        write_json(str(path), manifest)
    except (OSError, ValueError) as error:
        return f"the manifest could not be completed ({error})"
    return None


def processes(run: Path) -> list[dict[str, Any]]:
    """What the processes said of themselves; those that can't be read are left out."""
    found = []
    for path in sorted((run / "processes").glob("*/process.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return found


def summary(run: Path, trouble: str | None = None) -> str:
    """One line (more when something was lost) on what was collected."""
    found = processes(run)
    size = sum(p.stat().st_size for p in run.rglob("*") if p.is_file())
    traced = [p for p in found if p.get("end") != "dataloader-worker"]
    if not traced:
        unwatched = sorted(run.glob("not-watched-*.txt"))
        why = (
            unwatched[0].read_text(errors="replace").strip()
            if unwatched
            else "no Python process of the command imported torch"
        )
        return f"nothing was collected: {why}"
    steps = max(int(p.get("steps") or 0) for p in traced)
    records = sum(int(p.get("records") or 0) for p in traced)
    parts = [
        f"{len(traced)} process{'es' * (len(traced) != 1)}",
        f"{steps} step{'s' * (steps != 1)}",
        f"{records:,} records",
        f"{size / 1e6:.1f} MB in {run}",
    ]
    lines = [", ".join(parts)]
    lost = sum(int(p.get("dropped") or 0) + int(p.get("symbols_lost") or 0) for p in traced)
    if lost:
        reason = next((p["loss_reason"] for p in traced if p.get("loss_reason")), "unknown reason")
        lines.append(f"{lost:,} records were LOST ({reason}): free space or name another folder with -o")
    faults = [fault for p in traced for fault in p.get("faults", [])]
    if faults:
        first = f"{faults[0]['where']}: {faults[0]['error']}"
        lines.append(f"{len(faults)} parts of the collection failed and were left out, first {first}")
    unfinished = [p for p in traced if p.get("end") == "running"]
    if unfinished:
        lines.append(
            f"{len(unfinished)} processes ended without saying so (killed?): their trace is there up to that moment"
        )
    if trouble:
        lines.append(trouble)
    return "\n            ".join(lines)
