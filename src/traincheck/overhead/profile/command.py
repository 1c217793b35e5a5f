"""Profiling a study's workload: what is needed first (assets, invariants), then two runs a mode, with and without the
ledger, and the sums.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from traincheck import __version__
from traincheck.collect import runfolder
from traincheck.collect.lookup import missing
from traincheck.collect.plan import Plan
from traincheck.errors import TraincheckError
from traincheck.overhead import artifacts, study
from traincheck.overhead import trial as trials
from traincheck.overhead.policy import Mode, Policy
from traincheck.overhead.profile import counts, result, windows
from traincheck.overhead.trial import Place
from traincheck.studykit import machine, processes

SCHEMA: Final = 1
PROFILE: Final = "profile.json"
PAGE: Final = "profile.md"
RUNS: Final = "runs"
FILES: Final = (
    PROFILE, PAGE, RUNS, artifacts.POLICY, artifacts.PROGRAM, artifacts.ASSETS, artifacts.TRIALS, artifacts.INVARIANTS,
)  # fmt: skip
"""What the folder of a profile holds."""

STEPS: Final = 24
"""Steps counted on each side, if nothing is said."""

_ENTRY: Final = "from traincheck.overhead.profile.inside import main\n\nmain()\n"
_OWN: Final = ("api", "full", "selective")


def choose(policy: Policy, names: tuple[str, ...]) -> Policy:
    """The policy with the modes to profile: those named, else all that are TrainCheck's own.

    Raises TraincheckError for what can't be profiled.
    """
    if policy.workload.ranks > 1:
        raise TraincheckError(
            f"a profile is of one process, {policy.name} trains with {policy.workload.ranks}",
            "the study of the same workload with one rank",
        )
    for mode in policy.modes:
        if mode.name in names and mode.kind not in _OWN:
            raise TraincheckError(
                f"{mode.name} ({mode.kind}) can't be profiled: the components are those of this TrainCheck",
                f"a mode of the kinds {', '.join(_OWN)}",
            )
    chosen = names or tuple(mode.name for mode in policy.modes if mode.kind in _OWN)
    if not chosen:
        raise TraincheckError(f"{policy.name} has no mode that can be profiled", f"one of {', '.join(_OWN)}")
    return policy.only(chosen)


class Profiling:
    """A profile under way in ``place.folder``. ``say`` is told what is being done, done parts, all parts."""

    def __init__(self, place: Place, policy_file: Path, say: Callable[[str, int, int], None], steps: int) -> None:
        self._place, self._file, self._say, self._steps = place, policy_file, say, steps
        self._policy = place.policy
        self._done = 0
        self._study = study.Study(place, policy_file, lambda what, done, total: say(what, self._done, self._parts))

    @property
    def _parts(self) -> int:
        return 2 * len(self._policy.modes) + len(self._study.finished)

    def run(self) -> dict[str, Any]:
        """Profile every mode; gives what ``profile.json`` holds. Raises TraincheckError for what can't be run."""
        folder = self._place.folder
        folder.mkdir(parents=True, exist_ok=True)
        began = time.time_ns()
        load = machine.load()
        program = study._write_program(folder)
        (program / "profile_train.py").write_text(_ENTRY)
        shutil.copyfile(self._file, folder / artifacts.POLICY)
        environment = self._study._look(self._place.python, program)
        self._study.record = {"planned": self._parts}
        self._study._prepare()
        learned = None
        if any(mode.kind == "selective" for mode in self._policy.modes):
            self._study._learn(False)
            learned = self._study.learned
        modes = [self._mode(mode) for mode in self._policy.modes]
        versions = environment["versions"]
        found = {
            "schema": SCHEMA,
            "study": self._policy.name,
            "workload": self._policy.workload.program,
            "policy_file": self._file.name,
            "policy_sha256": artifacts.sha256_file(self._file),
            "traincheck": __version__,
            "source": machine.source(),
            "began_ns": began,
            "ended_ns": time.time_ns(),
            "machine": machine.facts(),
            "load": {"before": load, "after": machine.load()},
            "python": environment["python"],
            "torch": versions.get("torch"),
            "seed": self._policy.protocol.seed,
            "threads": self._policy.protocol.threads,
            "invariants": learned["invariants"] if learned else None,
            "tolerance": result.TOLERANCE,
            "reconciles": all(mode["reconciles"] for mode in modes),
            "modes": modes,
        }
        artifacts.write_json(folder / PROFILE, found)
        return found

    def _mode(self, mode: Mode) -> dict[str, Any]:
        kinds = windows.plan(
            self._steps, max(self._policy.protocol.first_steady_step, mode.warm_up_steps + 1), mode.sampling_interval
        )
        plan = self._plan(mode)
        profiled = self._once(mode, plan, kinds, accounted=True)
        unprofiled = self._once(mode, plan, kinds, accounted=False)
        told, ranks = profiled
        trace = self._place.folder / RUNS / f"{mode.name}.profiled" / artifacts.TRACE / "processes" / told["process"]
        recorded = counts.Recorded(trace, told["ident"], int(told["calibration"]["segment"]["records"]))
        sums = result.summarize(told, unprofiled[0], recorded, sampled=mode.sampling_interval > 1)
        same = _evidence(ranks) == _evidence(unprofiled[1])
        if not same:
            sums["faults"].append("training differed between the profiled and the unprofiled run")
            sums["reconciles"] = False
        return {"mode": mode.name, "kind": mode.kind, "steps": len(kinds), "evidence_equal": same, **sums}

    def _plan(self, mode: Mode) -> Plan:
        """The plan that ``traincheck collect`` makes of the mode's options."""
        plan = Plan(state=mode.kind != "api", every=mode.sampling_interval, warmup=mode.warm_up_steps)
        if mode.kind != "selective":
            return plan
        from traincheck.invariants import load_invariants
        from traincheck.selective import selective

        rules = load_invariants(self._place.rules)
        return selective(plan, rules, lookup=lambda functions: missing(self._place.python, functions) or {})

    def _once(
        self, mode: Mode, plan: Plan, kinds: list[str], accounted: bool
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """One run: what the inside told, and what the training program wrote."""
        name = f"{mode.name}.{'profiled' if accounted else 'unprofiled'}"
        self._say(name, self._done, self._parts)
        place, protocol = self._place, self._policy.protocol
        folder = place.folder / RUNS / name
        folder.mkdir(parents=True)
        run, task = folder / artifacts.TRACE, folder / "task.json"
        asked = {"run": str(run), "accounted": accounted, "kinds": kinds}
        artifacts.write_json(task, place.task(seed=protocol.seed, steps=len(kinds), out=str(folder), profile=asked))
        command = [place.python, str(place.folder / artifacts.PROGRAM / "profile_train.py"), str(task)]
        runfolder.create(run, plan, command, time.time_ns())
        out, err = folder / "out.log", folder / "err.log"
        env = processes.environment(protocol.threads)
        cost = processes.run(command, cwd=folder, env=env, out=out, err=err, timeout_s=protocol.timeout_s)
        runfolder.finish(run, cost.exit_code)
        self._done += 1
        for scratch in folder.glob("scratch-*"):
            shutil.rmtree(scratch, ignore_errors=True)
        if cost.timed_out or cost.exit_code or not (folder / "profile.json").exists():
            why = f"was ended after {protocol.timeout_s} s" if cost.timed_out else f"ended with {cost.exit_code}"
            raise TraincheckError(
                f"the run {name} {why}: … {processes.last_words(out, err)}", f"its whole output is in {folder}"
            )
        return json.loads((folder / "profile.json").read_text()), trials.ranks_of(folder)


def _evidence(ranks: list[dict[str, Any]]) -> Any:
    """What has to be the same: content at the beginning and the end, and every step's loss, batch and generators."""
    return [
        (
            {name: rank["evidence"][name] for name in ("initial", "final", "optimizers", "rng_before", "rng_after")},
            [{name: step.get(name) for name in ("loss", "batch", "rng", "failed")} for step in rank["steps"]],
        )
        for rank in ranks
    ]
