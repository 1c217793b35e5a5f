"""Evidence of what training was, as bytes: content of tensors, loss bits, generators, data, and object identity.

Made of SHA-256 over the very bytes, with no code of TrainCheck's, so that neither can hide a fault of the other. It
only reads: no random draw, no autograd node, no version bump, no communication.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def unseen() -> Iterator[None]:
    """Taking evidence is no training: a recorder of TrainCheck's in this process looks away meanwhile."""
    probe = sys.modules.get("traincheck.collect._probe")
    if probe is None:
        yield
        return
    probe.mute()
    try:
        yield
    finally:
        probe.unmute()


def sha256(data: Any) -> str:
    """64 hex digits of a bytes-like object."""
    return hashlib.sha256(data).hexdigest()


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the bytes: of a DTensor this rank's shard, no communication."""
    found = getattr(tensor, "_local_tensor", None)
    return found if isinstance(found, torch.Tensor) else tensor


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Content in row-major order, whatever layout and device; 0-dim and empty tensors as any other."""
    with torch.no_grad():
        plain = local(tensor).detach()
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        plain = plain.cpu().resolve_conj().resolve_neg().contiguous()
        size = plain.numel() * plain.element_size()
        return ctypes.string_at(plain.data_ptr(), size) if size else b""


def tensor(value: torch.Tensor) -> dict[str, Any]:
    """Digest and facts of one tensor; of a DTensor also its global shape, placements and mesh."""
    inner = local(value)
    found: dict[str, Any] = {
        "sha256": sha256(bytes_of(value)),
        "dtype": str(inner.dtype),
        "shape": list(inner.shape),
        "device": str(inner.device),
    }
    if inner is not value:
        mesh: Any = getattr(value, "device_mesh")  # noqa: B009  (a DTensor's)
        found["dtensor"] = {
            "global_shape": list(value.shape),
            "local_shape": list(inner.shape),
            "placements": [str(placement) for placement in getattr(value, "placements")],  # noqa: B009
            "mesh": bytes_list(mesh.mesh),
            "mesh_shape": list(mesh.mesh.shape),
            "mesh_dim_names": list(mesh.mesh_dim_names or ()),
            "coordinate": mesh.get_coordinate(),
        }
    return found


def bytes_list(values: torch.Tensor) -> list[int]:
    """An integer tensor as a flat list."""
    return [int(value) for value in values.flatten().tolist()]


def models(named: dict[str, Any]) -> dict[str, Any]:
    """Parameters, gradients and buffers of all models."""
    found: dict[str, Any] = {"parameters": {}, "gradients": {}, "buffers": {}}
    for owner, model in named.items():
        for name, parameter in model.named_parameters(remove_duplicate=False):
            found["parameters"][f"{owner}.{name}"] = tensor(parameter)
            grad = parameter.grad
            found["gradients"][f"{owner}.{name}"] = tensor(grad) if grad is not None else None
        for name, buffer in model.named_buffers(remove_duplicate=False):
            found["buffers"][f"{owner}.{name}"] = tensor(buffer)
    return found


def optimizers(named: dict[str, Any]) -> dict[str, Any]:
    """State and hyperparameters of all optimizers, by position of the parameter."""
    found: dict[str, Any] = {}
    for owner, optimizer in named.items():
        position = 0
        for number, group in enumerate(optimizer.param_groups):
            for key, value in sorted(group.items()):
                if key != "params":
                    found[f"{owner}.group.{number}.{key}"] = content(value)
            for parameter in group["params"]:
                for key, value in optimizer.state.get(parameter, {}).items():
                    found[f"{owner}.state.{position}.{key}"] = content(value)
                position += 1
    return found


def identities(named: dict[str, Any]) -> dict[str, list[int]]:
    """Of each parameter the object and its storage, as numbers: comparable within this process only."""
    return {
        f"{owner}.{name}": [id(parameter), local(parameter).untyped_storage().data_ptr()]
        for owner, model in named.items()
        for name, parameter in model.named_parameters(remove_duplicate=False)
    }


def generators() -> dict[str, str]:
    """Digest of the state of every generator that training may draw from."""
    found = {
        "torch": sha256(bytes_of(torch.get_rng_state())),
        "python": sha256(repr(random.getstate()).encode()),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            found[f"cuda:{index}"] = sha256(bytes_of(torch.cuda.get_rng_state(index)))
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        found["numpy"] = sha256(name.encode() + keys.tobytes() + repr(rest).encode())
    return found


def content(value: Any) -> str:
    """Digest of a batch or another value: tensors by dtype, shape and bytes, containers by their elements in order.

    NaN and infinities by their bits, integers of any size, keys of any kind; other objects by their type alone.
    """
    hasher = hashlib.sha256()
    _feed(hasher, value)
    return hasher.hexdigest()


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        inner = local(value)
        hasher.update(f"tensor {inner.dtype} {tuple(inner.shape)} ".encode())
        hasher.update(bytes_of(value))
    elif isinstance(value, dict):
        hasher.update(f"dict {len(value)} ".encode())
        for key, item in value.items():
            _feed(hasher, key)
            _feed(hasher, item)
    elif isinstance(value, (list, tuple)):
        hasher.update(f"list {len(value)} ".encode())
        for item in value:
            _feed(hasher, item)
    elif isinstance(value, float):
        hasher.update(b"float " + struct.pack("<d", value))
    elif value is None or isinstance(value, (bool, int, str, bytes)):
        hasher.update(f"{type(value).__name__} {value!r} ".encode())
    else:
        hasher.update(f"object {type(value).__module__}.{type(value).__qualname__} ".encode())


def loss_bits(loss: Any) -> dict[str, Any]:
    """A loss as bits, with dtype, and whether it is finite. A tensor of any device, or a number."""
    if isinstance(loss, torch.Tensor):
        data = bytes_of(loss)
        finite = bool(torch.isfinite(local(loss).detach()).all().item())
        return {"bits": data.hex(), "dtype": str(loss.dtype), "value": _number(loss), "finite": finite}
    number = float(loss)
    finite = number - number == 0
    return {"bits": struct.pack("<d", number).hex(), "dtype": "float", "value": repr(number), "finite": finite}


def _number(loss: torch.Tensor) -> str | None:
    return repr(float(local(loss).detach())) if loss.numel() == 1 else None
