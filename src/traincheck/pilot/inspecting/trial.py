"""``python -m traincheck.pilot.inspecting.trial DIR TRIAL SOCKET``: one trial, in a process of its own."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import Model, get_model

from traincheck.errors import OWN_FAILURE, TraincheckError
from traincheck.pilot import activation, events, guard, leaks, packets, places
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.device.client import Client
from traincheck.pilot.inspecting import models, reconcile, scripts
from traincheck.pilot.inspecting.context import Trial
from traincheck.pilot.inspecting.devices import Desk
from traincheck.pilot.inspecting.recorder import Recorder
from traincheck.pilot.inspecting.sandbox import NAME, PlaceSandbox
from traincheck.pilot.inspecting.solvers import driver
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger, read
from traincheck.pilot.plan import WITH_PACKAGE, SolverChoice
from traincheck.pilot.planning import case_folders, load
from traincheck.pilot.running import TOOLS
from traincheck.pilot.sources import Objects, SourceError

_GIVE_BACK_S: Final = 30.0


def hidden(layout: Layout, cases: dict[str, CaseFolder]) -> list[Path]:
    """What must be out of a solver's sight: the cases (a trial has its own copies), this pilot, the project's tests."""
    tests = [parent / "tests" for parent in Path(__file__).resolve().parents if (parent / "pyproject.toml").exists()]
    return [*(case.folder.resolve() for case in cases.values()), layout.root.resolve(), *tests]


def run(layout: Layout, name: str, socket: Path) -> None:
    """Run one trial to its end, whatever happens to its solver. Raises TraincheckError, OSError when it can't be done.

    Its ledger is closed when this returns; after an exception whoever started it closes the ledger.
    """
    plan = load(layout.plan)
    planned = plan.trial(name)
    cases = case_folders(plan, layout.root)
    case = cases[planned.case]
    choice = next(solver for solver in plan.draft.solvers if solver.name == planned.solver)
    objects = Objects(layout.store)
    manual = packets.agents_manual()
    arms = {arm: packets.build(case, arm, manual, objects) for arm in plan.draft.arms}
    packets.check_arms(arms)
    packet = arms[planned.arm]

    root = layout.trial(name) / "place"
    if not layout.ledger(name).exists():  # what an earlier start left that did not come as far as its ledger
        shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    packets.lay_out(root, case, planned.arm, manual, packet, objects)
    tools = [Path(folder) for folder in os.environ.get(TOOLS, "").split(":") if folder]
    away = hidden(layout, cases)
    place = places.choose(plan.draft.sandbox, root, away, tools)
    budgets = plan.draft.budgets
    with _started(place):
        # Whatever can be known to be missing is found before the ledger is begun: such a trial can be run later.
        model = _model(choice, case, place, plan.draft.devices.count)
        desk = Desk(
            name, socket, place, objects, timeout_s=plan.draft.devices.job_timeout_s, budget=budgets.device_seconds
        )
        recorder = Recorder(Ledger(layout.ledger(name)), objects)
        recorder.on_answered = desk.answered
        told = packets.instructions(case, planned.arm, f"{place.folders()['manual']}/manual.md")
        trial = Trial(
            planned=planned, draft=plan.draft, solver=choice, case=case, place=place, objects=objects,
            recorder=recorder, desk=desk, instructions=told, socket=socket,
        )  # fmt: skip
        recorder.add(
            events.Opened(
                trial=name, plan=plan.hash, case=planned.case, arm=planned.arm, solver=planned.solver,
                packet=packet.workspace, sandbox=place.kind,
            )
        )  # fmt: skip
        forbidden = leaks.forbidden(cases.values(), away, os.environ)
        first = leaks.first(place, forbidden, told)
        recorder.add(first)
        recorder.submitted(packet.workspace)
        if first.leaks and place.kind == "jail":
            raise TraincheckError(
                f"trial {name} is not begun, its solver would see what it must not: {first.leaks[0]}",
                f"the first audit in {layout.ledger(name)} has all of it",
                exit_code=OWN_FAILURE,
            )
        log = _solve(trial, model, layout)
        held = _give_back(socket, name)
        final = _finish(trial, layout, forbidden)
    if log.status != "success" and trial.outcome == "interrupted":
        print(f"the solver did not come to its end: {log.error.message if log.error else log.status}", file=sys.stderr)
    for folder in ("tmp", "vartmp", "package", "guard", "manual", "jobs"):  # work, home and workers are evidence
        shutil.rmtree(root / folder, ignore_errors=True)
    recorder.close(trial.outcome, final, held)
    reconcile.write(layout, name)


def _solve(trial: Trial, model: Model, layout: Layout) -> EvalLog:
    """The part that is Inspect's."""
    PlaceSandbox.place = trial.place
    name = trial.planned.id
    # Every hidden word is kept out of the task's metadata too: the log is what a viewer shows.
    task = Task(
        dataset=[Sample(id=name, input=trial.instructions)], solver=driver(trial), sandbox=NAME, name="pilot-trial"
    )
    folder = layout.trial(name) / "inspect"
    (log,) = eval(
        task, model=models.watch(model, trial.recorder, trial.instructions), log_dir=str(folder),
        log_format="eval", display="none", score=False, fail_on_error=False, metadata={"trial": name},
    )  # fmt: skip
    for path in folder.glob("*.eval"):
        path.replace(layout.trial(name) / "trial.eval")
    return log


