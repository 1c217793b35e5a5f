"""What the tests here share: the programs run on one thread, from a known seed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.transparency.watching import Watched, same


class Same:
    """``same(program)``: run it unwatched, in full and in boundary scope; what it gives must not differ."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __call__(self, program: Any, **options: Any) -> list[Watched]:
        self._count += 1
        folder = self._folder / f"same-{self._count}"
        folder.mkdir()
        return same(program, folder, **options)


@pytest.fixture
def compare(tmp_path: Path) -> Same:
    return Same(tmp_path)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    """A program that compiled earlier in this process would narrow full scope from the start."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
