"""Entries of ledgers with times of our own choice, for tests of what is computed from them."""

from __future__ import annotations

from collections.abc import Iterable

from traincheck.pilot import events
from traincheck.pilot.ledger import Entry
from traincheck.pilot.plan import Budgets, Draft, Plan, SolverChoice, TrialPlan

MS = 1_000_000


def entries(timed: Iterable[tuple[int, events.Event]]) -> list[Entry]:
    """Events at milliseconds, in their order; what happens at the same time keeps its place."""
    ordered = sorted(timed, key=lambda one: one[0])
    return [
        Entry(
            number=number,
            at_ns=at * MS,
            wall_ns=0,
            kind=events.kind_of(event),
            data=events.data_of(event),
            previous="",
            hash="",
        )
        for number, (at, event) in enumerate(ordered)
    ]


def plan(*names: str) -> Plan:
    """A plan of trials of those names."""
    draft = Draft(
        schema=1,
        name="small",
        cases=("case",),
        solvers=(SolverChoice(name="s", agent="react", model="mockllm/model"),),
        budgets=Budgets(time_s=1, working_time_s=1, tokens=1, device_seconds=1),
    )
    order = tuple(
        TrialPlan(id=name, case="case", arm="control", solver="s", block=0, position=position)
        for position, name in enumerate(names)
    )
    return Plan(
        draft=draft,
        cases={"case": {}},
        folders={},
        package="",
        grader="",
        manual="",
        versions={},
        order=order,
        detectable={},
    )


def opened(of: Plan, trial: str) -> events.Opened:
    """How a trial of that plan begins."""
    return events.Opened(
        trial=trial, plan=of.hash, case="case", arm="control", solver="s", packet="0" * 64, sandbox="local"
    )


def asked(name: str, owner: str = "t", devices: int = 1, purpose: events.Purpose = "solver") -> events.Asked:
    """A request."""
    return events.Asked(request=name, owner=owner, purpose=purpose, devices=devices, command=("true",), source="0" * 64)


def job(
    name: str, at: tuple[int, int, int, int, int], devices: tuple[int, ...] = (0,), owner: str = "t"
) -> list[tuple[int, events.Event]]:
    """A request from asked to released: asked, granted, started, ended, released."""
    return [
        (at[0], asked(name, owner, len(devices))),
        (at[1], events.Granted(request=name, devices=devices)),
        (at[2], events.WorkerStarted(request=name, pid=1)),
        (at[3], events.WorkerEnded(request=name, exit_code=0, reason="exit")),
        (at[4], events.Released(request=name)),
    ]


def answer(name: str, new: int, cached: int, out: int, reasoning: int = 0) -> events.ModelAnswered:
    """A model's answer."""
    tokens = events.Tokens(input=new, cached_input=cached, output=out, reasoning=reasoning)
    return events.ModelAnswered(request=name, model="m", tokens=tokens)
