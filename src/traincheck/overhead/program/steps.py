"""The clock of a trial's steps: each is timed around the trainer's own step; its evidence is taken after the clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from . import evidence


class Steps:
    """``with steps:`` around one training step, in which ``steps.batch`` and ``steps.loss`` are set.

    Wall and CPU time (all threads of the process) lie between two synchronisations of the device. What is left in
    ``batch`` and ``loss`` is only held until the step is over.
    """

    def __init__(self, on_begin: Callable[[], Any] | None = None) -> None:
        self.done: list[dict[str, Any]] = []
        self.batch: Any = None
        self.loss: Any = None
        self._on_begin = on_begin
        self._cuda = torch.cuda.is_available()

    def __enter__(self) -> Steps:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.end(kind is not None)

    def begin(self) -> None:
        """The step begins now."""
        self.batch = self.loss = None
        if self._on_begin is not None:
            self._on_begin()
        self._synchronize()
        self._wall, self._cpu = time.perf_counter_ns(), time.process_time_ns()

    def end(self, failed: bool = False) -> None:
        """The step is over; its evidence is taken."""
        self._synchronize()
        wall, cpu = time.perf_counter_ns(), time.process_time_ns()
        row: dict[str, Any] = {"step": len(self.done) + 1, "wall_ns": wall - self._wall, "cpu_ns": cpu - self._cpu}
        row["failed"] = failed
        with evidence.unseen():
            if not failed:
                row["loss"] = evidence.loss_bits(self.loss) if self.loss is not None else None
                row["batch"] = evidence.content(self.batch) if self.batch is not None else None
            row["rng"] = evidence.generators()
        self.batch = self.loss = None
        self.done.append(row)

    def _synchronize(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()
