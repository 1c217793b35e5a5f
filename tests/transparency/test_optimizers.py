"""Every optimizer and scheduler: the same values, one recorded step a call, whenever and however it was made."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.transparency.conftest import Same
from tests.transparency.watching import SCOPES, flat, watching

OPTIMIZERS = sorted(
    name
    for name, cls in vars(torch.optim).items()
    if isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
)


def some(names: Any, quick: tuple[str, ...]) -> list[Any]:
    """All, of which only ``quick`` in the quick run."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def make(name: str, parameters: list[Any]) -> torch.optim.Optimizer:
    cls = getattr(torch.optim, name)
    if name == "SparseAdam":
        parameters = parameters[:1]
    if name == "Muon":
        parameters = [p for p in parameters if p.ndim == 2]
    return cls(parameters, lr=0.01) if name != "Adafactor" else cls(parameters)  # type: ignore[no-any-return]


class Model(nn.Module):
    """An embedding (sparse where asked) and a layer."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3, sparse=sparse)
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.embedding(x))


def train(model: nn.Module, optimizer: Any, steps: int, step: Callable[..., Any] | None = None) -> list[torch.Tensor]:
    losses = []
    for _ in range(steps):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.tensor([0, 1, 4])), torch.tensor([0, 1, 1]))
            loss.backward()
            return loss

        losses.append((step or optimizer.step)(closure))
    return losses


@pytest.mark.parametrize("name", some(OPTIMIZERS, ("AdamW", "SGD", "LBFGS", "SparseAdam")))
def test_each_optimizer(name: str, compare: Same) -> None:
    def program() -> Any:
        model = Model(sparse=name == "SparseAdam")
        optimizer = make(name, list(model.parameters()))
        losses = train(model, optimizer, 3)
        return losses, list(model.parameters()), optimizer.state_dict()

    for watched in compare(program):
        for step in (1, 2, 3):
            calls = watched.calls
            steps = calls.filter((calls["step"] == step) & calls["function"].cast(str).str.ends_with(".step"))
            assert steps.height == 1, steps["function"].to_list()
        marks = watched.marks
        assert marks.filter(marks["kind"] == "step_end")["value"].to_list() == [1, 2, 3]


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9**n),
    "MultiplicativeLR": lambda o: torch.optim.lr_scheduler.MultiplicativeLR(o, lambda n: 0.9),
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 1),
    "MultiStepLR": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [1, 2]),
    "ConstantLR": lambda o: torch.optim.lr_scheduler.ConstantLR(o),
    "LinearLR": lambda o: torch.optim.lr_scheduler.LinearLR(o),
    "ExponentialLR": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
    "SequentialLR": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.StepLR(o, 1)], [2]
    ),
    "PolynomialLR": lambda o: torch.optim.lr_scheduler.PolynomialLR(o),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    "ChainedScheduler": lambda o: torch.optim.lr_scheduler.ChainedScheduler(
        [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "CyclicLR": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.001, 0.1, 2),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "CosineAnnealingWarmRestarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "SWALR": lambda o: torch.optim.swa_utils.SWALR(o, 0.05),
}


@pytest.mark.parametrize("name", some(SCHEDULERS, ("StepLR", "SequentialLR", "ReduceLROnPlateau")))
def test_each_scheduler(name: str, compare: Same) -> None:
    def program() -> Any:
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scheduler = SCHEDULERS[name](optimizer)
        rates = []
        for _ in range(4):
            train(model, optimizer, 1)
            scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
            rates.append(scheduler.get_last_lr())
        state = {k: v for k, v in scheduler.state_dict().items() if isinstance(v, (int, float, list))}
        return rates, list(model.parameters()), str(state) if name != "SequentialLR" else ""

    for watched in compare(program):
        assert [watched.count("SGD.step", step) for step in (1, 2, 3, 4)] == [1] * 4
        calls = watched.calls
        tops = calls.filter((calls["parent"] == 0) & (calls["step"] > 0))
        scheduler_steps = [f for f in tops["function"].cast(str) if f.endswith(".step") and "scheduler" in f]
        assert len(scheduler_steps) == 4, scheduler_steps


class Own(torch.optim.Optimizer):
    """A user's optimizer."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"])
        return loss


