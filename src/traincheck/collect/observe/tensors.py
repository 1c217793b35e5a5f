"""Rows of state of tensors: content digests, gradients, facts, optimizer state. Who is looked at is the observer's
matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from traincheck.collect.digests import MASK, Absent, Digest, Digester, address, unreadable
from traincheck.collect.observe.models import Entry, Tracked, loaded
from traincheck.collect.observe.policy import PRESENT
from traincheck.events import Moment, Value

Row = tuple[int, int, int, int, int]

DIGEST, NONE, MISSING = int(Value.DIGEST), int(Value.NONE), int(Value.MISSING)


class Writer(Protocol):
    """What observing needs of the recorder."""

    def variable(self, name: str, role: str, type: str, owner: str, **facts: Any) -> int: ...  # noqa: D102
    def attribute(self, name: str) -> int: ...  # noqa: D102
    def symbol(self, value: object) -> int: ...  # noqa: D102
    def encode(self, value: object) -> tuple[int, int, int]: ...  # noqa: D102
    def observe(self, reason: str, call: int = 0, moment: Moment = Moment.ALONE) -> int: ...  # noqa: D102
    def states(self, observation: int, rows: Sequence[Row]) -> None: ...  # noqa: D102
    def fault(self, where: str, error: BaseException | str) -> None: ...  # noqa: D102
    def view(self, address: int, nbytes: int, /) -> memoryview: ...  # noqa: D102


class Sheet:
    """What one observation saw. Tensors are gathered first and digested together: one pass, on devices one fetch.

    All methods run inside ``guard.quiet()``. It lives only as long as its observation, because it holds tensors.
    """

    __slots__ = ("_attributes", "_digester", "_slots", "_tensors", "_unique", "_writer", "rows")

    def __init__(self, writer: Writer, digester: Digester, attributes: dict[str, int]) -> None:
        self._writer = writer
        self._digester = digester
        self._attributes = attributes
        self._slots: list[tuple[int, str, int]] = []
        self._tensors: list[Tensor] = []
        self._unique: dict[int, int] = {}
        self.rows: list[Row] = []

    def attribute(self, name: str) -> int:
        """Number of an attribute."""
        number = self._attributes.get(name)
        if number is None:
            number = self._attributes[name] = self._writer.attribute(name)
        return number

    def value(self, variable: int, name: str, value: object) -> None:
        """One plain value."""
        kind, low, high = self._writer.encode(value)
        self.rows.append((variable, self.attribute(name), kind, low, high))

    def tensor(self, variable: int, name: str, tensor: Tensor) -> None:
        """The content of a tensor, as a digest. A tensor under several names is read once."""
        tensors = self._tensors
        self._slots.append((variable, name, self._unique.setdefault(id(tensor), len(tensors))))
        if len(self._unique) > len(tensors):
            tensors.append(tensor)

    def digest(self, variable: int, name: str, digest: Digest) -> None:
        """A digest, or MISSING with the reason beside it as ``<name>.missing``."""
        if isinstance(digest, Absent):
            self.rows.append((variable, self.attribute(name), MISSING, 0, 0))
            self.value(variable, name + ".missing", digest.reason)
        else:
            self.rows.append((variable, self.attribute(name), DIGEST, digest & MASK, digest >> 64))

    def finish(self) -> list[Row]:
        """Digest what was gathered; all rows."""
        rows, attributes = self.rows, self._attributes
        digests = self._digester.many(self._tensors)
        for variable, name, index in self._slots:
            digest = digests[index]
            if type(digest) is int and name in attributes:
                rows.append((variable, attributes[name], DIGEST, digest & MASK, digest >> 64))
            else:
                self.digest(variable, name, digest)
        return rows

    # --- parameters and buffers ---------------------------------------------------------------------------------------

    def data(self, entries: Sequence[Entry]) -> None:
        """The content of each."""
        for place, tensor in entries:
            self.tensor(place.variable, "data", tensor)

    def grad(self, entries: Sequence[Entry]) -> None:
        """The content of each parameter's gradient, NONE where there is none; with Megatron also ``main_grad``."""
        attribute, rows = self.attribute("grad"), self.rows
        if loaded("megatron.core") is not None:
            for place, tensor in entries:
                main = getattr(tensor, "main_grad", None)
                if isinstance(main, Tensor):
                    self.tensor(place.variable, "main_grad", main)
        for place, tensor in entries:
            if place.role == "parameter":
                grad = tensor.grad
                if grad is None:
                    rows.append((place.variable, attribute, NONE, 0, 0))
                else:
                    self.tensor(place.variable, "grad", grad)

    def has_grad(self, entries: Sequence[Entry]) -> None:
        """``PRESENT`` for each gradient there is, NONE where there is none; with Megatron also ``main_grad``."""
        attribute, rows = self.attribute("grad"), self.rows
        present = self._writer.encode(PRESENT)
        megatron = loaded("megatron.core") is not None
        for place, tensor in entries:
            if megatron and isinstance(getattr(tensor, "main_grad", None), Tensor):
                rows.append((place.variable, self.attribute("main_grad"), *present))
            if place.role == "parameter":
                grad = tensor.grad
                if grad is None:
                    rows.append((place.variable, attribute, NONE, 0, 0))
                elif (type(grad) is Tensor and not grad.is_meta) or (reason := unreadable(grad)) is None:
                    rows.append((place.variable, attribute, *present))
                else:  # as the content would be
                    self.digest(place.variable, "grad", Absent(reason))

    def facts(self, entries: Sequence[Entry], membership: Mapping[int, str]) -> None:
        """dtype, shape, device, requires_grad, in_optimizer, tied_to; layout unless strided; for DTensors
        placements, mesh and local shape; with Megatron tensor_model_parallel.

        Read anew each time; rows are made only when something changed.
        """
        homes: dict[tuple[int, int], str] = {}
        megatron = loaded("megatron.core") is not None
        for place, tensor in entries:
            local, spec = tensor, None
            if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
                if unreadable(tensor) == "uninitialized":  # a lazy parameter has no shape yet
                    self.value(place.variable, "requires_grad", tensor.requires_grad)
                    continue
                inner = getattr(tensor, "_local_tensor", None)
                if isinstance(inner, Tensor):
                    local, spec = inner, getattr(tensor, "_spec", None)
            home = _home(local)
            first = place.name if home is None else homes.setdefault(home, place.name)
            facts = (
                tensor.dtype,
                tensor.shape,
                tensor.device,
                tensor.requires_grad,
                membership.get(id(tensor)),
                None if first == place.name else first,
                tensor.layout,
                None if local is tensor else local.shape,
                None if spec is None else (spec.placements, id(spec.mesh)),
                # Of a model's parameters Megatron marks those that it splits, and may leave others without a mark.
                getattr(tensor, "tensor_model_parallel", False) is True
                if megatron and place.role == "parameter" and place.owner.startswith("model")
                else None,
            )
            if facts != place.facts:
                place.facts_rows = self._facts_rows(place, facts, spec)
                place.facts = facts
            self.rows.extend(place.facts_rows)

    def _facts_rows(self, place: Tracked, facts: tuple[Any, ...], spec: Any) -> tuple[Row, ...]:
        dtype, shape, device, requires_grad, member, tied, layout, local_shape, _, split = facts
        values: dict[str, Any] = {"dtype": dtype, "shape": shape, "device": device, "tied_to": tied}
        if place.role == "parameter":
            values |= {"requires_grad": requires_grad, "in_optimizer": member}
        if split is not None:
            values["tensor_model_parallel"] = split
        if layout is not torch.strided:
            values["layout"] = layout
        if local_shape is not None:
            values["local_shape"] = local_shape
        if spec is not None:
            values["placements"] = ", ".join(map(str, spec.placements))
            values |= mesh_facts(spec.mesh)
        encode = self._writer.encode
        return tuple((place.variable, self.attribute(name), *encode(value)) for name, value in values.items())

    # --- optimizer state ----------------------------------------------------------------------------------------------

    def content(self, variable: int, items: Mapping[str, Any]) -> None:
        """State of an optimizer or the like: one-element CPU tensors by value, tensors by digest, lists of tensors
        one by one.
        """
        for name, value in items.items():
            if isinstance(value, Tensor):
                number = scalar(value)
                if number is None:
                    self.tensor(variable, name, value)
                else:
                    self.value(variable, name, number)
            elif value is None or isinstance(value, (bool, int, float, str)):
                self.value(variable, name, value)
            elif isinstance(value, (list, tuple)):
                for index, one in enumerate(value):
                    if isinstance(one, Tensor):
                        self.tensor(variable, f"{name}[{index}]", one)


