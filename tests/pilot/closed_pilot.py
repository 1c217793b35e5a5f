"""A pilot whose trials are closed, written by hand: what grading starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.pilot import fake_training
from traincheck.pilot import events, heads, planning
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import Ledger
from traincheck.pilot.plan import Budgets, Devices, Draft, Plan, SolverChoice
from traincheck.pilot.sources import Objects, capture


def frozen(tmp_path: Path, trials: int = 1) -> tuple[Layout, Plan]:
    """A plan over the fake case in ``tmp_path/case``, with ``trials`` trials of each of two arms."""
    if not (tmp_path / "case").exists():
        fake_training.case(tmp_path / "case")
    layout = Layout(tmp_path / "pilot")
    draft = Draft(
        schema=1, name="tiny", cases=("case",), trials=trials, seed=3, devices=Devices(count=2),
        solvers=(SolverChoice(name="s", agent="scripted", model="mockllm/model", script="never_submits"),),
        budgets=Budgets(time_s=60, working_time_s=60, tokens=1000, device_seconds=60),
    )  # fmt: skip
    return layout, planning.write(planning.freeze(draft, tmp_path), tmp_path, layout.plan)


def source(tmp_path: Path, layout: Layout, behaviour: str) -> str:
    """The source of a program that behaves so, kept in the pilot's store."""
    folder = tmp_path / "sources" / behaviour
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(fake_training.program(behaviour))
    return Objects(layout.store).put_map(capture(folder, Objects(layout.store)))


def trial(tmp_path: Path, layout: Layout, plan: Plan, name: str, behaviours: Sequence[str], close: bool = True) -> None:
    """A trial's ledger: the case's workspace, then one submission of each behaviour."""
    path = layout.ledger(name)
    path.parent.mkdir(parents=True)
    planned = plan.trial(name)
    objects = Objects(layout.store)
    initial = objects.put_map(capture(tmp_path / "case" / "workspace", objects))
    sources = [initial, *(source(tmp_path, layout, behaviour) for behaviour in behaviours)]
    found: list[events.Event] = [
        events.Opened(
            trial=name, plan=plan.hash, case=planned.case, arm=planned.arm, solver=planned.solver, packet=sources[0],
            sandbox="local",
        ),
        *(events.Submitted(number=number, source=one) for number, one in enumerate(sources)),
    ]  # fmt: skip
    if close:
        found.append(events.Closed(reason="finished", final=sources[-1], devices_held=0))
    with Ledger(path) as ledger:
        for event in found:
            ledger.add(events.kind_of(event), events.data_of(event))
    if close:
        heads.record(layout.heads, path, ledger.head)


def closed(tmp_path: Path, submitted: Mapping[int, Sequence[str]]) -> tuple[Layout, Plan]:
    """A pilot with two trials; ``submitted``: place in the order -> behaviours."""
    layout, plan = frozen(tmp_path)
    for planned in plan.order:
        trial(tmp_path, layout, plan, planned.id, submitted.get(planned.position, ()))
    return layout, plan
