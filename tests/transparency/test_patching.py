"""Programs that replace torch's functions themselves, before, while and after they are watched."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.transparency.watching import watching
from traincheck.collect import _probe

USER = """
import torch
from torch.nn.functional import relu
from torch import add as plus, nn
import torch.nn.functional as F

def work(x):
    return relu(plus(x, 1))

class Layer(nn.Linear):
    def forward(self, x):
        return F.gelu(super().forward(x))
"""


@pytest.fixture
def user_module() -> Iterator[Any]:
    names: list[str] = []

    def make(name: str, source: str = USER) -> types.ModuleType:
        module = types.ModuleType(name)
        sys.modules[name] = module
        names.append(name)
        exec(source, vars(module))
        return module

    yield make
    for name in names:
        del sys.modules[name]


def test_names_taken_before_and_while_watched(user_module: Any, tmp_path: Path) -> None:
    early = user_module("early_user")
    relu, add = F.relu, torch.add
    with watching(tmp_path / "run") as watched:
        late = user_module("late_user")
        for module in (early, late):
            assert module.work(torch.tensor([-3.0, 1.0])).tolist() == [0.0, 2.0]
            assert module.Layer(2, 2)(torch.ones(1, 2)).shape == (1, 2)
    assert watched.count("functional.relu") == 2
    assert watched.count("_VariableFunctionsClass.add") == 2
    assert watched.count("_nn.gelu") == 2
    assert (early.relu, late.relu, early.plus, late.plus) == (relu, relu, add, add)
    assert all(not _probe.is_probe(f) for m in (early, late) for f in (m.relu, m.plus))


@pytest.mark.parametrize("every", [1, 2])
def test_a_patch_made_while_watched_survives(every: int, tmp_path: Path) -> None:
    original_relu, original_add, original_forward, original_step = (
        F.relu,
        torch.add,
        nn.Linear.forward,
        torch.optim.SGD.step,
    )
    try:
        with watching(tmp_path / "run", every=every) as watched:
            inner_relu, inner_add, inner_forward = F.relu, torch.add, nn.Linear.forward

            def patched_relu(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
                return inner_relu(x, inplace) * 2

            def patched_add(*args: Any, **kwargs: Any) -> torch.Tensor:
                return inner_add(*args, **kwargs) + 100

            @functools.wraps(inner_forward)
            def patched_forward(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
                return inner_forward(self, x) * 0 + 5

            F.relu, torch.add = patched_relu, patched_add
            nn.Linear.forward = patched_forward  # type: ignore[method-assign]
            model = nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(4):
                optimizer.zero_grad()
                assert model(torch.ones(1, 1)).item() == 5
                assert F.relu(torch.ones(1)).item() == 2
                assert torch.add(torch.ones(1), 1).item() == 102
                torch.ones(1, requires_grad=True).sum().backward()
                optimizer.step()
        assert (F.relu, torch.add, nn.Linear.forward) == (patched_relu, patched_add, patched_forward)
        assert F.relu is patched_relu
        assert nn.Linear.forward is patched_forward
        assert patched_relu(torch.ones(1)).item() == 2
        assert torch.add(torch.ones(1), 1).item() == 102
        assert inner_relu(torch.tensor([-1.0])).item() == 0
        assert not _probe.is_probe(patched_forward.__wrapped__)  # type: ignore[attr-defined]
        # A patch made in a step that is left out calls the original: seen is what says (functools.wraps) what it wraps.
        assert watched.count("functional.relu") == (4 if every == 1 else 0)
        assert watched.count("Linear.forward") == 4 // every
    finally:
        F.relu, torch.add = original_relu, original_add
        nn.Linear.forward, torch.optim.SGD.step = original_forward, original_step  # type: ignore[method-assign]


def test_mocks_and_context_managed_patches(tmp_path: Path) -> None:
    relu = F.relu
    with watching(tmp_path / "run") as watched:
        with mock.patch("torch.nn.functional.relu", return_value=torch.tensor(7.0)):
            assert F.relu(torch.ones(1)).item() == 7
        assert F.relu(torch.ones(1)).item() == 1
        with mock.patch.object(torch, "add", wraps=torch.add) as spy:
            assert torch.add(torch.ones(1), 1).item() == 2
        assert spy.call_count == 1
        with mock.patch.object(nn.Linear, "forward", autospec=True, side_effect=lambda self, x: x):
            assert nn.Linear(2, 2)(torch.ones(3)).tolist() == [1, 1, 1]
        assert nn.Linear(2, 2)(torch.ones(1, 2)).shape == (1, 2)
    assert F.relu is relu
    assert watched.count("functional.relu") == 1
    assert watched.count("_VariableFunctionsClass.add") == 1
    assert watched.count("Linear.forward") == 1


def test_a_patch_made_before_stays_where_it_is(tmp_path: Path) -> None:
    original = F.silu

    def mine(x: torch.Tensor, inplace: bool = False) -> torch.Tensor:
        return original(x) + 1

    F.silu = mine
    try:
        with watching(tmp_path / "run"):
            assert F.silu(torch.zeros(1)).item() == 1
        assert F.silu is mine
    finally:
        F.silu = original


def test_instances_may_have_their_own(tmp_path: Path) -> None:
    linear = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(linear.parameters(), 0.1)
    with watching(tmp_path / "run") as watched:
        forward = linear.forward
        linear.forward = lambda x: torch.zeros(1) + forward(x) * 0  # type: ignore[method-assign]
        step = optimizer.step
        optimizer.step = lambda closure=None: step(closure)  # type: ignore[method-assign]
        assert linear(torch.ones(1, 2)).tolist() == [[0, 0]]
        linear(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    assert linear(torch.ones(1, 2)).tolist() == [[0, 0]]
    optimizer.step()
    assert watched.count("SGD.step") == 1
    assert watched.count("Linear.forward") == 2


def test_deleting_and_adding_names(tmp_path: Path) -> None:
    with watching(tmp_path / "run"):
        torch.my_own = lambda x: x  # type: ignore[attr-defined]
        silu = F.silu
        del F.silu
        nn.Linear.extra = torch.add  # type: ignore[attr-defined]
    try:
        assert not hasattr(F, "silu")
        assert torch.my_own(1) == 1  # type: ignore[attr-defined]
        assert not _probe.is_probe(vars(nn.Linear)["extra"])
    finally:
        F.silu = silu if not _probe.is_probe(silu) else silu.__wrapped__
        del torch.my_own, nn.Linear.extra  # type: ignore[attr-defined]
