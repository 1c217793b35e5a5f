"""One trial: a training in a fresh process, plain or watched, with what it cost and why it does not count if so."""

from __future__ import annotations

import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from traincheck.overhead import artifacts, audit, modes, peer
from traincheck.overhead.policy import PLAIN, Mode, Policy
from traincheck.studykit import processes
from traincheck.studykit.machine import foreign

PHASES: Final = ("import", "set_up", "evidence_before", "training", "evidence_after", "close", "done")
"""Phases that the program marks, in order."""


REFERENCE: Final = "reference"
PEER_REFERENCE: Final = "reference-peer"


@dataclass(frozen=True)
class Trial:
    """What is run. ``id`` is the name of its folder."""

    id: str
    cohort: str
    pair: int
    """Number of the pair in cohort and ``of``; 0 for reference runs."""
    of: str
    """The mode whose pair this is."""
    mode: str
    """``plain`` or ``of``."""
    position: int
    """1: first of its pair, 2: second."""
    seed: int
    steps: int


@dataclass(frozen=True)
class Place:
    """Where a study lives and what it runs with."""

    folder: Path
    policy: Policy
    python: str
    peer_python: str | None
    workload_path: str | None
    """Folder in which a workload of one's own is looked for."""

    @property
    def rules(self) -> Path:
        """The invariant file."""
        return self.folder / artifacts.INVARIANTS / artifacts.RULES

    @property
    def peer_rules(self) -> Path:
        """That of the 0.x tool."""
        return self.folder / artifacts.INVARIANTS / "peer.jsonl"

    def task(self, **more: Any) -> dict[str, Any]:
        """Content of a ``task.json``."""
        choice = self.policy.workload
        return {
            "workload": choice.program,
            "path": self.workload_path,
            "options": choice.options,
            "assets": str(self.folder / artifacts.ASSETS),
            "threads": self.policy.protocol.threads,
            **more,
        }


def run(trial: Trial, place: Place) -> dict[str, Any]:
    """Run a trial and write its folder; gives what ``trial.json`` holds. Raises OSError when nothing can be written."""
    folder = place.folder / artifacts.TRIALS / trial.id
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    task = folder / "task.json"
    artifacts.write_json(task, place.task(seed=trial.seed, steps=trial.steps, out=str(folder)))
    mode = _mode(trial, place)
    command, env = _command(trial, mode, place, folder, task)
    protocol = place.policy.protocol
    cost = processes.run(
        command,
        cwd=folder,
        env=env,
        out=folder / "out.log",
        err=folder / "err.log",
        timeout_s=protocol.timeout_s,
    )
    ranks = _ranks(folder)
    reasons = _failures(trial, cost, ranks, place, folder)
    watched = mode is not None
    record: dict[str, Any] = {
        "schema": artifacts.SCHEMA,
        **asdict(trial),
        "command": command,
        "environment": processes.settings(protocol.threads),
        "tracking": modes.tracking(mode) if mode is not None else "none",
        "exit_code": cost.exit_code,
        "began_ns": cost.began_ns,
        "ended_ns": cost.ended_ns,
        "wall_s": cost.wall_s,
        "cpu_s": cost.cpu_s,
        "peak_mb": max((rank["peak_mb"] for rank in ranks), default=cost.peak_mb),
        "load_before": cost.load_before,
        "load_after": cost.load_after,
        "foreign": foreign(cost.use_before, cost.use_after, cost.cpu_s, cost.wall_s, protocol.foreign_load),
        "phases": _phases(cost, ranks, folder),
        "phases_cpu": _phases_cpu(ranks),
        "times": _times(ranks, protocol.first_steady_step),
    }
    if mode is not None and not mode.peer:
        record["trace"] = _audited(folder, reasons)
    elif mode is not None:
        record["trace"] = peer.described(folder / artifacts.TRACE)
        if not record["trace"]["records"]:
            reasons.append("the 0.x tool wrote no records")
    record["watched"] = watched
    record["valid"] = not reasons
    record["reasons"] = reasons
    for scratch in folder.glob("scratch-*"):
        shutil.rmtree(scratch, ignore_errors=True)
    artifacts.write_json(folder / artifacts.TRIAL, record)
    return record


def _mode(trial: Trial, place: Place) -> Mode | None:
    """How the trial is watched; None: not at all."""
    if trial.mode == PLAIN:
        return None
    if trial.mode == REFERENCE:
        return Mode(name=REFERENCE, kind="full")
    if trial.mode == PEER_REFERENCE:
        return Mode(name=PEER_REFERENCE, kind="peer-api")
    return place.policy.mode(trial.mode)


def _command(
    trial: Trial, mode: Mode | None, place: Place, folder: Path, task: Path
) -> tuple[list[str], dict[str, str]]:
    protocol, choice = place.policy.protocol, place.policy.workload
    env = processes.environment(protocol.threads)
    script = place.folder / artifacts.PROGRAM / "train.py"
    if mode is not None and mode.peer:
        assert place.peer_python is not None
        return peer.command(mode, place.peer_python, folder, script.parent, task, choice.ranks, place.peer_rules), env
    # The plain side of a peer's pair trains in the peer's environment: nothing differs but the watching.
    python = place.python
    if trial.cohort != REFERENCE and place.policy.mode(trial.of).peer and place.peer_python is not None:
        python = place.peer_python
    train = [python, str(script), str(task)]
    if choice.ranks > 1:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(choice.ranks)]
        train = [python, *launcher, str(script), str(task)]
    if mode is None:
        return train, env
    return modes.command(mode, place.python, folder / artifacts.TRACE, place.rules, train), env