class Derived(torch.optim.AdamW):
    """One that calls its parent's step."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        return super().step(closure)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("when", ["class and object before", "object while", "class while"])
def test_user_optimizers(when: str, scheduled: bool, scope: str, tmp_path: Path) -> None:
    def program(start: Callable[[], Any]) -> Any:
        torch.manual_seed(0)
        model, cls = Model(), Own
        early = when == "class and object before"
        optimizer = cls(model.parameters()) if early else None
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1) if scheduled and optimizer is not None else None
        with start():
            if when == "class while":

                class Late(torch.optim.SGD):
                    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
                        return super().step(closure)

                optimizer = Late(model.parameters(), 0.1)
            elif optimizer is None:
                optimizer = cls(model.parameters())
            if scheduled and scheduler is None:
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            losses = []
            for _ in range(3):
                losses += train(model, optimizer, 1)
                if scheduler is not None:
                    scheduler.step()
        return flat([losses, list(model.parameters()), optimizer.state_dict()])

    expected = program(contextlib.nullcontext)
    for turn in range(2):
        found: list[Any] = []

        @contextlib.contextmanager
        def start(turn: int = turn, found: list[Any] = found) -> Any:
            with watching(tmp_path / str(turn), scope=scope) as watched:
                found.append(watched)
                yield

        assert program(start) == expected
        marks = found[0].marks
        assert marks.filter(marks["kind"] == "step_end")["value"].to_list() == [1, 2, 3]
        mine = ".<locals>.program.<locals>.Late.step" if when == "class while" else "Own.step"
        calls = found[0].calls
        names = [str(name) for name in calls["function"]]
        assert sum(name.endswith(mine) for name in names) == 3
    assert program(contextlib.nullcontext) == expected


def test_derived_and_copied_optimizers(compare: Same) -> None:
    def program() -> Any:
        model = Model()
        optimizer = Derived(model.parameters())
        losses = train(model, optimizer, 2)
        again = pickle.loads(pickle.dumps(optimizer))
        twin_model, twin = copy.deepcopy((model, optimizer))
        losses += train(twin_model, twin, 1)
        return losses, again.state_dict(), twin.state_dict(), list(model.parameters())

    for watched in compare(program):
        calls = watched.calls
        mine = calls.filter(calls["function"].cast(str).str.ends_with("Derived.step"))
        assert mine.height == 3
        parents = calls.filter(calls["function"].cast(str).str.ends_with("Adam.step"))["parent"].to_list()
        assert parents == mine["call"].to_list()


def test_wrapped_optimizers(compare: Same) -> None:
    class Wrapper:
        """As Accelerate and others have it: holds the optimizer and passes on."""

        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        def __getattr__(self, name: str) -> Any:
            return getattr(self.optimizer, name)

        def step(self, closure: Any = None) -> Any:
            return self.optimizer.step(closure)

    class Inheriting(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.optimizer.zero_grad(set_to_none)

        def step(self, closure: Any = None) -> Any:  # type: ignore[override]
            return self.optimizer.step(closure)

    def program() -> Any:
        model = Model()
        plain = torch.optim.AdamW(model.parameters())
        losses = train(model, Wrapper(plain), 2) + train(model, Inheriting(plain), 2)
        patched = plain.step

        def louder(closure: Any = None) -> Any:
            return patched(closure)

        plain.step = louder  # type: ignore[method-assign]
        losses += train(model, plain, 1)
        return losses, plain.state_dict()

    for watched in compare(program):
        marks = watched.marks
        assert marks.filter(marks["kind"] == "step_end")["value"].to_list() == [1, 2, 3, 4, 5]
        assert watched.count("Adam.step") == 5


def test_step_hooks_and_closures(compare: Same) -> None:
    def program() -> Any:
        model = Model()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
        seen: list[str] = []
        optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
        optimizer.register_step_post_hook(lambda *_: seen.append("post"))
        optimizer.register_state_dict_post_hook(lambda *_: seen.append("state"))
        losses = train(model, optimizer, 3)
        optimizer.state_dict()
        return seen, losses, list(model.parameters())

    for watched in compare(program):
        marks = watched.marks
        assert marks.filter(marks["kind"] == "step_end")["value"].to_list() == [1, 2, 3]
        assert watched.count("Tensor.backward", 2) > 1  # the closure is evaluated within step, which stays one step


def test_scaler_autocast_and_averaging(compare: Same) -> None:
    def program() -> Any:
        model = Model()
        averaged = torch.optim.swa_utils.AveragedModel(model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(torch.tensor([0, 1])), torch.tensor([0, 1]))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            averaged.update_parameters(model)
            losses.append([loss, norm, scaler.get_scale()])
        decorated = torch.autocast("cpu", dtype=torch.bfloat16)(lambda: torch.mm(torch.ones(2, 2), torch.ones(2, 2)))
        return losses, list(averaged.parameters()), str(decorated().dtype)

    for watched in compare(program):
        for step in (1, 2, 3):
            assert watched.count("GradScaler.step", step) == 1
            assert watched.count("SGD.step", step) == 1
            assert watched.count("autocast.__enter__", step) >= 1
