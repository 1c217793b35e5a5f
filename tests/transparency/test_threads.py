"""Generators, coroutines, recursion and threads that call probed functions."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.transparency.conftest import Same
from tests.transparency.watching import Watched, flat, watching
from traincheck.collect.observe import threads
from traincheck.collect.observe.threads import Trainers, leaves


def test_generators_and_coroutines(compare: Same) -> None:
    def batches(count: int) -> Iterator[torch.Tensor]:
        for number in range(count):
            received = yield torch.full((2,), float(number))
            if received is not None:
                yield torch.add(received, 100)

    async def later(x: torch.Tensor) -> torch.Tensor:
        await asyncio.sleep(0)
        return F.relu(x)

    async def stream(x: torch.Tensor) -> AsyncIterator[torch.Tensor]:
        for _ in range(2):
            x = await later(torch.neg(x))
            yield x

    async def everything(x: torch.Tensor) -> Any:
        first = await asyncio.gather(*(later(x + n) for n in range(3)))
        return first, [item async for item in stream(x)]

    def program() -> Any:
        generator = batches(3)
        taken = [next(generator), generator.send(torch.ones(1)), next(generator)]
        generator.close()
        return taken, [F.relu(b) for b in batches(2)], asyncio.run(everything(torch.randn(2)))

    full, _ = compare(program)
    assert full.count("functional.relu") == 7


def test_recursion(compare: Same) -> None:
    class Tree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
            return self.linear(x) if depth == 0 else torch.add(self(x, depth - 1), self(x, depth - 1))

    def program() -> Any:
        tree = Tree()
        tree(torch.ones(1, 2)).sum().backward()
        error = ""
        try:
            torch.add("no", 1)  # type: ignore[call-overload]
        except TypeError as raised:
            error = str(raised)
        return tree.linear.weight.grad, error

    full, boundary = compare(program)
    assert full.count("Linear.forward") == 8
    for watched in (full, boundary):
        assert watched.count("Module.__call__") == 1  # the outermost


def train(seed: int) -> Any:
    torch.manual_seed(0)  # of the process: the threads draw nothing random from it
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(4, 4)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.rand(p.shape, generator=generator))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.mse_loss(model(torch.rand(3, 4, generator=generator)), torch.zeros(3, 4))
        loss.backward()
        optimizer.step()
    return list(model.parameters())


def test_two_models_in_threads(tmp_path: Path) -> None:
    def both() -> list[Any]:
        with ThreadPoolExecutor(2) as pool:
            return flat(list(pool.map(train, range(2))))

    expected = both()
    for scope in ("full", "boundary"):
        with watching(tmp_path / scope, scope=scope) as watched:
            assert both() == expected
        assert watched.count("Adam.step") == 10
        assert watched.count("Tensor.backward") == 10
        calls = watched.calls
        assert calls.filter(calls["function"].cast(str).str.ends_with("Adam.step"))["thread"].n_unique() == 2
        thread = dict(calls.select("call", "thread").iter_rows())
        for call, parent in calls.select("call", "parent").iter_rows():
            assert not parent or thread[parent] == thread[call]


def seen(watched: Watched, reason: str, attribute: str) -> list[tuple[int, str]]:
    """(thread of the call, name) of every such row."""
    thread = dict(watched.calls.select("call", "thread").iter_rows())
    rows = watched.trace.states.select("call", "reason", "attribute", "variable").iter_rows()
    return [(thread[call], str(name)) for call, why, what, name in rows if (str(why), str(what)) == (reason, attribute)]


@pytest.mark.parametrize("together", [False, True], ids=["models of their own", "parts of one model"])
def test_gradients_that_another_thread_sets_are_not_looked_at(tmp_path: Path, together: bool) -> None:
    """torch itself crashes when one thread reads ``.grad`` while another sets it."""
    ready = threading.Barrier(2)
    models = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 2)])
    if together:
        models.train()  # a model as a whole from here on

    def train_one(index: int) -> None:
        model = models[index]
        optimizer = torch.optim.SGD(model.parameters())
        optimizer.zero_grad()
        ready.wait()  # both train
        for _ in range(300):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()
            for p in model.parameters():  # as much as zero_grad, and nobody is told
                p.grad = None

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with watching(tmp_path / "run") as watched, ThreadPoolExecutor(2) as pool:
            list(pool.map(train_one, range(2)))
    finally:
        sys.setswitchinterval(interval)
    for reason in ("backward", "step"):
        rows = seen(watched, reason, "grad")
        assert len(rows) == 2 * 300 * 2, reason
        assert len(set(rows)) == 4  # each thread its weight and its bias
        assert len({thread for thread, _ in rows}) == 2


def test_what_one_thread_hands_to_another_is_looked_at(tmp_path: Path) -> None:
    """One training, whichever threads its parts run in."""
    with watching(tmp_path / "run") as watched, ThreadPoolExecutor(1) as pool:
        model, forgotten = nn.Linear(4, 4), nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            loss = forgotten(model(torch.ones(1, 4))).sum()
            pool.submit(loss.backward).result()
            pool.submit(optimizer.step).result()
    assert len(seen(watched, "backward", "grad")) == 3 * 4
    assert len(seen(watched, "step", "data")) == 3 * 2 * 4  # what no optimizer has stands still, and that is a fact


def test_alone_until_a_second_thread_trains() -> None:
    trainers = Trainers()
    assert trainers.alone
    trainers.trains()
    trainers.trains()
    assert trainers.alone
    entered = threading.Event()

    def second() -> bool:
        assert not trainers.alone  # a guest among trainers
        entered.set()
        trainers.trains()
        return trainers.alone

    with ThreadPoolExecutor(1) as pool:
        with trainers.looking() as alone:
            found = pool.submit(second)
            assert entered.wait(5)
            assert alone
            assert trainers.alone  # it waits
        assert not found.result()
    assert not trainers.alone  # for good: the second may come back
    with trainers.looking() as alone:
        assert not alone


def test_a_thread_waits_to_train_but_not_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_PATIENCE_S", 0.05)
    trainers = Trainers()
    with trainers.looking(), ThreadPoolExecutor(1) as pool:
        pool.submit(trainers.trains).result()
        assert not trainers.alone


def test_a_backward_inside_a_backward_is_no_other_trainer() -> None:
    trainers = Trainers()
    inside = []

    class Recomputes(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            trainers.trains()
            inside.append(trainers._count)
            return grad

    Recomputes.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert inside == [0]


def test_leaves_of_a_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    other, lone = nn.Linear(3, 2), torch.ones((), requires_grad=True)
    loss = model(torch.ones(1, 3)).sum() + model[0](torch.ones(1, 3)).sum()
    assert leaves([loss, lone]).keys() == {id(p) for p in (*model.parameters(), lone)}
    loss.backward()
    assert leaves([loss]).keys() == {id(p) for p in model.parameters()}  # afterwards too
    assert leaves([other.weight.detach()]) == {}


def test_hooks_in_other_threads_and_contexts(compare: Same) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="default")

    def program() -> Any:
        seen: list[Any] = []
        x = torch.randn(3, requires_grad=True)
        x.register_hook(lambda grad: seen.append((threading.current_thread().name, torch.mul(grad, 2))))
        y = F.relu(x).sum()
        thread = threading.Thread(target=y.backward, name="mine")
        thread.start()
        thread.join()
        context = contextvars.copy_context()
        context.run(variable.set, "inside")
        return seen, x.grad, context.run(lambda: (variable.get(), F.relu(torch.ones(1))))

    compare(program)
