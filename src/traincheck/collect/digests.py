"""Digests of tensor content: 128 bits over *all* bytes, so that a change of content is a change of digest.

On the CPU: xxh3-128 over the tensor's own memory, nothing copied. Elsewhere: ``reduction.reduce_many`` on the device,
results fetched once.
Only reads: no autograd node, no version bump, no RNG draw, no communication. A tensor's shape and dtype are not part
of its digest (they are
facts of their own): a non-contiguous tensor has the digest of the contiguous tensor with the same logical content.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, Union

import torch
from xxhash import xxh3_128, xxh3_128_digest, xxh3_128_intdigest

from traincheck.collect.observe.reduction import reduce_many

MASK = 0xFFFF_FFFF_FFFF_FFFF
PIECE = 16 << 20
"""A non-contiguous tensor is copied in pieces of about this many bytes, so that hashing it never doubles memory."""

Digest = Union[int, "Absent"]


class Absent:
    """Why a tensor has no digest: ``meta``, ``fake``, ``no storage``, ``uninitialized``, … Compares by reason."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"Absent({self.reason!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Absent) and other.reason == self.reason

    def __hash__(self) -> int:
        return hash(self.reason)


class View(Protocol):
    """``Recorder.view``: read-only memory at an address."""

    def __call__(self, address: int, nbytes: int, /) -> memoryview: ...  # noqa: D102


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.data_ptr())


# const_data_ptr (torch >= 2.9) does not materialise copy-on-write storage.
address: Callable[[torch.Tensor], int] = getattr(torch.Tensor, "const_data_ptr", _address)

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


class Digester:
    """Digests tensors. ``force_reduction`` sends CPU tensors through the device path too (for tests and comparison).

    All methods must run inside ``guard.quiet()``; they never raise for a kind of tensor: what cannot be read gives
    ``Absent``.
    """

    def __init__(self, view: View, *, force_reduction: bool = False) -> None:
        self._view = view
        self._force = force_reduction

    def one(self, tensor: torch.Tensor) -> Digest:
        """Digest of a single tensor."""
        return self.many((tensor,))[0]

    def many(self, tensors: Sequence[torch.Tensor]) -> list[Digest]:
        """Digests in the order given; tensors on devices are reduced together and their results fetched once."""
        view, read, force = self._view, address, self._force
        results: list[Any] = []
        later: list[tuple[int, torch.Tensor]] = []
        for tensor in tensors:
            if (
                type(tensor) in _PLAIN
                and tensor.is_cpu
                and tensor.layout is _STRIDED
                and tensor.is_contiguous()
                and not (force or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized or tensor.is_nested)
            ):
                try:
                    nbytes = tensor.nbytes
                    start = tensor.storage_offset() * tensor.element_size()
                    where = read(tensor)
                    # Never read past what is there: FSDP frees storage under living tensors, functional tensors have
                    # a storage of no memory (its address is 0).
                    if where != start and tensor.untyped_storage().nbytes() >= start + nbytes:
                        results.append(xxh3_128_intdigest(view(where, nbytes) if nbytes else b""))
                        continue
                except (RuntimeError, NotImplementedError):
                    pass  # a wrapper that only looks like a plain tensor: said below
            results.append(self._other(tensor, len(results), later))
        if later:
            numbers = reduce_many([tensor for _, tensor in later])
            for (position, _), number in zip(later, numbers, strict=True):
                results[position] = number
        return results

    # --- everything that is not a contiguous CPU tensor ---------------------------------------------------------------

    def _other(self, tensor: torch.Tensor, position: int, later: list[tuple[int, torch.Tensor]]) -> Digest:
        try:
            reason = unreadable(tensor)
            if reason is not None:
                return Absent(reason)
            parts = components(tensor)
            if parts is not None:
                kind, inner = parts
                return self._joined(kind, inner)
            if not (tensor.is_cpu and not self._force):
                later.append((position, tensor))
                return 0
            return self._copied(tensor)
        except Exception as error:  # a kind of tensor nobody foresaw: said, never raised into training
            return Absent(f"unreadable: {type(error).__name__}")

    def _joined(self, kind: str, inner: Sequence[torch.Tensor]) -> Digest:
        digests = self.many(inner)
        if kind == "local":
            return digests[0]
        return combine(kind, digests)

    def _copied(self, tensor: torch.Tensor) -> int:
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        hasher = xxh3_128()
        self._feed(hasher, tensor.view(_AS_INTEGER[tensor.element_size()]))
        return int(hasher.intdigest())

    def _feed(self, hasher: Any, tensor: torch.Tensor) -> None:
        nbytes = tensor.nbytes
        if nbytes == 0:
            return
        if tensor.is_contiguous():
            hasher.update(self._view(address(tensor), nbytes))
        elif nbytes <= PIECE or tensor.dim() == 0:
            piece = tensor.contiguous()
            hasher.update(self._view(address(piece), nbytes))
        else:
            rows = tensor.shape[0]
            step = rows * PIECE // nbytes
            if step > 1:
                for start in range(0, rows, step):
                    self._feed(hasher, tensor.narrow(0, start, min(step, rows - start)))
            else:  # one row is more than a piece: go a dimension deeper
                for row in range(rows):
                    self._feed(hasher, tensor.select(0, row))


