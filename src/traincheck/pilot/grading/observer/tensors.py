"""Tensors as digest, size and, where it is wanted later, content."""

from __future__ import annotations

import ctypes
import hashlib
import os
from typing import Any

import torch


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What of the tensor lies on this rank: of FSDP1's flat parameters and of DTensors the local shard."""
    for name in ("_local_shard", "_local_tensor"):
        inner = getattr(tensor, name, None)
        if isinstance(inner, torch.Tensor):
            return inner
    return tensor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Content in row-major order on the CPU; shares memory where it can. Raises ValueError when it was freed."""
    found = local(tensor).detach()
    if found.layout is not torch.strided:
        found = found.to_dense()
    found = found.cpu().resolve_conj().resolve_neg().contiguous()
    end = (found.storage_offset() + found.numel()) * found.element_size()
    if found.numel() and found.untyped_storage().nbytes() < end:
        raise ValueError(f"the memory of a tensor of shape {tuple(found.shape)} was freed")
    return found


def digest(content: torch.Tensor) -> str:
    """SHA-256 of dtype, shape and bytes of what ``plain`` gives."""
    hasher = hashlib.sha256(f"{content.dtype} {tuple(content.shape)} ".encode())
    size = content.numel() * content.element_size()
    if size:
        hasher.update((ctypes.c_char * size).from_address(content.data_ptr()))
    return hasher.hexdigest()


class Contents:
    """Entries of tensors, and their contents, each kept once in the files of a process."""

    def __init__(self) -> None:
        self._kept: set[str] = set()
        self._next: dict[str, torch.Tensor] = {}

    def entry(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Digest, dtype, shape and sum of squares; the content goes to the next file unless an earlier one has it."""
        content = plain(tensor)
        name = digest(content)
        if name not in self._kept:
            self._kept.add(name)
            self._next[name] = content.clone()
        return {
            "sha256": name,
            "dtype": str(content.dtype).removeprefix("torch."),
            "shape": list(content.shape),
            "square": _square(content),
        }

    def number(self, value: float) -> dict[str, Any]:
        """A Python number as a tensor of its own."""
        return self.entry(torch.tensor(float(value), dtype=torch.float64, device="cpu"))

    def save(self, path: str) -> None:
        """Write contents that no earlier file has: SHA-256 -> tensor. Raises OSError, RuntimeError."""
        torch.save(self._next, path + ".next")
        os.replace(path + ".next", path)
        self._next = {}


def _square(content: torch.Tensor) -> float:
    if not content.numel():
        return 0.0
    if not (content.is_floating_point() or content.is_complex()):
        content = content.double()
    wide = torch.complex128 if content.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(content, dtype=wide).item()) ** 2
