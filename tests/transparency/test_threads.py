"""Generators, coroutines, recursion and threads that call probed functions."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.transparency.conftest import Same
from tests.transparency.watching import flat, watching


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
        threads = dict(calls.select("call", "thread").iter_rows())
        for call, parent in calls.select("call", "parent").iter_rows():
            assert not parent or threads[parent] == threads[call]


def test_what_another_thread_trains_is_not_looked_at(tmp_path: Path) -> None:
    """torch itself crashes when a thread reads ``.grad`` while another thread's backward sets it."""
    ready = threading.Barrier(2)

    def train_wide(seed: int) -> None:
        model = nn.Linear(4, seed + 1)
        optimizer = torch.optim.SGD(model.parameters())
        model(torch.ones(1, 4))
        ready.wait()  # both models are known
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(1, 4)).sum().backward()
            optimizer.step()

    with watching(tmp_path / "run") as watched, ThreadPoolExecutor(2) as pool:
        list(pool.map(train_wide, range(2)))
    thread = dict(watched.calls.select("call", "thread").iter_rows())
    seen = {
        (thread[call], str(name))
        for call, reason, name in watched.trace.states.select("call", "reason", "variable").iter_rows()
        if str(reason) == "backward"
    }
    assert len(seen) == 4, seen  # each thread its weight and its bias
    assert len({where for where, _ in seen}) == 2


def test_a_backward_in_another_thread_than_the_forward_is_looked_at(tmp_path: Path) -> None:
    with watching(tmp_path / "run") as watched, ThreadPoolExecutor(1) as pool:
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(3):
            loss = model(torch.ones(1, 4)).sum()
            pool.submit(loss.backward).result()
            pool.submit(optimizer.step).result()
    states = watched.trace.states
    assert states.filter(states["reason"].cast(str) == "backward").height >= 3 * 2


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
