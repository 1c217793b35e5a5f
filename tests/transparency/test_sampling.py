"""Sampling: what is left out runs without probes, is counted, and the rest is complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import traincheck
from tests.transparency.conftest import Same
from tests.transparency.watching import SCOPES, flat, watching
from traincheck.collect import _probe
from traincheck.trace import open_trace


def train(steps: int, note: Any = lambda step: None) -> Any:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    losses = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        note(step)
        loss = F.cross_entropy(F.relu(model(torch.randn(4, 3))), torch.randint(0, 2, (4,)))
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss)
    return losses, list(model.parameters()), optimizer.state_dict()


@pytest.mark.parametrize(
    ("every", "warmup", "observed"), [(3, 0, {3, 6, 9}), (4, 2, {1, 2, 6}), (1, 0, set(range(1, 10)))]
)
def test_steps_left_out(every: int, warmup: int, observed: set[int], compare: Same) -> None:
    for watched in compare(lambda: train(9), every=every, warmup=warmup):
        marks = watched.marks
        assert marks.filter(marks["kind"] == "step_begin")["value"].to_list() == list(range(1, 10))
        assert marks.filter(marks["kind"] == "step_end")["value"].to_list() == list(range(1, 10))
        assert watched.process()["steps"] == 9
        steps = {step: calls for step, calls in watched.by_step().items() if step}
        # After the update of a step the next one's choice holds already: the scheduler is the next step's.
        inside = {step for step in steps if any("backward" in name for name in steps[step])}
        assert inside == observed
        states = open_trace(watched.run).states
        seen = set(states.filter(states["reason"].cast(str).str.contains("step"))["step"].unique())
        assert seen == observed


@pytest.mark.parametrize("scope", SCOPES)
def test_an_observed_step_is_the_same_with_and_without_sampling(scope: str, tmp_path: Path) -> None:
    found = []
    for every in (1, 4):
        torch.manual_seed(0)
        with watching(tmp_path / str(every), scope=scope, every=every) as watched:
            train(9)
        found.append(watched)
    whole, sampled = (watched.by_step() for watched in found)
    for step in (4, 8):
        missing = whole[step] - sampled[step]
        # With the update the next step's choice holds: what comes between is not seen.
        assert [name for name in missing if "lr_scheduler" not in name] == []
        assert not sampled[step] - whole[step]
    captured = []
    for watched in found:
        captures = open_trace(watched.run).captures
        chosen = captures.filter(
            (captures["step"] == 8)
            & captures["path"].cast(str).is_in(["ret", "args[1]"])
            & ~captures["function"].cast(str).str.contains("lr_scheduler")
        )
        captured.append(chosen.select("path", "type", "dtype", "shape", "requires_grad").rows())
    assert captured[0] == captured[1]


def test_probes_are_off_in_between_and_all_back(tmp_path: Path) -> None:
    on: dict[int, tuple[bool, ...]] = {}

    def note(step: int) -> None:
        on[step] = tuple(
            _probe.is_probe(f)
            for f in (
                F.relu,
                torch.add,
                torch._C._VariableFunctions.add,
                torch.Tensor.add_,
                nn.Linear.forward,
                torch._C._nn.linear,
                nn.TransformerEncoderLayer.__init__.__defaults__[2],
                torch.optim.lr_scheduler.LRScheduler.step,
            )
        )

    with watching(tmp_path / "run", every=3):
        train(7, note)
        import traincheck.collect.session as home

        assert home.current is not None
        placements = home.current._installer._placements
        assert {p.on for p in placements if not p.driver} == {False}
        assert {p.on for p in placements if p.driver} == {True}
    assert {step for step, probed in on.items() if all(probed)} == {3, 6}
    assert {step for step, probed in on.items() if not any(probed)} == {1, 2, 4, 5, 7}


def test_stages_alone(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watching(tmp_path / "run", stages=("evaluation",)) as watched:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            with torch.no_grad(), traincheck.stage("evaluation"):
                F.relu(model(torch.ones(1, 2)))
    calls = watched.calls
    assert {str(stage) for stage in calls["stage"]} == {"evaluation"}
    assert watched.count("functional.relu") == 2
    assert watched.process()["steps"] == 2


def test_what_was_made_in_an_observed_step_works_in_the_others(tmp_path: Path) -> None:
    kept: list[Any] = []

    def note(step: int) -> None:
        kept.append((F.relu, torch.add, nn.Linear(2, 2).forward, torch.ones(1).add_))
        for relu, add, forward, add_ in kept:
            assert relu(torch.tensor([-1.0])).item() == 0
            assert add(torch.ones(1), 1).item() == 2
            assert forward(torch.ones(1, 2)).shape == (1, 2)
            add_(1)

    with watching(tmp_path / "run", every=2) as watched:
        train(4, note)
    assert flat([watched.count("functional.relu", step) for step in (1, 3)])[1:] == [0, 0]
