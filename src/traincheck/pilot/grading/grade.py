"""Grading a case after all its trials have closed: every distinct source in every scenario.

DIR/grading/<case>/<source>/<scenario>/attempt-<n>/   one replay
DIR/grading/<case>/oracles/<oracle>/<scenario>/       the right program's records
DIR/grading/<case>.json                               verdicts
DIR/grading/device.jsonl                              device time
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final, Literal

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.pilot import heads, planning
from traincheck.pilot.cases import Case, CaseFolder
from traincheck.pilot.grading.attempts import CaseJudge
from traincheck.pilot.grading.first_valid import first_valid
from traincheck.pilot.grading.replaying import Setting
from traincheck.pilot.grading.running import LocalRunner, asked
from traincheck.pilot.grading.submissions import of_case, rehashed
from traincheck.pilot.layout import Layout
from traincheck.pilot.plan import Plan
from traincheck.pilot.sources import Objects, SourceMap
from traincheck.pilot.submissions import Submissions
from traincheck.pilot.verdicts import CaseGrade, Occurrence, Replay, TrialGrade, Verdict
from traincheck.strictjson import dumps

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many replays are done, and of how many."""

_VERDICTS: Final[tuple[Verdict, ...]] = ("correct", "incorrect", "expected_failure", "unknown")


def grade(
    root: Path, cases: tuple[str, ...] = (), *, python: str = sys.executable, say: Progress | None = None
) -> tuple[CaseGrade, ...]:
    """Grade cases of the pilot in ``root`` (none named: all of them).

    Can be stopped at any time: replays that are done are not run again. Raises TraincheckError when the plan does not
    hold any more, a trial is not closed, or an oracle can't be replayed; SourceError when a snapshot was changed.
    """
    layout = Layout(root)
    if not layout.plan.exists():
        raise TraincheckError(f"there is no pilot in {root}: it has no plan.json", "traincheck pilot run --help")
    plan = planning.load(layout.plan)
    planning.verify(plan, layout.root, layout.deviations)
    folders = planning.case_folders(plan, layout.root)
    for name in cases:
        if name not in folders:
            raise TraincheckError(f"the plan has no case {name!r}", f"it has {', '.join(folders)}")
    wanted = {name: of_case(layout, plan, name) for name in cases or tuple(folders)}
    layout.grading.mkdir(parents=True, exist_ok=True)
    grades = []
    runner = LocalRunner(layout.grading_device, plan.draft.devices.count)
    try:
        for name, trials in wanted.items():
            work = _CaseWork(layout, plan, folders[name], trials, runner, python, say or (lambda *_: None))
            grades.append(work.grade())
    finally:
        runner.close()
        heads.record(layout.heads, layout.grading_device, runner.head)
    return tuple(grades)


