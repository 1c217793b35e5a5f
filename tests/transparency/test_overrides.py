"""Programs that look at the function they are given: __torch_function__, modes, dispatch modes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.transparency.conftest import Same
from tests.transparency.watching import SCOPES, watching

HANDLED: dict[Any, Callable[..., Any]] = {}


class Quantity(torch.Tensor):
    """A subclass with a registry keyed by function, as torch's documentation shows it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HANDLED:
            return HANDLED[func](*args, **(kwargs or {}))
        if func is torch.mul or func is F.silu or func is torch.Tensor.abs or func is F.linear:
            return f"is {func.__name__}"
        return super().__torch_function__(func, types, args, kwargs or {})


FUNCTIONS: dict[str, Any] = {
    "add": lambda x: torch.add(x, 1),
    "relu": lambda x: F.relu(x),
    "gelu": lambda x: F.gelu(x),
    "sub": lambda x: x.sub(1),
    "softmax": lambda x: torch.softmax(x, 0),
    "norm": lambda x: torch.norm(x),
}


def register() -> None:
    for function in (torch.add, F.relu, F.gelu, torch.Tensor.sub, torch.softmax, torch.norm):
        HANDLED[function] = lambda *args, name=function.__name__, **kwargs: f"handled {name}"


@pytest.mark.parametrize("before", [True, False], ids=["registered before", "registered while watched"])
@pytest.mark.parametrize("scope", SCOPES)
def test_registries_and_identity(before: bool, scope: str, tmp_path: Path) -> None:
    HANDLED.clear()
    x = torch.ones(3).as_subclass(Quantity)

    def ask() -> list[Any]:
        named = [call(x) for call in FUNCTIONS.values()]
        identical = [torch.mul(x, 2), F.silu(x), x.abs(), F.linear(x, torch.ones(3, 3))]
        return named + identical + [type(torch.exp(x)).__name__, torch.exp(x).tolist(), (x + 1).tolist()]

    register()
    expected = ask()
    assert expected[:10] == [*(f"handled {name}" for name in FUNCTIONS), "is mul", "is silu", "is abs", "is linear"]
    if not before:
        HANDLED.clear()
    with watching(tmp_path / "run", scope=scope):
        if not before:
            register()
        assert ask() == expected
    assert ask() == expected
    HANDLED.clear()


def test_function_modes_see_the_same_functions(compare: Same) -> None:
    class Log(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(torch.overrides.resolve_name(func) or repr(func))
            if func is torch.rand:
                return torch.zeros(*args)
            return func(*args, **(kwargs or {}))

    def program() -> Any:
        model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.GELU(), nn.Dropout(0.5))
        with Log() as log:
            value = model(torch.rand(2, 2)).sum() + torch.add(torch.ones(1), 1)
            value.backward()
        with torch.device("meta"):
            made = nn.Linear(3, 3)
        return value, log.names, str(made.weight.device)

    compare(program)


def test_dispatch_modes_and_flop_counts(compare: Same) -> None:
    class Log(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    def program() -> Any:
        model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        x = torch.randn(2, 3, 8)
        with FlopCounterMode(model, display=False) as flops:
            model(x).sum().backward()
        with Log() as log:
            model(x).sum().backward()
        counts = {str(k): {str(op): n for op, n in v.items()} for k, v in flops.get_flop_counts().items()}
        return flops.get_total_flops(), counts, log.names

    compare(program)


def test_a_dispatching_subclass(compare: Same) -> None:
    class Doubling(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner: torch.Tensor) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            plain = [a.inner if isinstance(a, cls) else a for a in args]
            result = func(*plain, **(kwargs or {}))
            return cls(result * 2) if isinstance(result, torch.Tensor) else result

    def program() -> Any:
        x = Doubling(torch.ones(2))
        y = torch.relu(torch.add(x, 1))
        return y.inner, type(y).__name__, F.softmax(x, 0).inner

    compare(program)
