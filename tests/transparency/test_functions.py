"""To whoever asks, a probed function is the function: inspect, functools, pickle, copy, isinstance."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.transparency.conftest import Same
from tests.transparency.watching import watching
from traincheck.collect import _probe

IDENTITY = nn.Identity()

FUNCTIONS: dict[str, Callable[[], Any]] = {
    "python function": lambda: F.relu,
    "C function": lambda: torch.add,
    "C function of nn": lambda: F.linear,
    "C method": lambda: torch.Tensor.add_,
    "method": lambda: nn.Linear.forward,
    "aliased method": lambda: nn.Module.__call__,
    "bound method": lambda: nn.Linear.forward.__get__(IDENTITY),
    "optimizer method": lambda: torch.optim.SGD.step,
    "classmethod": lambda: nn.Embedding.from_pretrained,
    "decorated": lambda: torch.optim.Optimizer.zero_grad,
    "class": lambda: nn.Linear,
}


def facts(function: Any) -> dict[str, Any]:
    """All that programs ask of functions."""

    def ask(question: Callable[[Any], Any]) -> Any:
        try:
            return question(function)
        except (TypeError, ValueError, OSError, AttributeError) as error:
            return type(error).__name__

    questions: list[Callable[[Any], Any]] = [
        inspect.signature,
        inspect.getsource,
        inspect.getfile,
        inspect.getdoc,
        inspect.getmodule,
        inspect.isfunction,
        inspect.isbuiltin,
        inspect.ismethod,
        inspect.ismethoddescriptor,
        inspect.isroutine,
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.unwrap,
        inspect.getfullargspec,
        callable,
        repr,
        hash,
        lambda f: f.__name__,
        lambda f: f.__qualname__,
        lambda f: f.__module__,
        lambda f: f.__doc__,
        lambda f: f.__defaults__,
        lambda f: f.__code__,
        lambda f: f.__globals__ is sys.modules[f.__module__].__dict__,
        lambda f: f.__annotations__,
        lambda f: f.__self__ is torch,
        lambda f: f.__text_signature__,
        lambda f: f.__objclass__,
        lambda f: f.__dict__.keys(),
        lambda f: sorted(dir(f)),
        lambda f: isinstance(f, types.FunctionType),
        lambda f: isinstance(f, types.BuiltinFunctionType),
        lambda f: isinstance(f, types.MethodDescriptorType),
        lambda f: isinstance(f, types.MethodType),
        lambda f: f.__class__,
        lambda f: torch.typename(f),
        lambda f: torch.overrides.resolve_name(f),
        lambda f: torch.overrides.is_tensor_method_or_property(f),
    ]
    return {str(number): ask(question) for number, question in enumerate(questions)}


@pytest.fixture
def probed(tmp_path: Path) -> Iterator[None]:
    with watching(tmp_path / "probed"):
        yield


@pytest.mark.parametrize("what", FUNCTIONS)
def test_questions(what: str, tmp_path: Path) -> None:
    expected = facts(FUNCTIONS[what]())
    with watching(tmp_path / "run"):
        got = facts(FUNCTIONS[what]())
        for number, answer in expected.items():
            if number != "12":  # unwrap gives what is below
                assert got[number] == answer, number
    assert facts(FUNCTIONS[what]()) == expected


def test_unwrapping_ends_at_the_original(tmp_path: Path) -> None:
    relu, add, step = F.relu, torch.add, torch.optim.Optimizer.zero_grad
    with watching(tmp_path / "run"):
        assert F.relu.__wrapped__ is relu  # type: ignore[attr-defined]
        assert inspect.unwrap(torch.add) is add
        assert inspect.unwrap(torch.optim.Optimizer.zero_grad) is inspect.unwrap(step)


def test_wraps(tmp_path: Path) -> None:
    with watching(tmp_path / "run") as watched:

        @functools.wraps(F.relu)
        def mine(*args: Any, **kwargs: Any) -> Any:
            return F.relu(*args, **kwargs)

        half = functools.partial(F.leaky_relu, negative_slope=0.5)
        cached = functools.lru_cache(torch.tensor)
        assert (mine.__name__, mine.__module__) == ("relu", "torch.nn.functional")
        assert inspect.signature(mine) == inspect.signature(F.relu)
        assert half(torch.tensor([-2.0])).tolist() == [-1.0]
        assert cached(1) is cached(1)
        assert mine(torch.tensor([-2.0])).tolist() == [0.0]
        assert list(map(torch.neg, [torch.tensor(1)])) == [torch.tensor(-1)]
        assert sorted([2.0, 1.0], key=torch.tensor) == [1.0, 2.0]
    assert watched.count("functional.relu") == 1


class Net(nn.Module):
    """Holds functions, as many models do."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.act = F.gelu
        self.combine = torch.add
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Dropout(0.2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.combine(self.act(self.linear(x)), x)
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("what", [name for name in FUNCTIONS if name != "bound method"])
def test_functions_are_pickled_by_name_and_copied_as_themselves(what: str, probed: None) -> None:
    function = FUNCTIONS[what]()
    if what not in ("aliased method", "classmethod"):  # impossible without probes too
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            data = pickle.dumps(function, protocol)
            assert pickle.loads(data) == FUNCTIONS[what]()
            assert what == "C method" or pickle.loads(data) is FUNCTIONS[what]()
            assert b"traincheck" not in data
    assert copy.copy(function) == function
    assert copy.deepcopy([function])[0] == function


def test_models_and_optimizers_are_copied(compare: Same) -> None:
    def program() -> Any:
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
        twin, twin_optimizer = copy.deepcopy((model, optimizer))
        twin(torch.randn(2, 3)).sum().backward()
        twin_optimizer.step()
        scheduler.step()
        shallow = copy.copy(optimizer)
        return [
            *model.parameters(),
            *twin.parameters(),
            twin_optimizer.state_dict(),
            shallow.state_dict(),
            pickle.loads(pickle.dumps(optimizer)).state_dict(),
            scheduler.state_dict(),
            type(pickle.loads(pickle.dumps(model))).__name__,
        ]

    compare(program)


def test_a_model_made_before_is_saved_and_copied(tmp_path: Path) -> None:
    model = Net()
    loader = torch.utils.data.DataLoader([1, 2], collate_fn=torch.tensor)
    relu, gelu = F.relu, F.gelu
    with watching(tmp_path / "run"):
        assert model.act is F.gelu
        torch.save(model, tmp_path / "model.pt")
        again = torch.load(tmp_path / "model.pt", weights_only=False)
        assert again.act is F.gelu
        assert pickle.loads(pickle.dumps(model)).combine is torch.add
        assert pickle.loads(pickle.dumps(loader)).collate_fn is torch.tensor
        assert copy.deepcopy(model).act is F.gelu
        model.act = F.relu
    assert model.act is relu
    assert again.act is gelu
    assert loader.collate_fn is torch.tensor


LOADING = """
import sys, torch
import tests.transparency.test_functions as home
model = torch.load(sys.argv[1], weights_only=False)
state = torch.load(sys.argv[2], weights_only=True)
fresh = home.Net()
fresh.load_state_dict(state["model"])
optimizer = torch.optim.Adam(fresh.parameters())
optimizer.load_state_dict(state["optimizer"])
assert model.act is torch.nn.functional.gelu and model.combine is torch.add
model.eval(), fresh.eval()
x = torch.ones(2, 3)
assert torch.equal(model(x), fresh(x))
torch.save(model(x).detach(), sys.argv[3])
"""


def test_what_is_saved_loads_without_traincheck(tmp_path: Path) -> None:
    with watching(tmp_path / "run"):
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
        model.eval()
        expected = model(torch.ones(2, 3))
        torch.save(model, tmp_path / "model.pt")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
        buffer = io.BytesIO()
        torch.save(optimizer, buffer)
    assert b"traincheck" not in (tmp_path / "model.pt").read_bytes()
    assert b"_probe" not in buffer.getvalue()
    blocked = "import sys; sys.modules['traincheck'] = None\n"
    code = blocked + LOADING.replace(
        "import tests.transparency.test_functions as home",
        "import types; home = types.ModuleType('tests.transparency.test_functions')\n"
        "sys.modules['tests'] = types.ModuleType('tests'); sys.modules['tests.transparency'] = types.ModuleType('t')\n"
        "sys.modules['tests.transparency.test_functions'] = home\n"
        f"exec({inspect.getsource(Net)!r}, {{'nn': torch.nn, 'F': torch.nn.functional, 'torch': torch,"
        " '__name__': 'tests.transparency.test_functions'}, home.__dict__)",
    )
    files = [str(tmp_path / name) for name in ("model.pt", "state.pt", "out.pt")]
    done = subprocess.run([sys.executable, "-c", code, *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert torch.equal(torch.load(tmp_path / "out.pt"), expected)


def test_classes_are_untouched(probed: None) -> None:
    linear = nn.Linear(2, 2)
    assert type(linear) is nn.Linear
    assert isinstance(linear, nn.Module)
    assert issubclass(torch.optim.AdamW, torch.optim.Optimizer)
    assert isinstance(torch.ones(1), torch.Tensor)
    assert type(torch.optim.SGD(linear.parameters(), 0.1)) is torch.optim.SGD
    assert isinstance(F.relu, types.FunctionType)
    assert isinstance(torch.add, types.BuiltinFunctionType)
    assert nn.Linear.forward.__qualname__ == "Linear.forward"
    assert _probe.is_probe(F.relu)


def test_identity_holds_among_all_bindings(probed: None) -> None:
    assert torch.relu is torch._C._VariableFunctions.relu
    assert F.linear is torch._C._nn.linear
    assert nn.functional.relu is F.relu
    assert inspect.signature(nn.TransformerEncoderLayer.__init__).parameters["activation"].default is F.relu
    layer = nn.TransformerEncoderLayer(8, 2, 8)
    assert layer.activation_relu_or_gelu == 1
    assert nn.TransformerEncoderLayer(8, 2, 8, activation=F.gelu).activation_relu_or_gelu == 2
    assert torch.Tensor.add_ is torch.Tensor.add_
