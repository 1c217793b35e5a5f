"""A pilot's folder made by hand: ledgers with a clock of ours, so that every figure is known beforehand.

One trial, in seconds after its start (``slow`` is added to everything from 40 on):

    0 opened   1 audit   2 initial source   5 turn begins
   10 model is asked (the task; all clocks begin)   20 it answers: 100 + 50 cached in, 10 out
   21 a device is asked for   24 granted   25 worker   35 worker ends   36 released
   38 the tool answers   40 model is asked   60 it answers: 200 in, 20 out
   61 submission 1 (wrong)   62 model is asked   63 suspended   70 resumed, it answers: 300 in, 30 out
   80 submission 2 (right)   85 model is asked   89 it answers: 10 in, 1 out   90 turn ends   95 audit   96 closed

At submission 2: raw 70 s, queue-adjusted 67 s, adjusted 60 s (+ slow), 710 tokens, 10 device-seconds.
In full: raw 80 s, adjusted 70 s (+ slow), 721 tokens, 10 device-seconds.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traincheck.pilot import events, heads, planning
from traincheck.pilot.events import Event
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger
from traincheck.pilot.plan import Plan, TrialPlan
from traincheck.pilot.sources import Objects, capture
from traincheck.pilot.verdicts import (
    Attempt,
    CaseGrade,
    FirstValid,
    Occurrence,
    Replay,
    TrialGrade,
)

CANARY = "canary-of-the-synthetic-case-0001"
HYPOTHESIS = "I suspect that the averages of unequal batches are averaged again."
RESULT = "rank 0 gradient 1.36, rank 1 gradient 1.00"
SOURCE_DIAGNOSIS = "train.py line 1 divides by the number of batches, not of tokens."
ORIGIN = "The origin is the mean of means; the run shows it."

Story = list[tuple[float, str, Event]]
"""Seconds after the trial's start, ledger (``trial`` or ``device``), event."""


def case_folder(folder: Path, name: str, kind: str = "failure") -> Path:
    """A case that can be planned; it is never run."""
    designated = "designated = true\n" if kind == "failure" else ""
    (folder / "workspace").mkdir(parents=True)
    (folder / "private" / "oracles" / "fixed").mkdir(parents=True)
    (folder / "workspace" / "train.py").write_text("loss = total / batches  # wrong on purpose\n")
    (folder / "private" / "oracles" / "fixed" / "train.py").write_text(f"# {CANARY}\nloss = total / tokens\n")
    (folder / "task.md").write_text(f"Prepare the training of {name} for a long run.\n")
    (folder / "case.toml").write_text(
        f'schema = 1\nname = "{name}"\ntitle = "Synthetic"\nkind = "{kind}"\n'
        'reproduction = "Component: nothing is run, ledgers are written by hand."\n'
        f'devices = 1\nlaunch = ["{{python}}", "train.py"]\ncanary = "{CANARY}"\npublic_names = ["#4242"]\n'
        f'[[scenarios]]\nname = "base"\nabout = "The only one."\nsteps = 1\n{designated}'
        f'[[scenarios]]\nname = "healthy"\nabout = "A control."\nsteps = 1\n'
    )
    return folder


def draft(
    folder: Path,
    cases: list[str],
    *,
    arms: list[str],
    trials: int = 1,
    seed: int = 1,
    more: str = "",
    solvers: Sequence[str] = ("agent",),
) -> Path:
    """A draft's file."""
    chosen = "".join(f'[[solvers]]\nname = "{name}"\nagent = "react"\nmodel = "some/model"\n' for name in solvers)
    path = folder / "draft.toml"
    path.write_text(
        f'schema = 1\nname = "synthetic"\ncases = {json.dumps(cases)}\narms = {json.dumps(arms)}\n'
        f"trials = {trials}\nseed = {seed}\n{more}"
        "[budgets]\ntime_s = 600\nworking_time_s = 600\ntokens = 100000\ndevice_seconds = 100\n" + chosen
    )
    return path


