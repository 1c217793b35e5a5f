"""The run's folder: made before the command starts, completed after it ends."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traincheck.collect.activation import NOTES, PLAN_FILE, note_text
from traincheck.collect.jsonfile import NEXT, drop_room, keep_room, write_into_room, write_json
from traincheck.collect.plan import Plan
from traincheck.events import HEADER_SIZE, RECORD_SIZE

MANIFEST = "manifest.json"
REACHED = "reached"
"""An empty file that ``boot`` makes: some Python process was reached."""

_KNOWN = {MANIFEST, MANIFEST + NEXT, PLAN_FILE, REACHED, "processes", "compact"}
_ROOM = 64 << 10


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
    with contextlib.suppress(OSError):
        keep_room(str(run / MANIFEST), (run / MANIFEST).stat().st_size + _ROOM)


def clear(run: Path) -> None:
    """Remove an earlier trace, and only that: a folder that holds anything else is refused with FileExistsError."""
    names = {p.name for p in run.iterdir()} if run.is_dir() else {run.name}
    strange = sorted(n for n in names if n not in _KNOWN and not n.startswith("not-watched-"))
    if strange:
        raise FileExistsError(f"{run} holds files that are no trace: {', '.join(strange[:5])}")
    shutil.rmtree(run)


def discard(run: Path) -> None:
    """Remove what ``create`` made, when the command could not be started. Raises nothing."""
    with contextlib.suppress(OSError):
        clear(run)


def finish(run: Path, exit_code: int | None) -> str | None:
    """Complete the manifest: how the run ended, and what its trace lacks. Returns what went wrong, if anything."""
    if not run.is_dir():
        return "the folder was removed while the program ran"
    told = accounts(run)
    unwatched = notes(run)
    lost = sum(_lost(one) for one in told)
    unfinished = [str(one.get("name")) for one in told if one.get("end") == "running"]
    try:
        path = run / MANIFEST
        manifest = json.loads(path.read_text(encoding="utf-8"))
        manifest.update(
            ended_ns=time.time_ns(),
            exit_code=exit_code,
            complete=not (lost or unfinished or unwatched),
            lost=lost,
            faults=sum(len(one.get("faults") or ()) for one in told),
            unfinished=unfinished[:100],
            not_watched=unwatched[:100],
        )
        write_into_room(str(path), manifest)
    except (OSError, ValueError) as error:
        return f"the manifest could not be completed ({getattr(error, 'strerror', None) or error})"
    finally:
        drop_room(str(run / MANIFEST))
        for one in told:
            if not is_alive(one):
                drop_room(os.path.join(run, "processes", str(one.get("name")), "process.json"))
    return None


def accounts(run: Path) -> list[dict[str, Any]]:
    """What the processes said of themselves, with ``records`` counted for those that were killed; unreadable ones are
    left out.
    """
    found = []
    for path in sorted((run / "processes").glob("*/process.json")):
        try:
            account = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(account, dict):
            if account.get("end") == "running":
                account["records"] = sum(map(count_records, path.parent.glob("events-*.tcev")))
            found.append(account)
    return found


def count_records(segment: Path) -> int:
    """Number of records in a segment, also one that was never closed: its used part is followed by zeros. 0 if it
    can't be read.
    """
    try:
        with open(segment, "rb") as file:
            low, high = 0, (segment.stat().st_size - HEADER_SIZE) // RECORD_SIZE
            while low < high:
                middle = (low + high) // 2
                file.seek(HEADER_SIZE + middle * RECORD_SIZE)
                if file.read(1) in (b"", b"\0"):
                    high = middle
                else:
                    low = middle + 1
            return max(0, low)
    except OSError:
        return 0


def notes(run: Path) -> list[str]:
    """Why processes are not watched, a sentence each, without repetition."""
    return list(dict.fromkeys(note_text(path) for path in sorted(run.glob(NOTES))))


def is_alive(account: dict[str, Any]) -> bool:
    """Whether the process still runs (in the background, after the command ended)."""
    try:
        os.kill(int(account["pid"]), 0)
    except PermissionError:
        return True
    except (OSError, KeyError, TypeError, ValueError, OverflowError):
        return False
    return account.get("end") == "running"


def summary(run: Path, trouble: str | None = None) -> str:
    """One line (more when something was lost) on what was collected."""
    told = accounts(run)
    unwatched = notes(run)
    lines = [
        _collected(run, told)
        if told
        else f"nothing was collected: {unwatched.pop(0) if unwatched else trouble or _why(run)}"
    ]
    lost = sum(_lost(one) for one in told)
    if lost:
        reason = next((one["loss_reason"] for one in told if one.get("loss_reason")), "the reason is not known")
        lines.append(
            f"{_count(lost, 'record')} {'was' if lost == 1 else 'were'} LOST ({reason}): "
            "free space, or name another folder with -o"
        )
    faults = [fault for one in told for fault in one.get("faults") or ()]
    if faults:
        were = "was" if len(faults) == 1 else "were"
        lines.append(
            f"{_count(len(faults), 'part')} of the collection failed and {were} left out, "
            f"first {faults[0]['where']}: {faults[0]['error']}"
        )
    lines += [f"not watched: {text}" for text in unwatched[:3]]
    lines += _unfinished(told)
    if trouble and told:
        lines.append(trouble)
    return "\n            ".join(lines)


def _collected(run: Path, told: list[dict[str, Any]]) -> str:
    steps = max(int(one.get("steps") or 0) for one in told)
    records = sum(int(one.get("records") or 0) for one in told)
    parts = [_count(len(told), "process", "processes")]
    if steps or not any(one.get("end") == "running" for one in told):  # a killed process could not say
        parts.append(_count(steps, "step"))
    return ", ".join([*parts, _count(records, "record"), f"{_size(run) / 1e6:.1f} MB in {run}"])


def _unfinished(told: list[dict[str, Any]]) -> list[str]:
    running = [one for one in told if one.get("end") == "running"]
    alive = sum(is_alive(one) for one in running)
    killed = len(running) - alive
    lines = []
    if killed:
        whose = "its trace is" if killed == 1 else "their traces are"
        lines.append(
            f"{_count(killed, 'process', 'processes')} ended without a word (killed?): {whose} there up to that moment"
        )
    if alive:
        still = "still runs and is" if alive == 1 else "still run and are"
        lines.append(f"{_count(alive, 'process', 'processes')} {still} collected")
    return lines


def _why(run: Path) -> str:
    if not run.is_dir():
        return "the folder was removed while the program ran"
    if not (run / "processes").is_dir():
        return "the processes' folders were removed while the program ran"
    if (run / REACHED).exists():
        return "no Python process of the command imported torch"
    return (
        "no Python process of the command could be reached (one started with -E, -I or -S, "
        "or without PYTHONPATH in its environment, is not covered)"
    )


def _size(run: Path) -> int:
    total = 0
    for path in run.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.stat()
            total += min(status.st_size, status.st_blocks * 512) if path.is_file() else 0
    return total


def _lost(account: dict[str, Any]) -> int:
    return int(account.get("dropped") or 0) + int(account.get("symbols_lost") or 0)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
