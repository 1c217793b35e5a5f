"""Batches as a DataLoader hands them out: one digest over everything in them, their size, how many labels count."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from traincheck.collect.digests import Absent, Digest, Digester, combine, digest_bytes
from traincheck.collect.observe.tensors import Sheet

IGNORE_INDEX = -100
"""The label that PyTorch's losses, and everyone's collators, leave out by default."""

LABELS = ("labels", "label", "targets", "target", "label_ids")
DEPTH, LEAVES = 5, 1000


def leaves(batch: Any, path: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """(path, leaf) of tensors, arrays and plain values of nested mappings, sequences and dataclasses, in order."""
    if isinstance(batch, torch.Tensor) or depth == 0:
        yield path, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key), depth - 1)
    elif isinstance(batch, (list, tuple)):
        for index, value in enumerate(batch):
            yield from leaves(value, f"{path}[{index}]", depth - 1)
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        for field in dataclasses.fields(batch):
            yield from leaves(
                getattr(batch, field.name, None), f"{path}.{field.name}" if path else field.name, depth - 1
            )
    elif hasattr(batch, "__dict__") and isinstance(
        vars(batch).get("data"), Mapping
    ):  # transformers' BatchEncoding and its like
        yield from leaves(vars(batch)["data"], path, depth - 1)
    else:
        yield path, batch


def batch_rows(sheet: Sheet, digester: Digester, variable: int, batch: Any) -> None:
    """Attributes ``data``, ``size`` (first dimension of the first tensor), ``tensors``, ``supervised`` (labels that
    are not -100; absent: no labels).
    """
    found = []
    for number, leaf in enumerate(leaves(batch)):
        if number == LEAVES:
            break
        found.append(leaf)
    tensors = [(path, value) for path, value in found if isinstance(value, torch.Tensor)]
    sheet.digest(variable, "data", _digest(digester, found))
    sheet.value(variable, "size", _size(batch, tensors))
    sheet.value(variable, "tensors", len(tensors))
    labels = _labels(tensors)
    if labels is not None:
        sheet.value(variable, "supervised", int((labels != IGNORE_INDEX).sum()))


def _digest(digester: Digester, found: list[tuple[str, Any]]) -> Digest:
    digests = iter(digester.many([value for _, value in found if isinstance(value, torch.Tensor)]))
    parts: list[Digest] = []
    for path, value in found:
        if isinstance(value, torch.Tensor):
            part: Digest = next(digests)
        elif value is None or isinstance(value, (bool, int, float, str, bytes)):
            part = digest_bytes(repr(value).encode())
        elif hasattr(value, "tobytes"):  # numpy arrays and scalars
            part = digest_bytes(value.tobytes())
        else:
            continue  # an object of the program's own: nothing of it is comparable between runs
        if isinstance(part, Absent):
            return part
        parts += [digest_bytes(path.encode()), part]
    return combine("batch", parts) if parts else Absent("no tensors or plain values")


def _size(batch: Any, tensors: list[tuple[str, torch.Tensor]]) -> int:
    for _, tensor in tensors:
        if tensor.dim() > 0:
            return int(tensor.shape[0])
    return len(batch) if isinstance(batch, (list, tuple, dict, str, bytes)) else 1


def _labels(tensors: list[tuple[str, torch.Tensor]]) -> torch.Tensor | None:
    """The labels: a tensor under a usual name, or an integer second element of a pair. Only on the CPU: nothing is
    fetched from a device.
    """
    for path, tensor in tensors:
        if path.rsplit(".", 1)[-1] in LABELS:
            return tensor if tensor.is_cpu and type(tensor) is torch.Tensor else None
    if len(tensors) == 2 and [path for path, _ in tensors] == ["[0]", "[1]"]:
        second = tensors[1][1]
        if second.is_cpu and type(second) is torch.Tensor and not (second.is_floating_point() or second.is_complex()):
            return second
    return None
