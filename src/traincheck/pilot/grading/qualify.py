"""Qualifying a case before any trial: it shows its fault and its fix, and the grader tells right from wrong on it.

OUT/qualification.json, OUT/qualification.md
OUT/device.jsonl      device time, purpose qualification
OUT/replays/<source>/<scenario>/attempt-<n>/, OUT/oracles/, OUT/preflight/, OUT/numbers/, OUT/store/
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from traincheck.files import write_whole
from traincheck.pilot.cases import CaseFolder, Scenario
from traincheck.pilot.grading import qualification_page
from traincheck.pilot.grading.attempts import CaseJudge, read_verdict
from traincheck.pilot.grading.incomplete import verdicts
from traincheck.pilot.grading.preflight import preflight
from traincheck.pilot.grading.qualification import Check, Judged, Numbers, Preflight, Qualification, all_hold
from traincheck.pilot.grading.replaying import Setting, environment
from traincheck.pilot.grading.running import Job, LocalRunner, asked, device_seconds
from traincheck.pilot.grading.variants import Kind, names, variant
from traincheck.pilot.planning.state import versions
from traincheck.pilot.sources import Objects, SourceMap
from traincheck.pilot.verdicts import Replay
from traincheck.strictjson import dumps
from traincheck.studykit import machine
from traincheck.studykit.processes import last_words

Progress = Callable[[str], None]

FILES: Final = (
    "qualification.json", "qualification.md", "device.jsonl", "replays", "oracles", "preflight", "numbers", "store",
)  # fmt: skip
"""What a qualification's folder holds."""

_NUMBERS_S: Final = 3600


def qualify(
    case: Path, out: Path, *, python: str = sys.executable, attempts: int = 2, say: Progress | None = None
) -> Qualification:
    """Qualify the case in a folder; what it found is in ``out``, and replays there that are done are not run again.

    Raises TraincheckError when the case is incomplete or an oracle does not run to its end; OSError.
    """
    folder = CaseFolder(case)
    with LocalRunner(out / "device.jsonl", folder.case.devices) as runner:
        return _Work(folder, out, runner, python, attempts, say or (lambda text: None)).all()


