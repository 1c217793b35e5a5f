"""Autograd and what stands on it: custom functions, hooks, transforms, checkpointing, parametrizations."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.transparency.conftest import Same
from tests.transparency.watching import watching


class Scale(torch.autograd.Function):
    """An old-style custom function."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return torch.mul(x, factor)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        assert torch.is_grad_enabled() is False
        return torch.mul(grad, ctx.factor), None


class Cube(torch.autograd.Function):
    """One with setup_context, for torch.func."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


def test_custom_functions(compare: Same) -> None:
    def program() -> Any:
        x = torch.randn(3, requires_grad=True)
        y = Scale.apply(x, 2.0)
        y.sum().backward()
        apply = Scale.apply
        assert Scale.apply.__self__ is Scale
        assert type(y.grad_fn).__name__ == "ScaleBackward"
        return y, x.grad, apply(x, 3.0), torch.func.vmap(torch.func.grad(lambda v: Cube.apply(v)))(x.detach())

    full, boundary = compare(program)
    assert full.count("Function.apply") >= 3
    assert boundary.count("Function.apply") == 0


def test_apply_says_which_class(tmp_path: Path) -> None:
    with watching(tmp_path / "run") as watched:
        Scale.apply(torch.ones(1, requires_grad=True), 2.0)
        Cube.apply(torch.ones(1))
    calls = watched.calls
    applied = calls.filter(calls["function"].cast(str).str.ends_with("Function.apply"))
    assert applied.height == 2
    from traincheck.trace import open_trace

    captures = open_trace(watched.run).captures
    owners = captures.filter(captures["path"].cast(str) == "args[0]")
    mine = owners.filter(owners["call"].is_in(applied["call"].implode()))
    assert sorted(str(v) for v in mine["value"]) == sorted(
        f"tests.transparency.test_autograd.{name}" for name in ("Cube", "Scale")
    )


def test_hooks(compare: Same) -> None:
    def program() -> Any:
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        seen: list[Any] = []
        model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        model[0].register_forward_hook(lambda m, args, out: torch.add(out, 1))
        model[0].register_forward_hook(lambda m, a, k, out: seen.append(("kwargs", len(k))), with_kwargs=True)
        model[2].register_full_backward_pre_hook(lambda m, grad: seen.append(("pre", grad[0])))
        model[2].register_full_backward_hook(lambda m, gin, gout: seen.append(("full", gin[0], gout[0])))
        model[0].weight.register_hook(lambda grad: torch.mul(grad, 0.5))
        model[0].bias.register_post_accumulate_grad_hook(lambda p: seen.append(("acc", p.grad.clone())))
        handle = nn.modules.module.register_module_forward_hook(lambda m, a, o: seen.append(type(m).__name__))
        x = torch.randn(2, 3, requires_grad=True)
        x.register_hook(lambda grad: seen.append(("thread", threading.current_thread() is threading.main_thread())))
        out = model(x)
        out.register_hook(lambda grad: seen.append(("out", grad)))
        out.retain_grad()
        out.square().sum().backward()
        handle.remove()
        return seen, out.grad, x.grad, [p.grad for p in model.parameters()], out.grad_fn is not None

    compare(program)


def test_parents_of_nested_modules(tmp_path: Path) -> None:
    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + F.gelu(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Inner(), Inner()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    model, x = Outer(), torch.ones(1, 2)
    with watching(tmp_path / "run") as watched:
        model(x)
    calls = watched.calls
    names = {row["call"]: row["function"].rpartition(".")[0].rpartition(".")[2] for row in calls.to_dicts()}
    functions = {row["call"]: row["function"] for row in calls.to_dicts()}
    parents = {row["call"]: row["parent"] for row in calls.to_dicts()}
    (top,) = [call for call, parent in parents.items() if not parent]
    assert functions[top].endswith("Module.__call__")
    linear = [call for call, name in names.items() if name == "Linear"]
    assert len(linear) == 2
    for call in linear:
        chain = []
        while call:
            chain.append(names[call])
            call = parents[call]
        assert chain == ["Linear", "Sequential", "Module"]
    gelu = [call for call, function in functions.items() if function.endswith(".gelu")]
    assert {parents[call] for call in gelu} == {top}


def test_transforms(compare: Same) -> None:
    def program() -> Any:
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        x = torch.randn(4, 3)

        def loss(parameters: Any, sample: torch.Tensor) -> torch.Tensor:
            return F.mse_loss(torch.func.functional_call(model, parameters, (sample,)), torch.zeros(1))

        per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
        return [
            per_sample,
            torch.func.jacrev(lambda v: F.softmax(v, 0))(x[0]),
            torch.func.jacfwd(lambda v: torch.sin(v))(x[0]),
            torch.func.hessian(lambda v: torch.sum(torch.pow(v, 3)))(x[0]),
            torch.func.vjp(torch.sin, x)[0],
            torch.func.jvp(torch.cos, (x,), (x,))[1],
            torch.func.vmap(torch.dot)(x, x),
            torch.vmap(lambda v: F.layer_norm(v, (3,)))(x),
            torch.vmap(lambda v: F.dropout(v, 0.5), randomness="different")(x),
            torch.func.stack_module_state([model, model])[0],
            torch.autograd.functional.jacobian(torch.exp, x[0]),
        ]

    compare(program)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(compare: Same, reentrant: bool) -> None:
    def program() -> Any:
        model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU(), nn.Linear(3, 3))
        x = torch.randn(4, 3, requires_grad=True)
        y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant)
        z = torch.utils.checkpoint.checkpoint_sequential(model, 2, y, use_reentrant=reentrant)
        z.sum().backward()
        return y, z, x.grad, [p.grad for p in model.parameters()]

    for watched in compare(program):
        assert watched.count("checkpoint.checkpoint") == 2  # the last segment of a sequence is run as it is
        # Recomputation is part of the backward that asks for it, not another forward of the program.
        calls = watched.calls
        tops = calls.filter(calls["parent"] == 0)["function"].cast(str)
        assert [name for name in tops if name.endswith("Module.__call__")] == []


def test_parametrizations_and_normed_weights(compare: Same) -> None:
    class Symmetric(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.triu(x) + torch.triu(x, 1).transpose(-1, -2)

    def program() -> Any:
        layers = [nn.Linear(3, 3) for _ in range(4)]
        parametrize.register_parametrization(layers[0], "weight", Symmetric())
        parametrizations.orthogonal(layers[1])
        parametrizations.weight_norm(layers[2])
        parametrizations.spectral_norm(layers[3])
        with pytest.warns(FutureWarning):
            layers.append(nn.utils.weight_norm(nn.Linear(3, 3)))
        model = nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with parametrize.cached():
            model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
        parametrize.remove_parametrizations(layers[0], "weight")
        return model.state_dict(), model(torch.ones(1, 3)), type(layers[1]).__name__

    compare(program)


def test_modes_of_autograd(compare: Same) -> None:
    def program() -> Any:
        x = torch.randn(3, requires_grad=True)
        packed = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
            y = torch.exp(x)
        with torch.inference_mode():
            inferred = torch.add(x, 1).is_inference()
        with torch.no_grad():
            silent = torch.add(x, 1).requires_grad
        with torch.autograd.detect_anomaly(check_nan=False), torch.autograd.set_grad_enabled(True):
            y.sum().backward(retain_graph=True, create_graph=True)
        (second,) = torch.autograd.grad(x.grad.sum(), x) if x.grad is not None else (None,)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype
        return packed, inferred, silent, second, str(cast), x._version, y._version

    compare(program)
