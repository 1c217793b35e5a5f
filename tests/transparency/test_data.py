"""Data loaders: with and without workers, samplers, collate functions; and what is recorded of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, TensorDataset, WeightedRandomSampler

from tests.transparency.conftest import Same


class Squares(Dataset[Any]):
    """Computes with torch where it is asked, in a worker or not."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(1)
        return {"x": torch.mul(torch.full((3,), float(index)), 2), "noise": noise, "y": index % 2}


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(6):
            yield torch.full((2,), float(index))


class Backwards(Sampler[int]):
    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        yield from reversed(range(self.size))

    def __len__(self) -> int:
        return self.size


def collate(items: list[Any]) -> Any:
    return torch.stack([item["x"] for item in items]), torch.tensor([item["y"] for item in items])


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders(workers: int, compare: Same) -> None:
    def program() -> Any:
        generator = torch.Generator().manual_seed(5)
        seen: list[Any] = []
        options: dict[str, Any] = {"num_workers": workers, "generator": generator}
        if workers:
            options |= {"multiprocessing_context": "fork", "persistent_workers": True}
        loader = DataLoader(Squares(), batch_size=3, shuffle=True, **options)
        for _ in range(2):
            seen += list(loader)
        del loader
        return seen

    for watched in compare(program):
        assert len(list(watched.run.glob("processes/*"))) == 1
        assert watched.count("_BaseDataLoaderIter.__next__") in (6, 8)  # 2 x 3 batches; the ends are calls too


@pytest.mark.parametrize("workers", [0, 1])
def test_samplers_streams_and_collate_functions(workers: int, compare: Same) -> None:
    def program() -> Any:
        context = {"multiprocessing_context": "fork"} if workers else {}
        options: dict[str, Any] = {"num_workers": workers, **context}
        own = list(DataLoader(Squares(), batch_size=2, sampler=Backwards(8), collate_fn=collate, **options))
        streamed = list(DataLoader(Stream(), batch_size=4, **options))
        weighted = list(
            DataLoader(
                TensorDataset(torch.arange(5)),
                sampler=WeightedRandomSampler([1.0] * 5, 5, generator=torch.Generator().manual_seed(1)),
                worker_init_fn=lambda number: torch.manual_seed(number),
                **options,
            )
        )
        unbatched = list(DataLoader(torch.arange(3), batch_size=None, **options))
        first = next(iter(DataLoader(Squares(), batch_size=2, drop_last=True, **options)))
        split = torch.utils.data.random_split(range(5), [2, 3], torch.Generator().manual_seed(2))
        return own, streamed, weighted, unbatched, first, [list(part) for part in split]

    compare(program)


def test_training_with_a_loader_that_is_left_early(compare: Same) -> None:
    def program() -> Any:
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        losses = []
        for epoch in range(2):
            for number, (x, y) in enumerate(DataLoader(Squares(), batch_size=2, shuffle=True, collate_fn=collate)):
                if epoch == 1 and number == 2:
                    break
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss)
        return losses, list(model.parameters())

    for watched in compare(program):
        marks = watched.marks
        assert marks.filter(marks["kind"] == "step_end").height == 6
        for step in range(1, 7):
            assert watched.count("Module.__call__", step) == 1
            assert watched.count("SGD.step", step) == 1
            assert watched.count("Optimizer.zero_grad", step) == 1
