"""One trial from its raw artifacts: task, ranks, times, phases, validity, command, trace. Computed here anew."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from traincheck.collect.plan import Plan
from traincheck.invariants import load_invariants
from traincheck.overhead import artifacts, audit, modes, peer, statistics
from traincheck.overhead.policy import PLAIN, Mode, Policy
from traincheck.overhead.trial import PEER_REFERENCE, PHASES, REFERENCE, Trial, ranks_of
from traincheck.overhead.verify_pieces import Said
from traincheck.selective import selective

Row = Mapping[str, Any]

_SLACK_S: Final = 1e-6
"""Sums of floats may differ by rounding."""


def verify(folder: Path, trial: Trial, policy: Policy, said: Said) -> dict[str, Any]:
    """Verify the folder of ``trial`` in the study at ``folder``; gives what ``trial.json`` holds.

    Raises TraincheckError (and what a damaged file raises) when it can't be read.
    """
    home = folder / artifacts.TRIALS / trial.id
    record: dict[str, Any] = artifacts.read_json(home / artifacts.TRIAL)
    name = f"{artifacts.TRIALS}/{trial.id}"
    where = f"{name}/{artifacts.TRIAL}"
    ranks = ranks_of(home)
    said.differ(where, "", {key: record.get(key) for key in asdict(trial)}, asdict(trial), "the schedule gives")
    mode = _mode(trial, policy)
    root = _task(home, name, trial, policy, said)
    _ranks(ranks, name, trial, policy, record, said)
    if ranks and all(rank["steps"] for rank in ranks):
        times = _times(ranks, policy.protocol.first_steady_step)
        said.differ(where, "times", record["times"], times, "the ranks' steps give")
        _phases(home, ranks, record, where, said)
        peak = max(rank["peak_mb"] for rank in ranks)
        said.differ(where, "peak_mb", record["peak_mb"], peak, "the ranks give")
    _foreign(record, where, policy.protocol.foreign_load, said)
    said.differ(where, "watched", record["watched"], mode is not None, "the mode says")
    faults: list[str] = []
    if mode is None:
        if (home / artifacts.TRACE).exists():
            said.add("extra", f"{name}/{artifacts.TRACE}", "a plain trial has no trace")
    elif mode.peer:
        trace = peer.described(home / artifacts.TRACE)
        said.differ(where, "trace", record["trace"], trace, "its files give")
    else:
        faults = _trace(home, name, ranks, record, said)
        _command(record, where, mode, root, said)
        if (home / artifacts.AUDIT).exists():
            said.of(f"{name}/{artifacts.TRACE}", partial(_plan, folder, f"{name}/{artifacts.TRACE}", mode, said))
    _validity(trial, policy, ranks, record, faults, where, said)
    return record


def _mode(trial: Trial, policy: Policy) -> Mode | None:
    """How the trial was watched; None: not at all."""
    special = {REFERENCE: "full", PEER_REFERENCE: "peer-api"}
    if trial.mode == PLAIN:
        return None
    if trial.mode in special:
        return Mode.model_validate({"name": trial.mode, "kind": special[trial.mode]})
    return policy.mode(trial.mode)


def _task(home: Path, name: str, trial: Trial, policy: Policy, said: Said) -> str:
    """What the program was given; gives the folder where the study was run, which may have been moved since."""
    task = artifacts.read_json(home / "task.json")
    choice = policy.workload
    wanted = {
        "workload": choice.program,
        "options": choice.options,
        "threads": policy.protocol.threads,
        "seed": trial.seed,
        "steps": trial.steps,
    }
    told = {key: task.get(key) for key in wanted}
    said.differ(f"{name}/task.json", "", told, wanted, "policy and schedule give")
    out = Path(task["out"])
    if out.name != trial.id:
        said.add("inconsistent", f"{name}/task.json", f"it is the task of {out.name}")
    return str(out.parent.parent)


def _ranks(ranks: Sequence[Row], name: str, trial: Trial, policy: Policy, record: Row, said: Said) -> None:
    """The ranks' evidence is of this trial: its seed, its workload, its time."""
    for rank in ranks:
        where = f"{name}/rank-{rank['rank']}.json"
        wanted = {"seed": trial.seed, "workload": policy.workload.program}
        said.differ(where, "", {key: rank.get(key) for key in wanted}, wanted, "the trial has")
        clock = [phase["realtime_ns"] for phase in rank["phases"]]
        if clock and not record["began_ns"] <= min(clock) <= max(clock) <= record["ended_ns"]:
            said.add("inconsistent", where, f"it was not written while {trial.id} ran: it is of another trial")
    numbers = [rank["rank"] for rank in ranks]
    if numbers != list(range(len(numbers))):
        said.add("inconsistent", name, f"its files are of ranks {', '.join(map(str, numbers))}")