class Clock:
    """A clock that stands where it was put."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


class Synthetic:
    """A pilot's folder, filled by hand."""

    def __init__(
        self,
        folder: Path,
        *,
        arms: list[str],
        trials: int = 1,
        cases: dict[str, str] | None = None,
        solvers: Sequence[str] = ("agent",),
    ) -> None:
        cases = cases or {"broken": "failure"}
        for name, kind in cases.items():
            case_folder(folder / name, name, kind)
        path = draft(folder, list(cases), arms=arms, trials=trials, solvers=solvers)
        self.layout = Layout(folder / "out")
        frozen = planning.freeze(planning.read_draft(path), folder)
        self.plan: Plan = planning.write(frozen, folder, self.layout.plan)
        self.objects = Objects(self.layout.store)
        self._folder = folder
        self._entries: list[tuple[float, int, str, Event]] = []
        self._grades: dict[str, TrialGrade] = {}

    def copied(self, folder: Path) -> Synthetic:
        """The same pilot, written already, in another folder."""
        shutil.copytree(self._folder, folder, dirs_exist_ok=True)
        other = copy.copy(self)
        other.layout, other._folder = Layout(folder / "out"), folder
        other.objects = Objects(other.layout.store)
        return other

    def of(self, arm: str, case: str = "broken") -> list[TrialPlan]:
        """Trials of an arm, by block."""
        return sorted(
            (trial for trial in self.plan.order if (trial.arm, trial.case) == (arm, case)), key=lambda one: one.block
        )

    def text(self, content: str) -> str:
        """An object."""
        return self.objects.put(content.encode())

    def source(self, content: str, **files: str) -> str:
        """A source map of ``train.py`` with that content, and other files."""
        place = self._folder / "scratch"
        place.mkdir(exist_ok=True)
        for old in place.iterdir():
            old.unlink()
        (place / "train.py").write_text(content)
        for name, text in files.items():
            (place / name.replace("_", ".")).write_text(text)
        return self.objects.put_map(capture(place, self.objects))

    @property
    def initial(self) -> str:
        return self.source("loss = total / batches\n")

    @property
    def fixed(self) -> str:
        return self.source("loss = total / tokens\n")

    @property
    def wrong(self) -> str:
        return self.source("loss = total / 2\n")

    def story(self, trial: TrialPlan, slow: float = 0.0, said: str = ORIGIN) -> Story:
        """The trial of this module's docstring."""
        late = slow
        task = f"Prepare the training of {trial.case} for a long run."
        if trial.arm != "control":
            task += "\nA manual of an optional tool lies at docs/tool.md, if you want it."
        request = f"{trial.id}-1"

        def tokens(fresh: int, cached: int, out: int, reasoning: int = 0) -> events.Tokens:
            return events.Tokens(input=fresh, cached_input=cached, output=out, reasoning=reasoning)

        def answered(name: str, used: events.Tokens, words: str) -> Event:
            return events.ModelAnswered(request=name, model="some/model", tokens=used, text=self.text(words))

        def asked(name: str, task: bool = False) -> Event:
            return events.ModelRequested(request=name, turn=1, carries_task=task)

        return [
            (0, "trial", events.Opened(trial=trial.id, plan=self.plan.hash, case=trial.case, arm=trial.arm,
                                       solver=trial.solver, packet=self.initial, sandbox="jail")),
            (1, "trial", events.Audited(when="first", looked_at=3, leaks=())),
            (2, "trial", events.Submitted(number=0, source=self.initial)),
            (5, "trial", events.TurnStarted(turn=1, text=self.text(task))),
            (10, "trial", asked("m1", True)),
            (20, "trial", answered("m1", tokens(100, 50, 10, 4), HYPOTHESIS)),
            (21, "trial", events.ToolCalled(call="c1", tool="run", arguments={"command": "python train.py"}, turn=1)),
            (21, "device", events.Asked(request=request, owner=trial.id, purpose="solver", devices=1,
                                        command=("python", "train.py"), source=self.initial)),
            (24, "device", events.Granted(request=request, devices=(0,))),
            (25, "device", events.WorkerStarted(request=request, pid=1)),
            (35, "device", events.WorkerEnded(request=request, exit_code=0, reason="exit")),
            (36, "device", events.Released(request=request)),
            (38, "trial", events.ToolAnswered(call="c1", text=self.text(RESULT))),
            (40 + late, "trial", asked("m2")),
            (60 + late, "trial", answered("m2", tokens(200, 0, 20), SOURCE_DIAGNOSIS)),
            (61 + late, "trial", events.Submitted(number=1, source=self.wrong, note="first try")),
            (62 + late, "trial", asked("m3")),
            (63 + late, "trial", events.ModelFailed(request="m3", attempt=1, error="reset", transport=True)),
            (63 + late, "trial", events.Suspended(interval=1, reason="transport")),
            (64 + late, "trial", events.ModelRequested(request="m3", turn=1, attempt=2, carries_task=False)),
            (70 + late, "trial", events.Resumed(interval=1)),
            (70 + late, "trial", answered("m3", tokens(300, 0, 30), said)),
            (80 + late, "trial", events.Submitted(number=2, source=self.fixed, note="by tokens")),
            (85 + late, "trial", asked("m4")),
            (89 + late, "trial", answered("m4", tokens(10, 0, 1), "Done.")),
            (90 + late, "trial", events.TurnEnded(turn=1, text=self.text("Done."))),
            (95 + late, "trial", events.Audited(when="last", looked_at=9, leaks=())),
            (96 + late, "trial", events.Closed(reason="finished", final=self.fixed, devices_held=0)),
        ]  # fmt: skip

    def run(self, trial: TrialPlan, story: Story | None = None, *, repaired: bool = True, slow: float = 0.0) -> None:
        """A trial that happened. Not repaired: the second submission is wrong too, as grading says."""
        story = self.story(trial, slow) if story is None else story
        start = 1_000.0 * (trial.position + 1)
        for place, (after, ledger, event) in enumerate(story):
            self._entries.append((start + after, place, trial.id if ledger == "trial" else "device", event))
        submitted = [event for _, _, event in story if isinstance(event, events.Submitted)]
        verdicts = {self.fixed: "correct" if repaired else "incorrect"}
        occurrences = tuple(
            Occurrence.model_validate(
                {"number": one.number, "source": one.source, "verdict": verdicts.get(one.source, "incorrect")}
            )
            for one in submitted
        )
        valid = next((one.number for one in occurrences if one.verdict == "correct"), None)
        first = FirstValid(status="none") if valid is None else FirstValid(status="proven", number=valid)
        self.grade(trial, TrialGrade(
            occurrences=occurrences, distinct=len({one.source for one in occurrences}), first_valid=first,
            final=occurrences[-1],
        ))  # fmt: skip

    def grade(self, trial: TrialPlan, grade: TrialGrade) -> None:
        """What grading says of a trial."""
        self._grades[trial.id] = grade

    def write(self, more: Callable[[Event], Event] = lambda event: event) -> Layout:
        """Write everything; gives where. Grading of a case takes 4 device-seconds."""
        clock, ledgers = Clock(), {}
        self.layout.root.mkdir(parents=True, exist_ok=True)
        ledgers["device"] = Ledger(self.layout.device, clock)
        clock.ns = 1
        _add(ledgers["device"], events.ServiceStarted(devices=2, kind="cpu"))
        for after, _, name, event in sorted(self._entries, key=lambda one: one[:2]):
            if name not in ledgers:
                self.layout.trial(name).mkdir(parents=True)
                ledgers[name] = Ledger(self.layout.ledger(name), clock)
            clock.ns = round(after * 1e9)
            _add(ledgers[name], more(event))
        _add(ledgers["device"], events.ServiceStopped(held=0))
        for name, ledger in ledgers.items():
            ledger.close()
            path = self.layout.device if name == "device" else self.layout.ledger(name)
            heads.record(self.layout.heads, path, ledger.head)
        self._write_grading(clock)
        return self.layout

    def _write_grading(self, clock: Clock) -> None:
        self.layout.grading.mkdir()
        with Ledger(self.layout.grading_device, clock) as ledger:
            _add(ledger, events.ServiceStarted(devices=2, kind="cpu"))
            for case in self.plan.cases:
                grades = {name: grade for name, grade in self._grades.items() if self.plan.trial(name).case == case}
                sources = sorted({one.source for grade in grades.values() for one in grade.occurrences})
                self._grade_case(case, grades, sources)
                steps: list[tuple[float, Event]] = [
                    (0, events.Asked(request=f"g-{case}", owner=f"grading/{case}", purpose="grading", devices=2,
                                     command=("python", "train.py"), source=self.initial)),
                    (0, events.Granted(request=f"g-{case}", devices=(0, 1))),
                    (0, events.WorkerStarted(request=f"g-{case}", pid=1)),
                    (2, events.WorkerEnded(request=f"g-{case}", exit_code=0, reason="exit")),
                    (0, events.Released(request=f"g-{case}")),
                ]  # fmt: skip
                for after, event in steps:
                    clock.ns += round(after * 1e9)
                    _add(ledger, event)
            _add(ledger, events.ServiceStopped(held=0))
        heads.record(self.layout.heads, self.layout.grading_device, ledger.head)

    def _grade_case(self, case: str, grades: dict[str, TrialGrade], sources: list[str]) -> None:
        verdict: dict[str, Any] = {self.fixed: "correct"}
        counts = {"correct": 0, "incorrect": 0, "expected_failure": 0, "unknown": 0}
        held: dict[str, dict[str, Replay]] = {}
        for source in sources:
            for scenario in ("base", "healthy"):
                told = "correct" if scenario == "healthy" else verdict.get(source, "incorrect")
                if source == self.initial and scenario == "base":
                    told = "expected_failure"
                counts[told] += 1
                attempt = Attempt(number=1, verdict=told, reason="by hand", request=f"g-{case}")
                held.setdefault(source, {})[scenario] = Replay(verdict=told, reason="by hand", attempts=(attempt,))
        grade = CaseGrade(plan=self.plan.hash, case=case, valid=True, sources=held, trials=grades, counts=counts)
        self.layout.grades(case).write_text(grade.model_dump_json(by_alias=True))


def _add(ledger: Ledger, event: Event) -> None:
    ledger.add(events.kind_of(event), events.data_of(event))