def _model(choice: SolverChoice, case: CaseFolder, place: places.Place, devices: int) -> Model:
    """The solver's model. Raises TraincheckError when it, or the agent's program, can't be had."""
    if choice.script is not None:
        return scripts.model(choice.script, scripts.material(case, place, devices))
    program = {"claude_code": "claude", "codex_cli": "codex"}.get(choice.agent)
    if program is not None:
        found = subprocess.run(
            [*place.prefix(), "sh", "-c", f"command -v {program}"], capture_output=True, timeout=60, check=False
        )
        if found.returncode != 0:
            raise TraincheckError(
                f"solver {choice.name} needs the program {program!r}, which is not there in a trial's place",
                "traincheck pilot run … --tools FOLDER, where FOLDER/bin or FOLDER/node_modules/.bin has it",
            )
    try:
        return get_model(choice.model, memoize=False)
    except Exception as error:  # whatever a provider raises for an unknown model or a missing key
        raise TraincheckError(
            f"model {choice.model!r} of solver {choice.name} can't be had: {' '.join(str(error).split())[:300]}",
            "name it as Inspect does, and set its provider's key",
        ) from error


def _finish(trial: Trial, layout: Layout, forbidden: leaks.Forbidden) -> str:
    """The last snapshot, what workers attested, evidence of use, the last audit; gives the final source."""
    recorder, root = trial.recorder, trial.place.root
    try:
        final = trial.snapshot()
    except SourceError as error:  # left in a state that is no source; the last submission is what stays
        print(f"the final workspace can't be captured: {error.message}", file=sys.stderr)
        final = recorder.sources[-1]
    workers = list(guard.attestations(root / "workers"))
    for one in workers:
        recorder.add(
            events.Attested(
                worker=one.worker, importable_at_start=one.importable_at_start, imported_at_exit=one.imported_at_exit,
                guard=one.guard,
            )
        )  # fmt: skip
    entries = list(read(layout.ledger(trial.planned.id)))
    calls = [entry for entry in entries if entry.kind == "tool_called"]
    manual = f"{trial.place.folders()['manual']}/manual.md"
    folders = [(name, root / name) for name in ("work", "home", "tmp")]
    has_manual = (root / "manual" / "manual.md").exists()
    package = trial.planned.arm in WITH_PACKAGE
    for event in activation.evidence(calls, workers, folders, manual=manual if has_manual else None, package=package):
        recorder.add(event)
    entries = list(read(layout.ledger(trial.planned.id)))
    recorder.add(leaks.last(trial.place, forbidden, entries, trial.objects, [*recorder.sources, final]))
    return final


def _give_back(socket: Path, name: str) -> int:
    """End what the trial still has running or waiting; gives the devices that it holds after all."""
    client = Client(socket)
    until = time.monotonic() + _GIVE_BACK_S
    while True:
        state = client.state()
        mine = [request for request in (*state.queued, *state.running) if request.startswith(f"{name}/")]
        if not mine or time.monotonic() > until:
            return sum(request in state.running for request in mine)
        for request in mine:
            client.cancel(request)
        time.sleep(0.1)


@contextmanager
def _started(place: places.Place) -> Iterator[None]:
    place.start()
    try:
        yield
    finally:
        place.stop()


def main() -> int:
    """Run the trial that the arguments name; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m traincheck.pilot.inspecting.trial", description=__doc__)
    parser.add_argument("pilot", type=Path, help="folder of the pilot")
    parser.add_argument("trial", help="id of the trial")
    parser.add_argument("socket", type=Path, help="socket of the device service")
    given = parser.parse_args()
    try:
        run(Layout(given.pilot.resolve()), given.trial, given.socket)
    except TraincheckError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"try: {error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
