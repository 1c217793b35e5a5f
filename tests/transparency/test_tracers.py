"""Compilers and tracers that know functions by identity: torch.jit, torch.fx, torch.export."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.transparency.conftest import Same
from tests.transparency.watching import SCOPES, watching
from traincheck.collect import _probe

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")


class Block(nn.Module):
    """Uses C functions, Python functionals, tensor methods and submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.linear(x)))
        y = torch.softmax(F.gelu(y) + torch.add(x, 1.0), dim=-1)
        return self.dropout(y.mul(2.0)).transpose(0, 1).sum(dim=0)


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(F.relu(x) + torch.neg(x).exp(), dim=-1) + F.leaky_relu(x, 0.2)


@torch.jit.ignore
def ignored(x):
    return F.relu(x)


def calls_ignored(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(ignored(x))


def test_script_of_functions_and_modules(compare: Same) -> None:
    def program() -> Any:
        scripted = torch.jit.script(function)
        module = torch.jit.script(Block())
        x = torch.randn(3, 4, requires_grad=True)
        out = scripted(x) + module(x).sum()
        out.sum().backward()
        file = io.BytesIO()
        torch.jit.save(module.eval(), file)  # impossible with an opaque Python call inside
        file.seek(0)
        assert "PythonOp" not in str(scripted.graph)
        return out, x.grad, torch.jit.load(file)(x), str(scripted.graph).count("aten::"), scripted.code

    for watched in compare(program):
        assert watched.count("jit._script.script") == 2


def test_probes_come_off_while_scripting_and_come_back(tmp_path: Path) -> None:
    seen: list[bool] = []

    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def __getattr__(self, name: str) -> Any:
            if name == "forward":
                seen.append(_probe.is_probe(F.relu))
            return super().__getattr__(name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(_probe.is_probe(F.relu))
            return torch.relu(self.inner(x))

    with watching(tmp_path / "run") as watched:
        torch.jit.trace(Asking(), torch.ones(1, 2))
        assert seen
        assert not any(seen)
        assert _probe.is_probe(F.relu)
        with pytest.raises(RuntimeError):
            torch.jit.script(lambda x: [*x, object()])  # what fails comes back too
        assert _probe.is_probe(F.relu)
        F.relu(torch.ones(1))
    assert watched.count("functional.relu") == 1
    assert watched.count("Linear.forward") == 0


@pytest.mark.parametrize("scope", SCOPES)
def test_script_methods_and_classes(scope: str, tmp_path: Path) -> None:
    with watching(tmp_path / "run", scope=scope):

        class Old(torch.jit.ScriptModule):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(2))

            @torch.jit.script_method
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.relu(x * self.weight)

        assert Old()(torch.tensor([-1.0, 1.0])).tolist() == [0.0, 1.0]
        assert torch.jit.script(calls_ignored)(torch.zeros(1)).tolist() == [0.0]


def test_a_scripted_model_trains(compare: Same) -> None:
    def program() -> Any:
        model = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
        optimizer = torch.optim.Adam(model.parameters())
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.mse_loss(model(torch.randn(5, 4)), torch.zeros(5, 1))
            loss.backward()
            optimizer.step()
            losses.append(loss)
        return losses, list(model.parameters())

    for watched in compare(program):
        assert [watched.count("Adam.step", step) for step in (1, 2, 3)] == [1, 1, 1]
        assert [watched.count("Module.__call__", step) for step in (1, 2, 3)] == [1, 1, 1]


def test_trace(compare: Same) -> None:
    def program() -> Any:
        block = Block().eval()
        traced = torch.jit.trace(block, torch.randn(3, 4))
        checked = torch.jit.trace(function, torch.randn(3, 4))
        methods = torch.jit.trace_module(block, {"forward": torch.randn(3, 4)})
        x = torch.randn(3, 4)
        return traced(x), checked(x), methods(x), traced.code, str(checked.graph)

    compare(program)


def test_fx(compare: Same) -> None:
    def program() -> Any:
        graph = torch.fx.symbolic_trace(Block().eval())
        torch.manual_seed(1)
        x = torch.randn(3, 4)
        targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
        assert not any(_probe.is_probe(target) for target in targets)
        node = next(node for node in graph.graph.nodes if node.target == torch.softmax)
        with graph.graph.inserting_after(node):
            new = graph.graph.call_function(torch.relu, (node,))
            node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)
        graph.recompile()
        interpreted = torch.fx.Interpreter(graph).run(x)
        return graph(x), interpreted, graph.code, [torch.typename(target) for target in targets]

    compare(program)


def test_make_fx(compare: Same) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def program() -> Any:
        graph = make_fx(function)(torch.randn(2, 3))
        return graph(torch.randn(2, 3)), graph.code

    compare(program)


def test_export(compare: Same) -> None:
    def program() -> Any:
        exported = torch.export.export(Block().eval(), (torch.randn(3, 4),))
        x = torch.randn(3, 4)
        return exported.module()(x), exported.graph_module.code

    for watched, scope in zip(compare(program), SCOPES, strict=True):
        notes = watched.marks.filter(watched.marks["kind"] == "note")
        assert notes.height == 0, scope
