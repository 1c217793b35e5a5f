"""A recorder in memory, and a driver that runs hooks around real functions the way a probe does."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch

from traincheck.collect.observe.observer import Observer
from traincheck.collect.observe.points import observation_points
from traincheck.collect.observe.policy import Policy
from traincheck.events import Moment, Value

MASK = (1 << 64) - 1


class FakeRecorder:
    """Keeps names and rows readable: ``seen`` lists (reason, moment, {(owner, role, name): {attribute: value}})."""

    def __init__(self) -> None:
        self.variables: list[tuple[str, str, str]] = []
        self.attributes: list[str] = []
        self.symbols: list[Any] = []
        self.observations: list[tuple[str, Moment, int]] = []
        self.rows: list[tuple[int, tuple[int, int, int, int, int]]] = []
        self.faults: list[tuple[str, str]] = []
        self.facts: dict[int, dict[str, Any]] = {}

    def variable(self, name: str, role: str, type: str, owner: str, **facts: Any) -> int:
        key = (owner, role, name)
        if key not in self.variables:
            self.variables.append(key)
        number = self.variables.index(key) + 1
        self.facts.setdefault(number, {"type": type, **facts})
        return number

    def attribute(self, name: str) -> int:
        if name not in self.attributes:
            self.attributes.append(name)
        return self.attributes.index(name) + 1

    def symbol(self, value: object) -> int:
        if value not in self.symbols:
            self.symbols.append(value)
        return self.symbols.index(value) + 1

    def encode(self, value: object) -> tuple[int, int, int]:
        if value is None:
            return Value.NONE, 0, 0
        if isinstance(value, bool):
            return Value.BOOL, int(value), 0
        if isinstance(value, int):
            return Value.INT, value & MASK, 0
        if isinstance(value, float):
            return Value.FLOAT, int.from_bytes(bytes(ctypes.c_double(value)), "little"), 0
        return Value.SYMBOL, self.symbol(value), 0

    def observe(self, reason: str, call: int = 0, moment: Moment = Moment.ALONE) -> int:
        self.observations.append((reason, moment, call))
        return len(self.observations)

    def states(self, observation: int, rows: Any) -> None:
        for row in rows:
            assert all(type(field) is int or isinstance(field, int) for field in row)
            assert 0 <= row[3] <= MASK
            assert 0 <= row[4] <= MASK
            self.rows.append((observation, row))

    def fault(self, where: str, error: Any) -> None:
        self.faults.append((where, f"{type(error).__name__}: {error}"))

    @staticmethod
    def view(address: int, nbytes: int, /) -> memoryview:
        return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B").toreadonly()

    # --- reading

    def value(self, kind: int, low: int, high: int) -> Any:
        if kind == Value.SYMBOL:
            return self.symbols[low - 1]
        if kind == Value.FLOAT:
            return ctypes.c_double.from_buffer_copy(low.to_bytes(8, "little")).value
        if kind == Value.DIGEST:
            return ("digest", low | high << 64)
        return {Value.NONE: None, Value.BOOL: bool(low), Value.INT: low, Value.MISSING: "missing"}[Value(kind)]

    @property
    def seen(self) -> list[tuple[str, Moment, dict[tuple[str, str, str], dict[str, Any]]]]:
        found: list[Any] = [(reason, moment, {}) for reason, moment, _ in self.observations]
        for observation, (variable, attribute, kind, low, high) in self.rows:
            values = found[observation - 1][2].setdefault(self.variables[variable - 1], {})
            values[self.attributes[attribute - 1]] = self.value(kind, low, high)
        return found

    def at(self, reason: str, moment: Moment | None = None) -> list[dict[tuple[str, str, str], dict[str, Any]]]:
        return [state for r, m, state in self.seen if r == reason and moment in (None, m)]


def wrap(function: Callable[..., Any], point: Any, counter: list[int]) -> Callable[..., Any]:
    """``function`` with hooks around it."""

    def probe(*args: Any, **kwargs: Any) -> Any:
        counter[0] += 1
        call = counter[0]
        token = point.enter(probe, args, kwargs or None, call) if point.enter else None
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            if point.exit:
                point.exit(probe, token, args, kwargs or None, None, error, call)
            raise
        if point.exit:
            point.exit(probe, token, args, kwargs or None, result, None, call)
        return result

    return probe


@contextlib.contextmanager
def observing(*optimizers: type, policy: Policy | None = None) -> Iterator[tuple[FakeRecorder, Observer]]:
    """Hooks on real torch functions, as the session puts them (outermost module calls only)."""
    recorder = FakeRecorder()
    observer = Observer(recorder, policy)
    points = observation_points(observer, observer.policy)
    counter = [0]
    undo: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, key: str, outermost: bool = False) -> None:
        original = getattr(owner, name)
        inherited = name not in owner.__dict__  # AdamW.step is Adam's until an instance is made
        hooked = wrap(original, points[key], counter)
        if outermost:
            depth = [0]

            def only_outermost(*args: Any, **kwargs: Any) -> Any:
                depth[0] += 1
                try:
                    return (hooked if depth[0] == 1 else original)(*args, **kwargs)
                finally:
                    depth[0] -= 1

            undo.append((owner, name, original))
            setattr(owner, name, only_outermost)
            return
        undo.append((owner, name, None if inherited else original))
        setattr(owner, name, hooked)

    base = torch.optim.Optimizer
    for cls in optimizers or (torch.optim.SGD, torch.optim.AdamW):
        for name in ("__init__", "step"):
            if f"Optimizer:{name}" in points:
                put(cls, name, f"Optimizer:{name}")
    module = torch.nn.Module
    loader = torch.utils.data.dataloader._BaseDataLoaderIter
    for owner, name, key in (
        (base, "zero_grad", "Optimizer:zero_grad"),
        (module, "zero_grad", "Module:zero_grad"),
        (module, "load_state_dict", "Module:load_state_dict"),
        (module, "train", "Module:train"),
        (module, "eval", "Module:eval"),
        (base, "load_state_dict", "Optimizer:load_state_dict"),
        (torch.Tensor, "backward", "torch._tensor.Tensor.backward"),
        (torch.autograd, "backward", "torch.autograd.backward"),
        (loader, "__next__", "DataLoaderIter:__next__"),
        (torch, "load", "torch.serialization.load"),
        (torch.optim.lr_scheduler.StepLR.__mro__[1], "step", "LRScheduler:step"),
    ):
        if key in points:
            put(owner, name, key)
    if "Module:__call__" in points:
        put(module, "__call__", "Module:__call__", outermost=True)
    try:
        yield recorder, observer
    finally:
        for owner, name, original in reversed(undo):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