def combine(kind: str, digests: Sequence[Digest]) -> Digest:
    """One digest of several, order included. If any is absent, so is the whole."""
    joined = bytearray(kind.encode())
    for digest in digests:
        if isinstance(digest, Absent):
            return digest
        joined += digest.to_bytes(16, "little")
    return int(xxh3_128_intdigest(bytes(joined)))


def digest_bytes(data: Any) -> int:
    """Digest of a bytes-like object."""
    return int.from_bytes(xxh3_128_digest(data), "big")


def _loaded(module: str, name: str) -> type | None:
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


def unreadable(tensor: torch.Tensor) -> str | None:
    """Why there is no content to read, or None. Looks, never touches the data."""
    kind = type(tensor)
    if kind not in _PLAIN:
        for module, name, reason in (
            ("torch._subclasses.fake_tensor", "FakeTensor", "fake"),
            ("torch._subclasses.functional_tensor", "FunctionalTensor", "functional"),
            ("torch.distributed._functional_collectives", "AsyncCollectiveTensor", "pending collective"),
            ("torch.nn.parameter", "UninitializedTensorMixin", "uninitialized"),
        ):
            cls = _loaded(module, name)
            if cls is not None and issubclass(kind, cls):
                return reason
    if tensor.is_meta:
        return "meta"
    if tensor.device.type in ("xla", "lazy"):  # looking would make it compute
        return str(tensor.device.type)
    if torch._is_functional_tensor(tensor):
        return "functional"
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "functorch"
    if components(tensor) is not None:
        return None
    if tensor.layout is not _STRIDED:
        return str(tensor.layout)
    if tensor.is_nested:
        return "nested"
    if tensor.untyped_storage().nbytes() < _span(tensor):
        return "no storage"
    return None


def _span(tensor: torch.Tensor) -> int:
    """Bytes of storage that the tensor's elements reach into, from the storage's begin."""
    if tensor.numel() == 0:
        return 0
    last = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + last + 1) * tensor.element_size())


def components(tensor: torch.Tensor) -> tuple[str, list[torch.Tensor]] | None:
    """(kind, tensors it is made of) for tensors without one memory of their own: DTensor, sparse, nested,
    quantized, wrappers; else None.

    ``local`` means that the digest is that of the one component itself (a DTensor's local shard: no communication).
    """
    if type(tensor) not in _PLAIN:
        local = getattr(tensor, "_local_tensor", None)
        if isinstance(local, torch.Tensor) and hasattr(tensor, "_spec"):
            return "local", [local]
        flatten = getattr(tensor, "__tensor_flatten__", None)
        if flatten is not None:
            names = sorted(flatten()[0])
            inner = [getattr(tensor, name) for name in names]
            return "wrapper:" + ",".join(names), [part for part in inner if isinstance(part, torch.Tensor)]
    layout = tensor.layout
    if layout is _STRIDED and tensor.numel() == 0:
        partition = getattr(tensor, "ds_tensor", None)  # DeepSpeed ZeRO-3 leaves an empty tensor and its partition
        if isinstance(partition, torch.Tensor) and partition is not tensor:
            return "local", [partition]
    if layout is torch.sparse_coo:
        return "sparse_coo", [tensor._indices(), tensor._values()]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return str(layout), [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return str(layout), [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.is_quantized:
        return "quantized", [tensor.int_repr(), *_quantizer(tensor)]
    if tensor.is_nested and layout is _STRIDED:
        return "nested", [tensor._nested_tensor_size(), *tensor.unbind()]
    return None


def _quantizer(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [torch.tensor([tensor.q_scale(), float(tensor.q_zero_point())], dtype=torch.float64)]
    return [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
