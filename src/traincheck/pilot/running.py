"""Running a plan: trials in their order, each in a process of its own, and an interrupted pilot gone on with.

Nothing here imports Inspect: a trial's process does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal

from traincheck.errors import TraincheckError
from traincheck.pilot import events, heads, places
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.device.client import Client
from traincheck.pilot.device.launching import service
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger, read
from traincheck.pilot.plan import Plan
from traincheck.pilot.planning import case_folders, deviations, load, verify, write
from traincheck.pilot.sources import Objects, SourceError, capture
from traincheck.studykit.processes import last_words

State = Literal["not_begun", "cut_off", "closed"]
Say = Callable[[str, int, int], None]
"""Is told what is done, how many trials are, and of how many."""

GRACE_S: Final = 180
"""A trial's process may need so much longer than its budget of time: to start, to audit, to write its log."""
TOOLS: Final = "TRAINCHECK_PILOT_TOOLS"
"""Variable with folders of programs that solvers need besides, e.g. an agent's CLI; colons between them."""


def state_of(layout: Layout, trial: str) -> State:
    """How far a trial is. Raises LedgerError when its ledger is broken."""
    path = layout.ledger(trial)
    if not path.exists():
        return "not_begun"
    entries = list(read(path))
    return "closed" if entries and entries[-1].kind == "closed" else "cut_off"


@dataclass
class Pilot:
    """A plan being run in one folder."""

    layout: Layout
    plan: Plan
    cases: dict[str, CaseFolder]
    tools: Sequence[Path] = ()
    say: Say = lambda what, done, total: None
    failures: dict[str, str] = field(default_factory=dict)
    """Trial -> why its process failed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _processes: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _stopping: bool = False

    def run(self, only: Sequence[str] = ()) -> dict[str, Any]:
        """Run what has not begun; gives the summary. Raises TraincheckError; interrupted, it ends what runs."""
        chosen = [trial.id for trial in self.plan.order if not only or trial.id in only]
        for name in chosen:
            if state_of(self.layout, name) == "cut_off":
                self._cut_off(name, "the pilot was interrupted while it ran", 0)
        waiting = [name for name in chosen if state_of(self.layout, name) == "not_begun"]
        self._say_what_is_otherwise(waiting)
        devices = self.plan.draft.devices
        with service(
            ledger=self.layout.device, store=self.layout.store, jobs=self.layout.jobs,
            devices=devices.count, kind=devices.kind,
        ) as socket:  # fmt: skip
            self._all(waiting, socket)
        heads.record(self.layout.heads, self.layout.device, _head(self.layout.device))
        return self.summary(chosen)

    def summary(self, chosen: Sequence[str]) -> dict[str, Any]:
        """What became of the trials."""
        rows = []
        for name in chosen:
            planned = self.plan.trial(name)
            entries = list(read(self.layout.ledger(name))) if self.layout.ledger(name).exists() else []
            closed = entries[-1].data["reason"] if entries and entries[-1].kind == "closed" else None
            rows.append(
                {
                    "trial": name,
                    "case": planned.case,
                    "arm": planned.arm,
                    "solver": planned.solver,
                    "closed": closed,
                    "submissions": sum(entry.kind == "submitted" for entry in entries) - 1 if entries else 0,
                    "leaks": [leak for entry in entries if entry.kind == "audited" for leak in entry.data["leaks"]],
                    "sandbox": entries[0].data["sandbox"] if entries else None,
                    "failure": self.failures.get(name),
                }
            )
        return {"plan": self.plan.hash, "folder": str(self.layout.root), "trials": rows}

    def _say_what_is_otherwise(self, waiting: Sequence[str]) -> None:
        """Deviations that are known before the first trial: the order, and a place that isolates nothing."""
        order = [trial.id for trial in self.plan.order]
        last = max((order.index(name) for name in waiting), default=-1)
        skipped = [name for name in order[:last] if name not in waiting and state_of(self.layout, name) == "not_begun"]
        if skipped:
            why = f"{len(skipped)} trials that were to come before were left for later (--only)"
            self._deviates("trials were run out of their order", why, None)
        loud = warning(self.plan) if waiting and self.plan.draft.sandbox == "auto" else None
        if loud:
            self._deviates("trials were run without isolation", loud, None)

    def _deviates(self, what: str, why: str, trial: str | None) -> None:
        with self._lock:
            deviations.record(self.layout.deviations, deviations.Deviation(what=what, why=why, trial=trial))

    # -- trials ------------------------------------------------------------------------------------------------------

    def _all(self, names: Sequence[str], socket: Path) -> None:
        done = 0
        with ThreadPoolExecutor(self.plan.draft.parallel) as pool:
            try:
                for name in pool.map(lambda name: self._one(name, socket), names):
                    done += 1
                    self.say(f"trial {name}", done, len(names))
            except BaseException:
                self._stopping = True
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(self._processes):
                    process.kill()
                raise

    def _one(self, name: str, socket: Path) -> str:
        folder = self.layout.trial(name)
        folder.mkdir(parents=True, exist_ok=True)
        # What Inspect keeps for itself is the trial's own too.
        own = folder / "inspect"
        env = {**os.environ, "XDG_DATA_HOME": str(own), "XDG_CACHE_HOME": str(own), "PYTHONUNBUFFERED": "1"}
        if self.tools:
            env[TOOLS] = ":".join(str(path) for path in self.tools)
        command = [sys.executable, "-m", "traincheck.pilot.inspecting.trial", str(self.layout.root), name, str(socket)]
        late = False
        with (folder / "out.log").open("wb") as out, (folder / "err.log").open("wb") as err:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True
            )
            self._processes.add(process)
            try:
                code = process.wait(self.plan.draft.budgets.time_s + GRACE_S)
            except subprocess.TimeoutExpired:
                late = True
                process.kill()
                code = process.wait()
            finally:
                self._processes.discard(process)
        if self._stopping:
            return name
        state = state_of(self.layout, name)
        if state == "cut_off":
            why = "it went on for too long after its budget" if late else f"its process ended with {code}"
            Client(socket).clear(f"{name}/")  # nobody will fetch what it still runs, and others wait for the devices
            self._cut_off(name, why, 0)
        elif state == "closed":
            self._record_head(name)
        if code:
            self.failures[name] = last_words(folder / "out.log", folder / "err.log") or f"exit code {code}"
        return name

    def _cut_off(self, name: str, why: str, held: int) -> None:
        """Close the ledger of a trial that can't do it any more; it stays what it is and is not run again."""
        planned = self.plan.trial(name)
        case = self.cases[planned.case].case
        objects = Objects(self.layout.store)
        entries = list(read(self.layout.ledger(name)))
        final = next((entry.data["source"] for entry in reversed(entries) if entry.kind == "submitted"), None)
        try:
            left = capture(
                self.layout.trial(name) / "place" / "work", objects, roots=case.roots, ignore=case.ignore
            )  # fmt: skip
            final = objects.put_map(left)
        except (SourceError, OSError):
            final = final or entries[0].data["packet"]
        with Ledger(self.layout.ledger(name)) as ledger:
            event = events.Closed(reason="interrupted", final=final, devices_held=held)
            ledger.add(events.kind_of(event), events.data_of(event))
        self._deviates("a trial was cut off", why, name)
        self._record_head(name)

    def _record_head(self, name: str) -> None:
        with self._lock:
            heads.record(self.layout.heads, self.layout.ledger(name), _head(self.layout.ledger(name)))


