"""Optimizers of the program: their groups, hyperparameters and per-parameter state. Held weakly, in order of
creation.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from traincheck.collect.observe.models import Names, Tracked, class_name


def inner(optimizer: Any) -> Any:
    """The optimizer that a front object (Accelerate's, Lightning's) passes on to: it has the same groups. None if
    there is none.
    """
    own = getattr(optimizer, "__dict__", {})
    for name in ("optimizer", "_optimizer"):
        found = own.get(name)
        if found is not None and found is not optimizer:
            groups = getattr(found, "param_groups", None)
            if groups is not None and groups is getattr(optimizer, "param_groups", None):
                return found
    return None


def wraps(optimizer: Any) -> bool:
    """True for front objects: what they pass on to is observed, not they."""
    return inner(optimizer) is not None


class Optimizer:
    """One optimizer. Holds it weakly; ``places`` names its parameters that belong to no known model."""

    def __init__(self, names: Names, optimizer: Any, owner: str) -> None:
        self._names = names
        self._ref = weakref.ref(optimizer)
        self._places: dict[int, Tracked] = {}
        self._groups: dict[int, int] = {}
        self.owner = owner
        self.stepped = False
        self.variable = names.variable(owner, "optimizer", class_name(type(optimizer)), owner)

    @property
    def target(self) -> Any:
        """The optimizer itself, None once it is gone."""
        return self._ref()

    def parameters(self) -> list[tuple[int, Tensor]]:
        """(group, tensor) of every parameter, in order."""
        target = self._ref()
        if target is None:
            return []
        return [
            (index, tensor)
            for index, group in enumerate(target.param_groups)
            for tensor in group["params"]
            if isinstance(tensor, Tensor)
        ]

    def unclaimed(self, claimed: Iterable[int]) -> list[tuple[Tracked, Tensor]]:
        """Parameters that no model has (by ``id`` in ``claimed``), as ``param.<position>`` of this optimizer."""
        known = set(claimed)
        found = []
        for position, (_, tensor) in enumerate(self.parameters()):
            if id(tensor) not in known:
                place = self._places.get(position)
                if place is None:
                    place = Tracked(self._names, f"param.{position}", "parameter", self.owner)
                    self._places[position] = place
                found.append((place, tensor))
        return found

    def groups(self) -> list[tuple[int, dict[str, Any]]]:
        """(variable, hyperparameters) of each group; tuples taken apart as ``betas[0]``, ``betas[1]``."""
        target = self._ref()
        found = []
        for index, group in enumerate(target.param_groups if target is not None else ()):
            number = self._groups.get(index)
            if number is None:
                number = self._names.variable(f"group.{index}", "optimizer_group", "dict", self.owner)
                self._groups[index] = number
            values: dict[str, Any] = {"parameters": len(group["params"])}
            for name, value in group.items():
                if name in ("params", "param_names"):
                    continue
                if isinstance(value, (tuple, list)) and len(value) <= 4:
                    values.update({f"{name}[{i}]": item for i, item in enumerate(value)})
                else:
                    values[name] = value
            found.append((number, values))
        return found

    def state(self, place: Tracked, tensor: Tensor) -> tuple[int, Mapping[str, Any]] | None:
        """(variable, state) that the optimizer keeps for a parameter, None if it keeps none (yet)."""
        target = self._ref()
        state = target.state.get(tensor) if target is not None else None
        if not state:
            return None
        number = place.state_variables.get(self.owner)
        if number is None:
            number = self._names.variable(place.name, "optimizer_state", "dict", self.owner, of=place.owner)
            place.state_variables[self.owner] = number
        return number, state


class Optimizers:
    """All optimizers met so far: owners ``optimizer``, ``optimizer.1``, …"""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._count = 0
        self.all: list[Optimizer] = []

    def find(self, optimizer: Any) -> Optimizer | None:
        """The known one, if it is known."""
        return next((known for known in self.all if known.target is optimizer), None)

    def discover(self, optimizer: Any) -> Optimizer | None:
        """Know an optimizer (behind its front objects); None for what has no groups."""
        while (behind := inner(optimizer)) is not None:
            optimizer = behind
        known = self.find(optimizer)
        if known is not None:
            return known
        if not isinstance(getattr(optimizer, "param_groups", None), list):
            return None
        owner = "optimizer" if self._count == 0 else f"optimizer.{self._count}"
        self._count += 1
        known = Optimizer(self._names, optimizer, owner)
        self.all = [one for one in self.all if one.target is not None]
        self.all.append(known)
        return known

    def membership(self) -> dict[int, str]:
        """``id`` of each optimized parameter -> ``optimizer/0`` (owner and group; several joined with ``,``)."""
        found: dict[int, str] = {}
        for optimizer in self.all:
            for index, tensor in optimizer.parameters():
                label = f"{optimizer.owner}/{index}"
                key = id(tensor)
                found[key] = f"{found[key]},{label}" if key in found else label
        return found
