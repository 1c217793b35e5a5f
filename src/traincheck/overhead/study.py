"""A whole study: what can't be measured is refused first; then assets, references, invariants, pairs, and the sums.

Everything is on disk as soon as it is known, so that an interrupted study can be read, and resumed.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from traincheck import __version__
from traincheck.errors import TraincheckError
from traincheck.overhead import artifacts, modes, outcomes, peer, portability, schedule, summary
from traincheck.overhead import trial as trials
from traincheck.overhead.policy import PLAIN
from traincheck.overhead.trial import Place, Trial
from traincheck.studykit import machine, processes

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many parts are done, and of how many."""

ENTRY: Final = "from overhead_program.main import main\n\nmain()\n"
"""``program/train.py`` of a study: what every trial starts."""

NO_PEER: Final = "no environment of the 0.x tool was given (--peer-python)"


def _write_program(folder: Path) -> Path:
    """A copy of the training program in ``folder``: every trial of a study runs the same one."""
    program = folder / artifacts.PROGRAM
    source = Path(__file__).parent / "program"
    shutil.copytree(source, program / "overhead_program", ignore=shutil.ignore_patterns("__pycache__"))
    (program / "train.py").write_text(ENTRY)
    return program


@dataclass
class Study:
    """A study under way: where, with what, and what there is so far."""

    place: Place
    policy_file: Path
    say: Progress
    quick: bool = False
    record: dict[str, Any] = field(default_factory=dict)
    finished: list[dict[str, Any]] = field(default_factory=list)
    learned: dict[str, Any] | None = None
    """What became of learning: cost, number and hash of the invariants."""

    def run(self, resume: bool = False) -> dict[str, Any]:
        """Run it to its end and give the summary. Interrupted, it sums up what there is and lets the interrupt on.

        Raises TraincheckError for what can't be measured, before anything is trained.
        """
        self.refuse()
        folder = self.place.folder
        before = artifacts.read_json(folder / artifacts.STUDY) if resume else None
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder) as temporary:
            program = _write_program(Path(temporary))
            here = self._look(self.place.python, program)
            there = self._look(self.place.peer_python, program) if self._peers() and self.place.peer_python else None
            self.record = self._described(here, there, artifacts.sha256_tree(program))
            if before is not None:
                self._same_study(before)
            else:
                for name in (artifacts.TRIALS, artifacts.INVARIANTS, artifacts.ASSETS, artifacts.PROGRAM):
                    shutil.rmtree(folder / name, ignore_errors=True)
                program.rename(folder / artifacts.PROGRAM)
        shutil.copyfile(self.policy_file, folder / artifacts.POLICY)
        artifacts.write_json(folder / artifacts.STUDY, self.record)
        state = "interrupted"
        try:
            self._prepare()
            self._learn(resume)
            self._pairs(resume)
            state = "finished"
        finally:
            self.record["state"] = state
            self.record["ended_ns"] = time.time_ns()
            result = self.conclude()
        return result

    def refuse(self) -> None:
        """Raise TraincheckError for every mode that the workload can't have, all of them named."""
        policy = self.place.policy
        found = []
        for mode in policy.modes:
            why = modes.refusal(mode, policy.workload)
            if why is not None:
                found.append(f"{mode.name} ({mode.kind}) can't be measured on {policy.workload.program}: {why}")
        if found:
            raise TraincheckError("; ".join(found), "take these modes out of the study file, or choose with --mode")

    def conclude(self) -> dict[str, Any]:
        """Write pairs, outcomes, summary and hashes of what there is; gives the summary."""
        folder, policy = self.place.folder, self.place.policy
        artifacts.write_json(folder / artifacts.STUDY, self.record)
        pairs = summary.pairs_of(folder, self.finished)
        artifacts.write_json(folder / artifacts.PAIRS, {"schema": artifacts.SCHEMA, "pairs": pairs})
        found = outcomes.all_of(folder, policy, self.finished)
        artifacts.write_json(folder / artifacts.OUTCOMES, found)
        result = summary.summarize(policy, self.record, self.finished, pairs, found, self.learned)
        artifacts.write_json(folder / artifacts.SUMMARY, result)
        artifacts.write_hashes(folder)
        return result

    # --- before the trials -------------------------------------------------------------------------------------------

    def _helper(self, verb: str, python: str, folder: Path) -> str:
        """Run ``verb`` of the program in ``folder`` and give its output. Raises TraincheckError when it fails."""
        task = folder / "task.json"
        artifacts.write_json(task, self.place.task())
        out, err = folder / "out.log", folder / "err.log"
        env = processes.environment(self.place.policy.protocol.threads)
        try:
            cost = processes.run(
                [python, str(folder / "train.py"), verb, str(task)],
                cwd=folder, env=env, out=out, err=err, timeout_s=600,
            )  # fmt: skip
            if cost.exit_code:
                raise TraincheckError(
                    f"{python} could not do {verb} of {self.place.policy.workload.program}: "
                    f"{processes.last_words(out, err)}",
                    "an environment that has the workload's framework, with --python",
                )
            return out.read_text(errors="replace")
        except OSError as error:
            raise TraincheckError(f"{python} can't be started: {error.strerror}", "a Python, with --python") from error
        finally:
            for path in (task, out, err):
                path.unlink(missing_ok=True)

    def _look(self, python: str, program: Path) -> dict[str, Any]:
        """What an environment has. Raises TraincheckError when the workload, with its options, can't run there."""
        choice = self.place.policy.workload
        found: dict[str, Any] = json.loads(self._helper("--look", python, program).strip().splitlines()[-1])
        if found.get("error"):
            raise TraincheckError(
                f"the workload {choice.program} can't be loaded by {python}: {found['error']}",
                "digits-cnn, gpt2-trainer, torchtitan-llama-debug, or module:Class beside the study file",
            )
        if found["missing"]:
            raise TraincheckError(
                f"{choice.program} needs {', '.join(found['missing'])}, which {python} has not",
                "install it there, or name another environment with --python",
            )
        for name in choice.options:
            if name not in found["options"]:
                raise TraincheckError(
                    f"{self.policy_file}: workload.options.{name}: {choice.program} has no such option",
                    f"one of {', '.join(found['options'])}" if found["options"] else "it has none",
                )
        if any(mode.kind == "peer-subclass" for mode in self.place.policy.modes) and not found["model_first"]:
            raise TraincheckError(
                f"{choice.program} can't be measured with 0.x subclass tracking: it has no build_model, and that tool "
                "tracks only models that the script itself makes",
                "write build_model, or leave the mode out",
            )
        if choice.ranks not in found["ranks"]:
            raise TraincheckError(
                f"{choice.program} can't train with {choice.ranks} ranks",
                f"workload.ranks of {' or '.join(map(str, found['ranks']))}",
            )
        return found

    def _peers(self) -> list[str]:
        return [mode.name for mode in self.place.policy.modes if mode.peer]

    def _described(self, here: dict[str, Any], there: dict[str, Any] | None, program: str) -> dict[str, Any]:
        """Content of ``study.json``; ``program`` is the hash of the training program."""
        policy = self.place.policy
        not_run = []
        if there is None and self._peers():
            not_run = [{"mode": name, "reason": NO_PEER} for name in self._peers()]
            kept = tuple(mode.name for mode in policy.modes if not mode.peer)
            if not kept:
                raise TraincheckError(f"every mode of the study needs the 0.x tool, and {NO_PEER}", "--peer-python")
            policy = policy.only(kept)
            self.place = replace(self.place, policy=policy)
        pairs = schedule.pairs(policy)
        return {
            "schema": artifacts.SCHEMA,
            "name": policy.name,
            "state": "running",
            "quick": self.quick,
            "traincheck": __version__,
            "source": machine.source(),
            "began_ns": time.time_ns(),
            "ended_ns": None,
            "policy_file": self.policy_file.name,
            "policy_sha256": artifacts.sha256_file(self.policy_file),
            "policy": policy.to_json(),
            "program_sha256": program,
            "assets_sha256": None,
            "invariants_sha256": None,
            "machine": machine.facts(),
            "load": machine.load(),
            "environment": here,
            "peer_environment": there,
            "not_run": not_run,
            "planned": schedule.planned(policy),
            "schedule": [[one.id, other.id] for one, other in pairs],
        }

    def _same_study(self, before: dict[str, Any]) -> None:
        """A study is only resumed as what it was. Raises TraincheckError."""
        for name in ("policy", "program_sha256", "schedule"):
            if before.get(name) != self.record[name]:
                raise TraincheckError(
                    f"{self.place.folder} holds a study with another {name.partition('_')[0]}: it can't go on as this",
                    "another folder with -o",
                )

    def _prepare(self) -> None:
        self.say("assets", 0, self.record["planned"])
        assets = self.place.folder / artifacts.ASSETS
        if not assets.exists():
            self._helper("--prepare", self.place.python, self.place.folder / artifacts.PROGRAM)
        self.record["assets_sha256"] = artifacts.sha256_tree(assets)

    # --- trials ------------------------------------------------------------------------------------------------------

    def _trial(self, trial: Trial, resume: bool) -> dict[str, Any]:
        done = len(self.finished)
        self.say(trial.id, done, self.record["planned"])
        path = self.place.folder / artifacts.TRIALS / trial.id / artifacts.TRIAL
        if resume and path.exists():
            record: dict[str, Any] = artifacts.read_json(path)
        else:
            record = trials.run(trial, self.place)
        self.finished.append(record)
        return record

    def _learn(self, resume: bool) -> None:
        """Collect the references in full, and learn from them with the production command."""
        place = self.place
        records = [self._trial(one, resume) for one in schedule.references(place.policy)]
        for record in records:
            if not record["valid"]:
                raise TraincheckError(
                    f"the reference run {record['id']} is no ground to learn from: {'; '.join(record['reasons'])}",
                    f"its output is in {place.folder / artifacts.TRIALS / record['id']}",
                )
        runs = [place.folder / artifacts.TRIALS / record["id"] / artifacts.TRACE for record in records]
        folder = place.rules.parent
        folder.mkdir(exist_ok=True)
        if not (resume and (folder / "learned.json").exists()):
            self.say("learning", len(self.finished), self.record["planned"])
            words = [place.python, "-m", "traincheck", "infer", *map(str, runs), "-o", str(place.rules), "--force"]
            cost = self._tool([*words, "--json"], folder / "infer.json", folder / "infer.log", (0,))
            found = portability.audit(place.rules, runs)
            artifacts.write_json(folder / "portability.json", found)
            learned = {
                "schema": artifacts.SCHEMA,
                "references": [record["id"] for record in records],
                "invariants": found["invariants"],
                "sha256": found["sha256"],
                "portable": not found["faults"],
                "not_portable": len(found["faults"]),
                "infer": cost,
            }
            artifacts.write_json(folder / "learned.json", learned)
        self.learned = artifacts.read_json(folder / "learned.json")
        self.record["invariants_sha256"] = self.learned["sha256"] if self.learned else None
        if any(mode.kind == "peer-selective" for mode in place.policy.modes):
            self._learn_as_peer(resume)

    def _learn_as_peer(self, resume: bool) -> None:
        """The 0.x tool learns from a reference of its own, with its own command."""
        place = self.place
        record = self._trial(schedule.peer_reference(place.policy), resume)
        if not record["valid"]:
            raise TraincheckError(
                f"the reference run of the 0.x tool is no ground to learn from: {'; '.join(record['reasons'])}",
                "leave out its selective mode with --mode",
            )
        told = place.rules.parent / "peer-learned.json"
        if resume and told.exists():
            return
        self.say("learning (0.x)", len(self.finished), self.record["planned"])
        assert place.peer_python is not None
        words = peer.infer(
            place.peer_python, place.folder / artifacts.TRIALS / record["id"] / artifacts.TRACE, place.peer_rules
        )
        folder = place.rules.parent
        cost = self._tool(words, folder / "peer-infer.out", folder / "peer-infer.log", (0,))
        rules = place.peer_rules.read_text().splitlines()
        value = {"schema": artifacts.SCHEMA, "reference": record["id"], "invariants": len(rules), "infer": cost}
        artifacts.write_json(told, value)

    def _pairs(self, resume: bool) -> None:
        for pair in schedule.pairs(self.place.policy):
            for trial in pair:
                record = self._trial(trial, resume)
                if "check" not in record:
                    self._check(trial, record)

    def _check(self, trial: Trial, record: dict[str, Any]) -> None:
        """Hold the trace of a full or selective trial against the invariants, with the production command."""
        if trial.mode == PLAIN or self.place.policy.mode(trial.mode).kind not in ("full", "selective"):
            return
        folder = self.place.folder / artifacts.TRIALS / trial.id
        if not record["valid"]:
            return
        words = [self.place.python, "-m", "traincheck", "check", str(folder / artifacts.TRACE)]
        words += ["-i", str(self.place.rules), "--no-suppressions", "--json"]
        record["check"] = self._tool(words, folder / artifacts.RESULTS, folder / "check.log", (0, 3))
        artifacts.write_json(folder / artifacts.TRIAL, record)

    def _tool(self, command: list[str], out: Path, err: Path, good: tuple[int, ...]) -> dict[str, Any]:
        """Run one of our own commands; gives its cost. Raises TraincheckError when it fails."""
        protocol = self.place.policy.protocol
        cost = processes.run(
            command,
            cwd=out.parent,
            env=processes.environment(protocol.threads),
            out=out,
            err=err,
            timeout_s=protocol.timeout_s,
        )
        if cost.exit_code not in good:
            raise TraincheckError(
                f"`{' '.join(command[1:4])}` ended with {cost.exit_code}: {processes.last_words(out, err)}",
                "the study keeps what it has: --resume goes on",
                exit_code=1,
            )
        return {
            "command": command,
            "exit_code": cost.exit_code,
            "wall_s": cost.wall_s,
            "cpu_s": cost.cpu_s,
            "peak_mb": cost.peak_mb,
        }