class _Work:
    def __init__(
        self, folder: CaseFolder, out: Path, runner: LocalRunner, python: str, attempts: int, say: Progress
    ) -> None:
        self.folder, self.case, self.out, self.say = folder, folder.case, out, say
        self.objects = Objects(out / "store")
        self.setting = Setting(folder, self.objects, runner, "qualification", python)
        self.used = asked(out / "device.jsonl")
        self.judge = CaseJudge(self.setting, out / "oracles", attempts, self.case.name, used=self.used, say=say)
        self.replays: dict[str, dict[str, Replay]] = {}
        self.judged: dict[str, dict[str, Judged]] = {}
        self.checks: list[Check] = []

    def all(self) -> Qualification:
        """Everything, in an order that fails early."""
        initial = self.folder.initial(self.objects)
        self._initial(initial)
        for name in self.folder.oracles():
            self._right("oracles", name, [one for one in self.case.scenarios if name in one.oracles])
        for name in names(self.folder, "alternatives"):
            self._right("alternatives", name, [one for one in self.case.scenarios if one.required])
        for name in names(self.folder, "mutants"):
            self._mutant(name)
        self._incomplete()
        looked = self._preflight(initial)
        numbers = self._numbers()
        self.judge.drop_contents()
        checks = (*self.checks, *numbers.checks)
        found = Qualification(
            case=self.case.name,
            kind=self.case.kind,
            reproduction=self.case.reproduction,
            hashes=self.folder.hashes(self.objects),
            versions=versions(self.case.modules),
            machine=machine.facts(),
            valid=all_hold(checks),
            replays=self.judged,
            checks=checks,
            numbers=numbers.numbers,
            preflight=looked,
            device_seconds=device_seconds(self.out / "device.jsonl"),
        )
        write_whole(
            {
                self.out / "qualification.json": dumps(found.model_dump(mode="json", by_alias=True)),
                self.out / "qualification.md": qualification_page.page(found, self.case),
            }
        )
        return found

    def _initial(self, source: SourceMap) -> None:
        for scenario in self.case.scenarios:
            replay = self._replayed("initial", source, scenario)
            wanted = "incorrect" if scenario.designated else "correct"
            self._check(f"initial source in {scenario.name}", wanted, replay, replay.verdict == wanted)

    def _right(self, kind: Kind, name: str, scenarios: list[Scenario]) -> None:
        source = variant(self.folder, self.objects, kind, name)
        for scenario in scenarios:
            replay = self._replayed(f"{kind}/{name}", source, scenario)
            self._check(f"{kind}/{name} in {scenario.name}", "correct", replay, replay.verdict == "correct")

    def _mutant(self, name: str) -> None:
        """Definitely wrong in one required scenario is enough; designated ones are tried first."""
        source = variant(self.folder, self.objects, "mutants", name)
        required = [one for one in self.case.scenarios if one.required]
        failed = None
        for scenario in sorted(required, key=lambda one: not one.designated):
            replay = self._replayed(f"mutants/{name}", source, scenario)
            if replay.verdict == "incorrect":
                failed = (scenario, replay)
                break
        found = f"in {failed[0].name}: {failed[1].reason}" if failed else "incorrect in none"
        self.checks.append(
            Check(name=f"mutants/{name}", wanted="incorrect in a required scenario", found=found,
                  holds=failed is not None)
        )  # fmt: skip

    def _incomplete(self) -> None:
        """Every record of a right program taken away once: never a pass."""
        scenario = max(self.case.scenarios, key=lambda one: (one.designated, one.ranks))
        whole = self.judge.oracle(scenario.oracles[0], scenario)
        found = verdicts(whole, scenario, lambda records: self.judge.compared(records, scenario))
        complete = found.pop("whole")
        wrong = [f"without {name}: {one.verdict}" for name, one in found.items() if one.verdict != "unknown"]
        self.checks.append(
            Check(
                name="incomplete evidence",
                wanted=f"unknown without any one of {len(found)} records, correct with all",
                found="; ".join(wrong)
                if wrong
                else f"unknown without each of {len(found)}; {complete.verdict} with all",
                holds=not wrong and bool(found) and complete.verdict == "correct",
            )
        )

    def _preflight(self, initial: SourceMap) -> Preflight:
        scenario = min(self.case.scenarios, key=lambda one: (one.designated, -one.ranks))
        self.say(f"preflight in {scenario.name}")
        again = sum(".preflight.plain" in name for name in asked(self.out / "device.jsonl"))
        prefix = f"{self.case.name}.{again + 1}" if again else self.case.name
        found = preflight(self.setting, initial, scenario, self.out / "preflight", prefix)
        for which in ("plain", "watched"):
            shutil.rmtree(self.out / "preflight" / which / "records", ignore_errors=True)
        self.checks += [
            Check(
                name="preflight: TrainCheck preserves the training",
                wanted="all observed state the same bits with and without it",
                found=found.difference or f"{found.records} records of {scenario.ranks} x {scenario.steps} equal",
                holds=found.records_equal,
            ),
            Check(
                name="preflight: the trace is complete",
                wanted="every call began and ended once, nothing lost",
                found="; ".join(found.trace_faults[:3]) or f"{found.trace_records} records, {found.trace_calls} calls",
                holds=not found.trace_faults,
            ),
        ]
        return found

    def _numbers(self) -> Numbers:
        program = self.folder.private / "qualify.py"
        if not program.exists():
            return Numbers()
        self.say("private/qualify.py")
        place, home = self.out / "numbers", self.out / "numbers" / "home"
        shutil.rmtree(place, ignore_errors=True)
        (home / "tmp").mkdir(parents=True)
        times = sum(".numbers" in name for name in asked(self.out / "device.jsonl"))
        done = self.setting.runner.run(
            Job(
                request=f"{self.case.name}.numbers" + (f".again-{times}" if times else ""),
                owner=self.setting.owner, purpose="qualification", devices=self.case.devices,
                command=(self.setting.python, str(program.resolve()), str(self.folder.folder.resolve()),
                         str(place.resolve())),
                source=self.folder.initial(self.objects).hash, cwd=place, env=environment(home),
                timeout_s=_NUMBERS_S, out=place / "out.log", err=place / "err.log",
            )
        )  # fmt: skip
        shutil.rmtree(home, ignore_errors=True)
        try:
            return Numbers.model_validate(json.loads((place / "numbers.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, ValidationError) as error:
            words = last_words(place / "out.log", place / "err.log", most=300)
            found = f"exit code {done.exit_code}, {done.reason}: {' '.join(str(error).split())[:200]}; {words}"
            check = Check(name="private/qualify.py", wanted="numbers.json", found=found, holds=False)
            return Numbers(checks=(check,))

    def _replayed(self, label: str, source: SourceMap, scenario: Scenario) -> Replay:
        self.say(f"{label} in {scenario.name}")
        folder = self.out / "replays" / label / scenario.name
        replay = self.judge.judged(source, scenario, folder)
        self.replays.setdefault(label, {})[scenario.name] = replay
        file = read_verdict(folder / f"attempt-{len(replay.attempts)}")
        held = min(file.against, key=lambda one: one.differences, default=None) if file is not None else None
        self.judged.setdefault(label, {})[scenario.name] = Judged(
            verdict=replay.verdict,
            reason=replay.reason,
            attempts=len(replay.attempts),
            gradient_errors=tuple(held.errors.get("gradients", ())) if held else (),
            parameter_errors=tuple(held.errors.get("parameters", ())) if held else (),
        )
        return replay

    def _check(self, name: str, wanted: str, replay: Replay, holds: bool) -> None:
        self.checks.append(Check(name=name, wanted=wanted, found=f"{replay.verdict}: {replay.reason}", holds=holds))