def _times(ranks: Sequence[Row], first: int) -> dict[str, Any]:
    """Step times in ms: wall of the slowest rank, CPU of all."""
    each = list(zip(*(rank["steps"] for rank in ranks), strict=False))
    found: dict[str, Any] = {
        "wall_ms": [max(step["wall_ns"] for step in steps) / 1e6 for steps in each],
        "cpu_ms": [sum(step["cpu_ns"] for step in steps) / 1e6 for steps in each],
        "first_steady_step": first,
    }
    for clock in ("wall", "cpu"):
        for sampled, word in ((False, "median"), (True, "mean")):
            figure = statistics.run_figure(found[f"{clock}_ms"], first, sampled)
            if figure is not None:
                found[f"{clock}_{word}_ms"] = figure
    return found


def _phases(home: Path, ranks: Sequence[Row], record: Row, where: str, said: Said) -> None:
    """Phases of the first rank that its marks give; all together are the whole trial."""
    rank = ranks[0]
    marks = [(row["name"], row["monotonic_ns"], row["cpu_ns"]) for row in rank["phases"]]
    wall = {name: (after - before) / 1e9 for (name, before, _), (_, after, _) in pairwise(marks)}
    wall["steps"] = sum(step["wall_ns"] for step in rank["steps"]) / 1e9
    drain = _drain(home, rank)
    told = dict(record["phases"])
    launch, shutdown = told.pop("launch", None), told.pop("shutdown", None)
    said.differ(where, "phases", told, {**wall, "drain": drain}, "the marks of the program give")
    if launch is None or shutdown is None:
        said.add("inconsistent", where, "phases lack launch or shutdown")
    else:
        whole = launch + (marks[-1][1] - marks[0][1]) / 1e9 + (drain or 0.0) + shutdown
        if not math.isclose(whole, record["wall_s"], abs_tol=_SLACK_S):
            said.add("inconsistent", where, f"its phases come to {whole:.6f} s, wall_s is {record['wall_s']:.6f}")
    if wall["steps"] > wall.get("training", math.inf):
        text = f"its steps take {wall['steps']:.6f} s, the training they are in {wall['training']:.6f} s"
        said.add("inconsistent", where, text)
    cpu = {name: (after - before) / 1e9 for (name, _, before), (_, _, after) in pairwise(marks)}
    if len(marks) > 1:
        cpu["import"] = marks[1][2] / 1e9
    cpu["steps"] = sum(step["cpu_ns"] for step in rank["steps"]) / 1e9
    said.differ(where, "phases_cpu", record["phases_cpu"], cpu, "the marks of the program give")


def _drain(home: Path, rank: Row) -> float | None:
    """Seconds from the program's end to when TrainCheck had written everything."""
    found = None
    for told in _processes(home):
        if told.get("pid") == rank["pid"] and told.get("ended_ns"):
            found = (told["ended_ns"] - rank["phases"][-1]["realtime_ns"]) / 1e9
    return found


def _processes(home: Path) -> list[dict[str, Any]]:
    paths = (home / artifacts.TRACE / "processes").glob("*/process.json")
    return [json.loads(path.read_text()) for path in paths]


def _foreign(record: Row, where: str, limit: float, said: Said) -> None:
    foreign = record["foreign"]
    cpus = foreign["cpus"]
    if cpus is not None and abs(cpus - foreign["cpu_s"] / record["wall_s"]) > 0.001 + 0.005 / record["wall_s"]:
        text = f"{foreign['cpu_s']} s of foreign load in {record['wall_s']:.2f} s are not {cpus} CPUs"
        said.add("inconsistent", where, text)
    if cpus is None:
        if foreign["flagged"] is not None:
            said.add("inconsistent", where, "it is flagged, or not, for a foreign load that is not known")
    elif abs(cpus - limit) > 0.001 and foreign["flagged"] != (cpus > limit):
        word = "flagged" if foreign["flagged"] else "not flagged"
        said.add("inconsistent", where, f"it is {word} with {cpus} CPUs of foreign load; the limit is {limit}")