class _CaseWork:
    def __init__(
        self, layout: Layout, plan: Plan, folder: CaseFolder, trials: Mapping[str, Submissions], runner: LocalRunner,
        python: str, say: Progress,
    ) -> None:  # fmt: skip
        self.layout, self.plan, self.case, self.trials, self.say = layout, plan, folder.case, trials, say
        self.runner = runner
        self.objects = Objects(layout.store)
        self.folder = layout.grading / folder.case.name
        setting = Setting(folder, self.objects, runner, "grading", python)
        self.judge = CaseJudge(
            setting, self.folder / "oracles", plan.draft.grading.attempts, folder.case.name,
            used=asked(layout.grading_device), say=self._running,
        )  # fmt: skip
        self.finished, self.total = 0, 0

    def grade(self) -> CaseGrade:
        """All replays, then what they come to."""
        maps = rehashed(self.objects, (source for trial in self.trials.values() for source in trial.distinct))
        initial = self.plan.cases[self.case.name]["workspace"]
        self.total = len(maps) * len(self.case.scenarios)
        replays = self._replays(maps)
        self.judge.drop_contents()
        found = {
            name: {
                one.name: expected(replays[name, one.name], name == initial and one.designated)
                for one in self.case.scenarios
            }
            for name in maps
        }
        result = graded(self.case, self.plan.hash, found, self.trials, initial)
        write_whole({self.layout.grades(self.case.name): dumps(result.model_dump(mode="json", by_alias=True))})
        return result

    def _replays(self, maps: Mapping[str, SourceMap]) -> dict[tuple[str, str], Replay]:
        """As many at a time as devices allow. When something goes wrong, those that run are ended first."""
        found: dict[tuple[str, str], Replay] = {}
        with ThreadPoolExecutor(max(1, self.runner.devices // self.case.devices)) as pool:
            futures = {
                pool.submit(self.judge.judged, source, scenario, self.folder / name / scenario.name): (name, scenario)
                for name, source in maps.items()
                for scenario in self.case.scenarios
            }
            try:
                for future in as_completed(futures):
                    name, scenario = futures[future]
                    found[name, scenario.name] = future.result()
                    self.finished += 1
                    self.say(f"{self.case.name}: {found[name, scenario.name].verdict}", self.finished, self.total)
            except BaseException:
                self.runner.stop()
                pool.shutdown(cancel_futures=True)
                raise
        return found

    def _running(self, text: str) -> None:
        self.say(f"{self.case.name}: {text}", self.finished, self.total)


def expected(replay: Replay, registered: bool) -> Replay:
    """A failure that was registered before any trial is an expected one, in the replay and in its attempts."""
    if not registered or replay.verdict != "incorrect":
        return replay
    attempts = tuple(
        one.model_copy(update={"verdict": "expected_failure"}) if one.verdict == "incorrect" else one
        for one in replay.attempts
    )
    return replay.model_copy(update={"verdict": "expected_failure", "attempts": attempts})


def graded(
    case: Case, plan: str, sources: Mapping[str, Mapping[str, Replay]], trials: Mapping[str, Submissions],
    initial: str,
) -> CaseGrade:  # fmt: skip
    """Verdicts of a case from those of its replays; ``initial`` is the source that every trial began with.

    Raises TraincheckError when a replay is missing.
    """
    for name in sources:
        lacking = [one.name for one in case.scenarios if one.name not in sources[name]]
        if lacking:
            raise TraincheckError(f"source {name[:12]} was not replayed in {', '.join(lacking)}", "grade it again")
    counts = Counter(replay.verdict for replays in sources.values() for replay in replays.values())
    problems = tuple(_problems(case, sources[initial]))
    return CaseGrade(
        plan=plan,
        case=case.name,
        valid=not problems,
        problems=problems,
        sources={name: dict(replays) for name, replays in sources.items()},
        trials={name: _trial(case, sources, trial) for name, trial in trials.items()},
        counts={verdict: counts.get(verdict, 0) for verdict in _VERDICTS},
    )


def over_required(case: Case, replays: Mapping[str, Replay]) -> Literal["correct", "incorrect", "unknown"]:
    """A source over all required scenarios: one definite failure settles it, a pass needs all of them."""
    verdicts = [replays[scenario.name].verdict for scenario in case.scenarios if scenario.required]
    if any(verdict in ("incorrect", "expected_failure") for verdict in verdicts):
        return "incorrect"
    return "correct" if all(verdict == "correct" for verdict in verdicts) else "unknown"


def _trial(case: Case, sources: Mapping[str, Mapping[str, Replay]], trial: Submissions) -> TrialGrade:
    occurrences = tuple(
        Occurrence(number=one.number, source=one.source, verdict=over_required(case, sources[one.source]))
        for one in trial.occurrences
    )
    return TrialGrade(
        occurrences=occurrences,
        distinct=len(trial.distinct),
        first_valid=first_valid(occurrences),
        final=occurrences[-1],
    )


def _problems(case: Case, replays: Mapping[str, Replay]) -> list[str]:
    """Why the case says nothing: the initial source does not do what it was chosen for."""
    found = []
    for scenario in case.scenarios:
        replay = replays[scenario.name]
        wanted = "expected_failure" if scenario.designated else "correct"
        if replay.verdict != wanted and (scenario.designated or scenario.required):
            found.append(
                f"the initial source is {replay.verdict} in scenario {scenario.name}, "
                f"{wanted.replace('_', ' ')} was wanted: {replay.reason}"
            )
    return found