def prepare(
    plan_file: Path, folder: Path, *, resume: bool, only: Sequence[str] = (), tools: Sequence[Path] = ()
) -> Pilot:
    """Check everything, and lay the plan into the pilot's folder.

    Raises TraincheckError when something changed since the plan was frozen, when the folder holds another pilot (or
    this one, without ``resume``), for a trial that is not planned, and when Inspect is not installed.
    """
    plan = load(plan_file)
    layout = Layout(folder.resolve())
    verify(plan, plan_file.parent, layout.deviations)
    if layout.plan.exists():
        if not resume:
            raise TraincheckError(f"there is a pilot in {folder} already", "--resume goes on with it; or another -o")
        there = load(layout.plan)
        if there.hash != plan.hash:
            raise TraincheckError(
                f"{folder} holds a pilot of plan {there.hash[:12]}, not of {plan.hash[:12]}",
                "its own plan, or another -o",
            )
    elif resume:
        raise TraincheckError(f"there is no pilot to go on with in {folder}", "leave out --resume")
    elif folder.exists() and any(folder.iterdir()):
        raise TraincheckError(f"{folder} holds something that is no pilot", "another -o")
    unknown = sorted({*only} - {trial.id for trial in plan.order})
    if unknown:
        raise TraincheckError(f"the plan has no trial {', '.join(unknown)}", f"one of {plan_file}'s `order`")
    if find_spec("inspect_ai") is None:
        raise TraincheckError("trials run on Inspect AI, which is not installed", "pip install 'traincheck[pilot]'")
    write(plan, plan_file.parent, layout.plan)
    return Pilot(layout=layout, plan=plan, cases=case_folders(plan, plan_file.parent), tools=tools)


def warning(plan: Plan) -> str | None:
    """What is to be said aloud before the first trial. Raises TraincheckError when the plan's sandbox can't be had."""
    return places.warning(places.choose(plan.draft.sandbox, Path.cwd()))


def _head(path: Path) -> str:
    *_, last = read(path)
    return last.hash