def _ranks(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.json"))]


def ranks_of(folder: Path) -> list[dict[str, Any]]:
    """What each rank of a trial wrote, by rank."""
    return sorted(_ranks(folder), key=lambda rank: int(rank["rank"]))


def _failures(
    trial: Trial, cost: processes.Cost, ranks: Sequence[dict[str, Any]], place: Place, folder: Path
) -> list[str]:
    """Why the trial does not count."""
    reasons = []
    wanted = place.policy.workload.ranks
    if cost.timed_out:
        reasons.append(f"it was ended after {place.policy.protocol.timeout_s} s")
    elif cost.exit_code:
        words = processes.last_words(folder / "out.log", folder / "err.log")
        reasons.append(f"the command ended with {cost.exit_code}: … {words}")
    if len(ranks) != wanted:
        reasons.append(f"{len(ranks)} of {wanted} ranks wrote their evidence")
    for rank in ranks:
        who = f"rank {rank['rank']}: " if wanted > 1 else ""
        names = [phase["name"] for phase in rank["phases"]]
        if names != list(PHASES):
            gone = ", ".join(name for name in PHASES if name not in names)
            reasons.append(f"{who}phases are incomplete (no {gone})" if gone else f"{who}phases are out of order")
        if rank["error"]:
            reasons.append(f"{who}training failed: {rank['error']}")
        if len(rank["steps"]) != trial.steps:
            reasons.append(f"{who}{len(rank['steps'])} of {trial.steps} steps were made")
        for step in rank["steps"]:
            if step["failed"]:
                reasons.append(f"{who}step {step['step']} failed")
            elif step["loss"] is None or step["batch"] is None:
                reasons.append(f"{who}step {step['step']} left no loss or no batch")
            elif not step["loss"]["finite"]:
                reasons.append(f"{who}step {step['step']}: the loss is {step['loss']['value']}")
        moved = rank["evidence"]["moved"]
        if moved:
            reasons.append(f"{who}{len(moved)} parameters are other objects or lie elsewhere: {', '.join(moved[:3])}")
    return reasons


def _phases(cost: processes.Cost, ranks: Sequence[dict[str, Any]], folder: Path) -> dict[str, float | None]:
    """Seconds by the clock of each phase of the first rank; ``launch`` is before its program, the rest after it.

    ``drain`` is from the program's end to the moment when TrainCheck had written everything out; null when plain.
    """
    if not ranks:
        return {}
    rows = ranks[0]["phases"]
    found: dict[str, float | None] = {"launch": (rows[0]["monotonic_ns"] - cost.began_monotonic_ns) / 1e9}
    for row, following in pairwise(rows):
        found[row["name"]] = (following["monotonic_ns"] - row["monotonic_ns"]) / 1e9
    found["steps"] = sum(step["wall_ns"] for step in ranks[0]["steps"]) / 1e9
    done = rows[-1]
    written = None
    for path in (folder / artifacts.TRACE / "processes").glob("*/process.json"):
        told = json.loads(path.read_text())
        if told.get("pid") == ranks[0]["pid"] and told.get("ended_ns"):
            written = (told["ended_ns"] - done["realtime_ns"]) / 1e9
    found["drain"] = written
    found["shutdown"] = (cost.ended_monotonic_ns - done["monotonic_ns"]) / 1e9 - (written or 0.0)
    return found


def _phases_cpu(ranks: Sequence[dict[str, Any]]) -> dict[str, float]:
    """CPU seconds of the first rank's process in each phase it marked; ``import`` with what came before."""
    if not ranks:
        return {}
    rows = ranks[0]["phases"]
    found = {row["name"]: (after["cpu_ns"] - row["cpu_ns"]) / 1e9 for row, after in pairwise(rows)}
    found["import"] = rows[1]["cpu_ns"] / 1e9 if len(rows) > 1 else 0.0
    found["steps"] = sum(step["cpu_ns"] for step in ranks[0]["steps"]) / 1e9
    return found


def _times(ranks: Sequence[dict[str, Any]], first: int) -> dict[str, Any]:
    """Times of the steps in ms: wall of the slowest rank, CPU of all. Median and mean are of the steady steps."""
    if not ranks or not all(rank["steps"] for rank in ranks):
        return {"wall_ms": [], "cpu_ms": [], "first_steady_step": first}
    each = list(zip(*(rank["steps"] for rank in ranks), strict=False))
    wall = [max(step["wall_ns"] for step in steps) / 1e6 for steps in each]
    cpu = [sum(step["cpu_ns"] for step in steps) / 1e6 for steps in each]
    found: dict[str, Any] = {"wall_ms": wall, "cpu_ms": cpu, "first_steady_step": first}
    for name, values in (("wall", wall[first - 1 :]), ("cpu", cpu[first - 1 :])):
        if values:
            found[f"{name}_median_ms"] = statistics.median(values)
            found[f"{name}_mean_ms"] = statistics.fmean(values)
    return found


def _audited(folder: Path, reasons: list[str]) -> dict[str, Any]:
    """Audit the trace and write it down; its faults are reasons."""
    try:
        found = audit.audit(folder / artifacts.TRACE)
    except Exception as error:  # whatever a broken trace does to us: it does not count
        reasons.append(f"the trace cannot be audited: {type(error).__name__}: {error}")
        return {"records": 0, "bytes": 0, "calls": 0}
    artifacts.write_json(folder / artifacts.AUDIT, found)
    reasons += [f"trace: {text}" for text in found["faults"]]
    return {
        "records": found["records"],
        "bytes": found["bytes"],
        "calls": found["calls"],
        "sha256": artifacts.sha256_tree(folder / artifacts.TRACE),
    }
