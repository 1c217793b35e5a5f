"""Running a piece of program with and without collection, and looking at what was collected."""

from __future__ import annotations

import functools
import gc
import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import torch

import traincheck
from traincheck.collect import _probe
from traincheck.trace import Trace, open_trace

SCOPES = ("full", "boundary")


class Watched:
    """A collection, looked at once it is finished."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @functools.cached_property
    def trace(self) -> Trace:
        return open_trace(self.run)

    @functools.cached_property
    def calls(self) -> pl.DataFrame:
        return self.trace.calls

    @functools.cached_property
    def marks(self) -> pl.DataFrame:
        return self.trace.marks

    @functools.cached_property
    def names(self) -> list[tuple[int, str]]:
        """(step, function) of every call."""
        return [(step, str(name)) for step, name in self.calls.select("step", "function").iter_rows()]

    def count(self, ending: str, step: int | None = None) -> int:
        """Calls of the functions whose full name ends so (at a dot), in one step or in all."""
        return sum(
            (name == ending or name.endswith("." + ending)) and step in (None, found) for found, name in self.names
        )

    def by_step(self) -> dict[int, Counter[str]]:
        """Step -> how often each function was called."""
        found: dict[int, Counter[str]] = {}
        for step, name in self.names:
            found.setdefault(step, Counter())[name] += 1
        return found

    def process(self) -> dict[str, Any]:
        (path,) = self.run.glob("processes/*/process.json")
        return dict(json.loads(path.read_text()))


@contextmanager
def watching(run: Path, **plan: Any) -> Iterator[Watched]:
    """Collect into ``run``; afterwards nothing went wrong and nothing was lost."""
    found = Watched(run)
    with traincheck.collect(run, **plan):
        yield found
    process = found.process()
    assert process["faults"] == [], process["faults"]
    assert process["dropped"] == 0
    assert [str(lack) for lack in found.trace.lacks] == []


def flat(value: Any) -> list[Any]:
    """The tensors and plain values in nested containers, as things that can be compared with ``==``."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            value = value.to_dense()
        plain = value.detach()
        bits = plain.contiguous().reshape(-1).view(torch.uint8) if plain.numel() else plain.to(torch.uint8)
        return [str(value.dtype), tuple(value.shape), value.requires_grad, bits.tolist()]
    if isinstance(value, dict):
        return [item for key, inner in value.items() for item in (str(key), *flat(inner))]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *(item for inner in value for item in flat(inner))]
    return [value]


def same(program: Callable[[], Any], tmp_path: Path, scopes: tuple[str, ...] = SCOPES, **plan: Any) -> list[Watched]:
    """Run ``program`` unwatched and in each scope from the same seed; what it gives must be the same, bit by bit."""

    def seeded() -> list[Any]:
        torch.manual_seed(0)
        result = flat(program())
        return [*result, torch.get_rng_state().tolist()]

    expected = seeded()
    found = []
    for scope in scopes:
        with watching(tmp_path / scope, scope=scope, **plan) as watched:
            got = seeded()
        assert got == expected, f"scope {scope}"
        found.append(watched)
    assert seeded() == expected, "after the collections"
    return found


# --- everything as before ---------------------------------------------------------------------------------------------


def everything(prefixes: tuple[str, ...] = ("",)) -> dict[tuple[str, str], Any]:
    """(module or class, attribute) -> what stands there, of all loaded modules and all classes."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name.startswith(prefixes):
            for attribute, value in list(vars(module).items()):
                found[name, attribute] = value
    for cls in _classes():
        where = f"{cls.__module__}.{cls.__qualname__}#{id(cls)}"
        if where.startswith(prefixes):
            found[where, ""] = cls
            for attribute, value in list(type.__dict__["__dict__"].__get__(cls).items()):
                found[where, attribute] = value
    return found


def _classes() -> list[type]:
    seen: dict[int, type] = {}  # by identity: a class may have a hash of its own
    waiting: list[type] = [object]
    while waiting:
        cls = waiting.pop()
        if id(cls) not in seen:
            seen[id(cls)] = cls
            waiting.extend(type.__subclasses__(cls))
    return [seen[key] for key in sorted(seen)]


def differences(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> list[tuple[str, str]]:
    """Where something else stands now, or nothing, or something for the first time (in what there was before)."""
    owners = {owner for owner, _ in before}
    changed = [key for key, value in before.items() if key not in after or after[key] is not value]
    new = [key for key in after if key not in before and key[0] in owners]
    return sorted(changed + new)


def probes_alive() -> list[Any]:
    """Probes that something still refers to."""
    gc.collect()
    return [obj for obj in gc.get_objects() if _probe.is_probe(obj)]
