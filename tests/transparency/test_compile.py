"""torch.compile: values unchanged, full scope ends with it, and nothing of the compiler is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.transparency.watching import SCOPES, Watched, flat, watching
from traincheck.collect import _probe

pytestmark = pytest.mark.filterwarnings("ignore")

NOTE = "torch.compile: boundary scope from here on"


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Branches, functionals and submodules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.norm(self.first(x)))
        return self.last(torch.add(F.relu(x), 1.0).mul(2.0))


def loss_of(out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(torch.softmax(out, -1), target)


def train(
    forward: Callable[[torch.Tensor], torch.Tensor], model: nn.Module, loss: Any = loss_of, steps: int = 5
) -> Any:
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(forward(torch.randn(6, 4)), torch.randint(0, 2, (6,)))
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(value)
    return flat([losses, list(model.parameters()), torch.get_rng_state()])


def make() -> Net:
    torch.manual_seed(0)
    return Net()


def notes(watched: Watched) -> list[Any]:
    marks = watched.marks
    return [str(text) for text in marks.filter(marks["kind"] == "note")["text"]]


INNER = (
    "fake",
    "dynamo",
    "inductor",
    "functorch",
    "torch.fx",
    "sympy",
    "pytree",
    "proxy",
    "aot",
    "_subclasses",
    "export",
)


def assert_nothing_of_the_compiler(watched: Watched) -> None:
    """By name, and because later steps record the same calls (step 1 compiles, the last is followed by whatever)."""
    names = {str(name) for name in watched.calls["function"]}
    assert not [name for name in names if any(word in name for word in INNER)]
    steps = watched.by_step()
    assert steps[2] == steps[3] == steps[4]
    assert sum(steps[1].values()) <= sum(steps[2].values()) + 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("when", ["before", "while", "run before"])
def test_compiled_models(when: str, scope: str, backend: str, tmp_path: Path) -> None:
    def compiled(model: nn.Module) -> Any:
        return torch.compile(model, backend=backend, fullgraph=True)

    model = make()
    expected = train(compiled(model), model)
    torch._dynamo.reset()
    model = make()
    forward = compiled(model) if when != "while" else None
    if when == "run before":
        twin = make()
        train(compiled(twin), twin)
    with watching(tmp_path / "run", scope=scope) as watched:
        if forward is None:
            assert _probe.is_probe(F.relu) == (scope == "full" and when == "while" and not torch_compiled_before())
            forward = compiled(model)
        assert train(forward, model) == expected
        assert not _probe.is_probe(F.relu)
    assert notes(watched) == ([NOTE] if scope == "full" else [])
    assert_nothing_of_the_compiler(watched)
    for step in range(1, 6):
        assert watched.count("Module.__call__", step) == 1
        assert watched.count("Adam.step", step) == 1
        assert watched.count("Linear.forward", step) == 0


def torch_compiled_before() -> bool:
    """Whether this process has compiled: full scope then never begins."""
    return any(torch._dynamo.eval_frame.cached_backends.values())


@pytest.mark.parametrize("scope", SCOPES)
def test_compiled_functions_and_steps(scope: str, tmp_path: Path) -> None:
    def run() -> Any:
        model = make()
        loss = torch.compile(loss_of, backend="aot_eager")
        found = train(model, model, loss)

        @torch.compile(backend="eager")
        def with_break(x: torch.Tensor) -> torch.Tensor:
            y = F.relu(torch.neg(x))
            if y.sum() > 0:  # a graph break
                y = torch.sin(y)
            return model(y)

        return [*found, *flat(with_break(torch.randn(3, 4)))]

    expected = run()
    torch._dynamo.reset()
    with watching(tmp_path / "run", scope=scope) as watched:
        assert run() == expected
    assert_nothing_of_the_compiler(watched)
    assert watched.count("Adam.step") == 5


@pytest.mark.parametrize("scope", SCOPES)
def test_module_compile_method_and_disable(scope: str, tmp_path: Path) -> None:
    def run() -> Any:
        model = make()
        model.compile(backend="aot_eager")
        model.norm.forward = torch.compiler.disable(model.norm.forward)  # type: ignore[method-assign]
        return train(model, model)

    expected = run()
    torch._dynamo.reset()
    with watching(tmp_path / "run", scope=scope) as watched:
        assert run() == expected
    assert_nothing_of_the_compiler(watched)
    assert notes(watched) == ([NOTE] if scope == "full" else [])


FRESH = """
import sys, torch, torch.nn.functional as F
import traincheck
from traincheck.collect import _probe
def inner(x):
    return F.relu(torch.add(x, 1))
early = torch.compile(inner, backend="eager", fullgraph=True) if "early" in sys.argv else None
if "warm" in sys.argv:
    early(torch.ones(2))
with traincheck.collect(sys.argv[1]):
    print("probed", _probe.is_probe(F.relu))
    F.relu(torch.ones(1))
    late = early or torch.compile(inner, backend="eager", fullgraph=True)
    print("probed", _probe.is_probe(F.relu))
    print(late(torch.tensor([-2.0, 1.0])).tolist(), late(torch.ones(3)).tolist())
"""


@pytest.mark.parametrize(
    ("how", "probed"), [("", ["True", "False"]), ("early", ["False"] * 2), ("warm", ["False"] * 2)]
)
def test_full_scope_ends_when_compiling_begins(how: str, probed: list[str], tmp_path: Path) -> None:
    import subprocess
    import sys

    from tests.collect.running import clean_environment

    words = [sys.executable, "-W", "ignore", "-c", FRESH, str(tmp_path / "run"), *(["early", how] if how else [])]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=clean_environment(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:3] == [f"probed {probed[0]}", f"probed {probed[1]}", "[0.0, 2.0] [2.0, 2.0, 2.0]"]
    watched = Watched(tmp_path / "run")
    assert notes(watched) == [NOTE]
    assert watched.count("functional.relu") == (not how)
