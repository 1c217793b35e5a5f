"""What observers wrote during one replay, read back: by rank and step, with what is missing and what went wrong."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from traincheck.studykit.strict import Strict


class Entry(Strict):
    """One tensor."""

    sha256: str
    """Of dtype, shape and bytes."""
    dtype: str
    shape: tuple[int, ...]
    square: float
    """Sum of squares."""


class State(Strict):
    """Tensors of the models, and parameters that only the optimizer has, by name."""

    parameters: dict[str, Entry]
    buffers: dict[str, Entry]
    masters: dict[str, Entry] = Field(default_factory=dict)


class Step(Strict):
    """One rank at one outermost optimizer step."""

    schema_: Literal[1] = Field(alias="schema")
    step: int
    """From 1."""
    optimizer: int
    """Optimizers are numbered as they first step, from 1."""
    inputs: tuple[dict[str, str], ...]
    """Of each forward with gradients since the step before: name -> SHA-256."""
    before: State
    gradients: dict[str, Entry | None]
    generators_before: dict[str, str]
    after: State
    optimizer_state: dict[str, Entry]
    generators_after: dict[str, str]


class Raised(Strict):
    """An exception that ended a process."""

    type: str
    text: str
    rank: str | None
    steps: int
    at_ns: int
    workers: dict[str, int | None]
    """Of a launcher: exit codes of ranks that failed."""

    @property
    def by_launcher(self) -> bool:
        """Whether it only says that a worker failed."""
        return self.type.startswith("torch.distributed.elastic.")


class End(Strict):
    """A process ended in order."""

    steps: int
    rank: str | None
    pid: int
    final: State | None


@dataclass
class Process:
    """One process of a replay."""

    folder: Path
    rank: int | None = None
    world_size: int | None = None
    steps: dict[int, Step] = field(default_factory=dict)
    end: End | None = None
    raised: Raised | None = None


@dataclass
class Records:
    """All processes of one replay. ``broken`` says what can't be read, ``faults`` what an observer said of itself."""

    folder: Path
    processes: list[Process] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def ranks(self) -> dict[int, Process]:
        """Processes that trained, by rank. Of two with one rank the first; ``broken`` says so."""
        found: dict[int, Process] = {}
        for process in self.processes:
            if process.rank is not None:
                found.setdefault(process.rank, process)
        return found

    def missing(self, ranks: int, steps: int) -> list[str]:
        """What is not there of ``ranks`` x ``steps`` records and ends; one phrase each."""
        found = []
        trained = self.ranks
        for rank in range(ranks):
            process = trained.get(rank)
            if process is None:
                found.append(f"rank {rank}: no record")
                continue
            if process.world_size != ranks:
                found.append(f"rank {rank}: it ran as one of {process.world_size}, not {ranks}")
            absent = [number for number in range(1, steps + 1) if number not in process.steps]
            if absent:
                found.append(f"rank {rank}: no record of step {', '.join(map(str, absent))}")
            if process.end is None:
                found.append(f"rank {rank}: no end")
        return [*found, *self.broken]

    def extra(self, ranks: int, steps: int) -> list[str]:
        """Ranks and steps that a right training has not; one phrase each."""
        found = [f"rank {rank} of {ranks} (ranks count from 0)" for rank in sorted(self.ranks) if rank >= ranks]
        for rank, process in sorted(self.ranks.items()):
            found += [f"rank {rank}: step {number} of {steps}" for number in sorted(process.steps) if number > steps]
        return found


def load(folder: Path) -> Records:
    """Everything that observers wrote to ``folder``; what can't be read is told in ``broken``, and is as if missing."""
    records = Records(folder)
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_dir():
            records.processes.append(_process(path, records))
    seen: set[int] = set()
    for process in records.processes:
        if process.rank is not None and process.rank in seen:
            records.broken.append(f"rank {process.rank}: two processes trained as it")
        if process.rank is not None:
            seen.add(process.rank)
    return records


def _process(path: Path, records: Records) -> Process:
    process = Process(path)
    for file in sorted(path.glob("*.json")):
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            _take(file.stem, data, process, records)
        except (ValueError, KeyError, TypeError, OSError) as error:
            records.broken.append(f"{path.name}/{file.name} can't be read: {' '.join(str(error).split())[:120]}")
    return process


def _take(kind: str, data: Any, process: Process, records: Records) -> None:
    if kind.startswith("fault-"):
        records.faults.append(str(data["text"]))
    elif kind == "header":
        process.rank, process.world_size = int(data["rank"]), int(data["world_size"])
    elif kind == "exception":
        process.raised = Raised.model_validate(data)
    elif kind == "end":
        process.end = End.model_validate(data)
    elif kind.startswith("step-"):
        step = Step.model_validate(data)
        if f"step-{step.step:06}" != kind:
            raise ValueError(f"it says that it is of step {step.step}")
        process.steps[step.step] = step


class Contents:
    """Contents of tensors of one process, by SHA-256, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, Any] | None = None

    def get(self, name: str) -> Any:
        """The tensor. Raises LookupError when no file has it."""
        if self._held is None:
            self._held = dict(self._read())
        return self._held[name]

    def _read(self) -> Iterator[tuple[str, Any]]:
        import torch

        for path in sorted(self._folder.glob("*.pt")):
            try:
                yield from torch.load(path, map_location="cpu", weights_only=True, mmap=True).items()
            except (RuntimeError, OSError, EOFError, ValueError, pickle.UnpicklingError):
                continue  # a file that was cut off: what it held is missing


def drop_contents(folder: Path) -> None:
    """Delete tensor contents; digests stay."""
    for path in folder.rglob("*.pt*"):
        path.unlink(missing_ok=True)
