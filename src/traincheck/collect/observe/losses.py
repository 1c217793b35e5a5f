"""The root loss of a backward: its number if it is one, its content and shape otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from traincheck.collect.observe.tensors import Sheet, Writer, scalar


def roots(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> list[torch.Tensor]:
    """The tensors that a ``Tensor.backward`` or ``torch.autograd.backward`` call starts from."""
    first = args[0] if args else (kwargs or {}).get("tensors", (kwargs or {}).get("self"))
    found = first if isinstance(first, (list, tuple)) else (first,)
    return [tensor for tensor in found if isinstance(tensor, torch.Tensor)]


def losses(writer: Writer, sheet: Sheet, tensors: list[torch.Tensor]) -> None:
    """``loss`` (``loss.1``, … for more roots of one call): ``value``, or ``data`` and ``shape``; and ``dtype``."""
    for index, tensor in enumerate(tensors):
        name = "loss" if index == 0 else f"loss.{index}"
        variable = writer.variable(name, "loss", "torch.Tensor", "run")
        local = getattr(tensor, "_local_tensor", tensor)
        number = scalar(local)
        if number is not None:
            sheet.value(variable, "value", number)
        else:
            sheet.tensor(variable, "data", tensor)
            sheet.value(variable, "shape", tensor.shape)
        sheet.value(variable, "dtype", tensor.dtype)
        sheet.value(variable, "requires_grad", tensor.requires_grad)