def mesh_facts(mesh: Any) -> dict[str, int | None]:
    """``mesh.<dim>``: this rank's coordinate, ``mesh_size.<dim>``; dimensions without a name go by their position."""
    names = mesh.mesh_dim_names or [str(index) for index in range(mesh.ndim)]
    coordinate = mesh.get_coordinate()
    facts: dict[str, int | None] = {}
    for index, name in enumerate(names):
        facts[f"mesh.{name}"] = None if coordinate is None else int(coordinate[index])
        facts[f"mesh_size.{name}"] = int(mesh.size(index))
    return facts


def _home(tensor: Tensor) -> tuple[int, int] | None:
    """Where a tensor's bytes are; tensors of one home are tied."""
    try:
        nbytes = tensor.nbytes
        return (address(tensor), nbytes) if nbytes and tensor.untyped_storage().nbytes() else None
    except (RuntimeError, NotImplementedError, ValueError):
        return None


def scalar(tensor: Tensor) -> float | int | bool | None:
    """The number in a one-element plain CPU tensor, None for any other tensor (nothing is fetched from a device)."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or not tensor.is_cpu or tensor.numel() != 1 or tensor.dim() > 1:
        return None
    if tensor.is_complex() or tensor.is_quantized or tensor.layout is not torch.strided:
        return None
    try:
        number = tensor.item()
    except (RuntimeError, NotImplementedError):
        return None
    return number if isinstance(number, (bool, int, float)) else None