def _trace(home: Path, name: str, ranks: Sequence[Row], record: Row, said: Said) -> list[str]:
    """The audit again; gives its faults."""
    if not (home / artifacts.AUDIT).exists():
        return _unaudited(home, name, said)
    told = artifacts.read_json(home / artifacts.AUDIT)
    pids = {process.get("pid") for process in _processes(home)}
    for rank in ranks:
        if rank["pid"] not in pids:
            text = f"it has no process {rank['pid']}, which is rank {rank['rank']} of the trial: it is of another trial"
            said.add("inconsistent", f"{name}/{artifacts.TRACE}", text)
    again = said.of(f"{name}/{artifacts.TRACE}", lambda: audit.audit(home / artifacts.TRACE))
    if again is None:
        return ["the trace cannot be audited"]
    said.differ(f"{name}/{artifacts.AUDIT}", "", told, again, "the audit of the trace gives")
    trace = {key: again[key] for key in ("records", "bytes", "calls")}
    trace["sha256"] = artifacts.sha256_tree(home / artifacts.TRACE)
    said.differ(f"{name}/{artifacts.TRIAL}", "trace", record["trace"], trace, "the trace gives")
    return list(again["faults"])


def _unaudited(home: Path, name: str, said: Said) -> list[str]:
    """A trace that could not be audited when the study ran can't be now."""
    try:
        audit.audit(home / artifacts.TRACE)
    except Exception:  # whatever a broken trace does to us, as it did then
        return ["the trace cannot be audited"]
    said.add("missing", f"{name}/{artifacts.AUDIT}", "the trace can be audited")
    return []


def _command(record: Row, where: str, mode: Mode, root: str, said: Said) -> None:
    """The command is the one of the mode, on the study's own invariants and its own folder."""
    words = record["command"]
    if "--" not in words:
        said.add("inconsistent", where, "its command is no `traincheck collect … -- …`")
        return
    run = Path(root) / artifacts.TRIALS / record["id"] / artifacts.TRACE
    rules = Path(root) / artifacts.INVARIANTS / artifacts.RULES
    wanted = modes.command(mode, words[0], run, rules, words[words.index("--") + 1 :])
    said.differ(where, "command", words, wanted, "the mode gives")


def _plan(folder: Path, name: str, mode: Mode, said: Said) -> None:
    """What was observed is what the mode, and in selective modes the study's own invariants, ask for."""
    wanted = Plan(state=mode.kind != "api", every=mode.sampling_interval, warmup=mode.warm_up_steps)
    if mode.kind == "selective":
        invariants = load_invariants(folder / artifacts.INVARIANTS / artifacts.RULES)
        wanted = selective(wanted, invariants, allow_partial=True)
    told = artifacts.read_json(folder / name / "plan.json")
    said.differ(f"{name}/plan.json", "", told, wanted.to_json(), "mode and invariants ask for")
    manifest = artifacts.read_json(folder / name / "manifest.json")
    digest = Plan.from_json(told).digest()
    if manifest["plan_hash"] != digest:
        text = f"its plan_hash is {manifest['plan_hash']}, that of plan.json {digest}"
        said.add("inconsistent", f"{name}/manifest.json", text)


def _validity(
    trial: Trial, policy: Policy, ranks: Sequence[Row], record: Row, faults: Sequence[str], where: str, said: Said
) -> None:
    """``valid`` is what the raw artifacts say."""
    why = _invalid(trial, policy, ranks, record, faults)
    if record["valid"] != (not record["reasons"]):
        said.add("inconsistent", where, f"valid is {record['valid']} with {len(record['reasons'])} reasons")
    if why and record["valid"]:
        said.add("inconsistent", where, f"it is called valid, but {why[0]}")
    elif not why and not record["valid"] and record["exit_code"] == 0:
        said.add("inconsistent", where, "it is called invalid, but its artifacts show nothing wrong")


def _invalid(trial: Trial, policy: Policy, ranks: Sequence[Row], record: Row, faults: Sequence[str]) -> list[str]:
    why = [f"the trace is faulty: {fault}" for fault in faults]
    if record["exit_code"]:
        why.append(f"its command ended with {record['exit_code']}")
    if len(ranks) != policy.workload.ranks:
        why.append(f"{len(ranks)} of {policy.workload.ranks} ranks wrote evidence")
    for rank in ranks:
        if [phase["name"] for phase in rank["phases"]] != list(PHASES):
            why.append(f"the phases of rank {rank['rank']} are incomplete")
        if rank["error"]:
            why.append(f"training failed on rank {rank['rank']}: {rank['error']}")
        if len(rank["steps"]) != trial.steps:
            why.append(f"rank {rank['rank']} made {len(rank['steps'])} of {trial.steps} steps")
        if rank["evidence"]["moved"]:
            why.append(f"parameters moved on rank {rank['rank']}")
        for step in rank["steps"]:
            if step["failed"] or not step.get("loss") or not step.get("batch") or not step["loss"]["finite"]:
                why.append(f"step {step['step']} of rank {rank['rank']} failed or its loss is not finite")
    if isinstance(record.get("trace"), dict) and record["trace"].get("records") == 0:
        why.append("its trace holds nothing")
    return why
