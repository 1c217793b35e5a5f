"""Records of a training as an observer writes them, made from plain tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from traincheck.pilot.grading.observer.tensors import Contents
from traincheck.pilot.grading.records import Records, load

Tensors = Mapping[str, torch.Tensor | None]


def training(
    folder: Path, *, ranks: int = 2, steps: int = 2, change: Mapping[tuple[int, int, str], Any] | None = None
) -> Records:
    """``ranks`` x ``steps`` records. ``change``: (rank, step, category) -> what stands there instead.

    Categories: ``parameters_before``, ``parameters_after``, ``gradients``, ``optimizer_state``, ``buffers_after``,
    ``generators_after``, ``inputs``, ``masters_after``, ``final``.
    """
    change = change or {}
    for rank in range(ranks):
        contents = Contents()
        place = folder / f"{100 + rank}-1"
        place.mkdir(parents=True)

        def held(step: int, category: str, default: Any, rank: int = rank) -> Any:
            return change.get((rank, step, category), default)

        def entries(tensors: Tensors, contents: Contents = contents) -> dict[str, Any]:
            return {name: contents.entry(value) if value is not None else None for name, value in tensors.items()}

        _write(place / "header.json", {"schema": 1, "pid": 1, "rank": rank, "world_size": ranks, "torch": "x"})
        for step in range(1, steps + 1):
            number = 10.0 * rank + step
            weights = {"w": torch.tensor([number, 1.0]), "v": torch.tensor([number])}
            counts = {"count": torch.tensor(step)}
            record = {
                "schema": 1,
                "step": step,
                "optimizer": 1,
                "inputs": held(step, "inputs", [{"x": f"x{rank}{step}", "labels": f"y{rank}{step}"}]),
                "before": {
                    "parameters": entries(held(step, "parameters_before", weights)), "buffers": entries(counts),
                    "masters": {},
                },
                "gradients": entries(held(step, "gradients", {"w": torch.tensor([3.0, 4.0]), "v": None})),
                "generators_before": {"torch": "t"},
                "after": {
                    "parameters": entries(held(step, "parameters_after", {n: t + 1 for n, t in weights.items()})),
                    "buffers": entries(held(step, "buffers_after", counts)),
                    "masters": entries(held(step, "masters_after", {})),
                },
                "optimizer_state": entries(held(step, "optimizer_state", {"w.exp_avg": torch.tensor([1.0, 2.0])})),
                "generators_after": held(step, "generators_after", {"torch": "t", "python": "untouched"}),
            }  # fmt: skip
            contents.save(str(place / f"step-{step:06}.pt"))
            _write(place / f"step-{step:06}.json", record)
        final = {"parameters": entries(held(0, "final", {"w": torch.tensor([number])})), "buffers": {}}
        contents.save(str(place / "end.pt"))
        _write(place / "end.json", {"steps": steps, "rank": str(rank), "pid": 1, "final": final})
    return load(folder)


def raised(folder: Path, rank: int | None, kind: str, text: str, workers: Mapping[str, int] | None = None) -> None:
    """An uncaught exception in a rank (None: in a launcher)."""
    place = folder / (f"{100 + rank}-1" if rank is not None else "99-1")
    place.mkdir(exist_ok=True)
    told = {
        "type": kind, "text": text, "rank": str(rank) if rank is not None else None, "steps": 1, "at_ns": 1,
        "workers": dict(workers or {}),
    }  # fmt: skip
    _write(place / "exception.json", told)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))
