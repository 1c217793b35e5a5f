"""Installing: puts probes where functions stand, on every binding of them, and takes them off again completely."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from traincheck.collect import _probe
from traincheck.collect.targets import Target, excluded

_ABSENT = object()


@dataclass
class Placement:
    """One attribute that holds (or held) a probe. ``before``: what its own ``__dict__`` held, or absent."""

    owner: Any
    attribute: str
    before: Any
    wrapped: Any
    probe: Any
    driver: bool
    full_only: bool
    on: bool = False


class Installer:
    """Places probes and remembers how to undo it.

    ``make`` turns a target into a probe, or None to leave it alone. Drivers (functions that steps are found by) stay on
    while the others are off.
    """

    def __init__(self, make: Callable[[Target], Any], is_driver: Callable[[Target], bool]) -> None:
        self._make = make
        self._is_driver = is_driver
        self._placements: list[Placement] = []
        self._probes: dict[
            int, tuple[Any, Any, Target]
        ] = {}  # id(original) -> (original, probe, target); the original is kept alive here
        self._done: set[tuple[int, str]] = set()
        self.refused: list[tuple[str, str]] = []

    def add(self, targets: Iterable[Target], on: bool = True) -> list[Any]:
        """Place probes on ``targets`` (one probe an original function); returns the originals that are new."""
        new: list[Any] = []
        for target in targets:
            key = (id(target.owner), target.attribute)
            if key in self._done or _holds_probe(target.function):
                continue
            known = self._probes.get(id(target.function))
            if known is None:
                probe = self._make(target)
                if probe is None:
                    continue
                self._probes[id(target.function)] = (target.function, probe, target)
                new.append(target.function)
            else:
                probe = known[1]
            self._done.add(key)
            self._place(target.owner, target.attribute, _wrap_like(target, probe), probe, target, on)
        return new

    def rebind(self, modules: Iterable[str], on: bool = True) -> None:
        """Place known probes on the other module attributes that hold the same functions (``from x import f``)."""
        by_id = {
            key: (probe, target)
            for key, (_, probe, target) in self._probes.items()
            if target.kind in ("function", "builtin")
        }
        for name in modules:
            module = sys.modules.get(name)
            if not isinstance(module, types.ModuleType) or (name != "__main__" and excluded(name)):
                continue
            for attribute, value in list(vars(module).items()):
                found = by_id.get(id(value))
                if found is None or (id(module), attribute) in self._done or _probe.is_probe(value):
                    continue
                self._done.add((id(module), attribute))
                self._place(module, attribute, found[0], found[0], found[1], on)

    def _place(self, owner: Any, attribute: str, wrapped: Any, probe: Any, target: Target, on: bool) -> None:
        before = vars(owner).get(attribute, _ABSENT)
        placement = Placement(
            owner, attribute, before, wrapped, probe, self._is_driver(target), not target.boundary and not target.muted
        )
        if on:
            try:
                setattr(owner, attribute, wrapped)
            except (TypeError, AttributeError) as error:
                self.refused.append((target.name, str(error)))
                return
            placement.on = True
        self._placements.append(placement)

    def take_off(self, which: Callable[[Placement], bool]) -> None:
        """Put back what stood before. Where someone else has wrapped our probe meanwhile, the probe stays and only
        passes through.
        """
        for placement in reversed(self._placements):
            if not placement.on or not which(placement):
                continue
            if vars(placement.owner).get(placement.attribute) is placement.wrapped:
                try:
                    if placement.before is _ABSENT:
                        delattr(placement.owner, placement.attribute)
                    else:
                        setattr(placement.owner, placement.attribute, placement.before)
                except (TypeError, AttributeError) as error:
                    self.refused.append((str(placement.attribute), str(error)))
                    placement.probe.enabled = False
            elif isinstance(placement.probe, object):
                _set_enabled(placement.probe, False)
            placement.on = False

    def put_on(self, which: Callable[[Placement], bool]) -> None:
        """The opposite of ``take_off``."""
        for placement in self._placements:
            if placement.on or not which(placement):
                continue
            current = vars(placement.owner).get(placement.attribute, _ABSENT)
            if current is placement.before or current is placement.wrapped:
                setattr(placement.owner, placement.attribute, placement.wrapped)
            _set_enabled(placement.probe, True)
            placement.on = True

    def forget(self, which: Callable[[Placement], bool]) -> None:
        """Take off for good."""
        self.take_off(which)
        self._placements = [p for p in self._placements if not which(p)]

    @property
    def count(self) -> int:
        """Number of attributes that hold a probe now."""
        return sum(p.on for p in self._placements)

    @property
    def functions(self) -> int:
        """Number of functions probed."""
        return len(self._probes)


def _holds_probe(function: Any) -> bool:
    """Whether ``function`` is a probe or wraps one, as torch does when it puts its step hooks around an optimizer's
    ``step``.
    """
    for _ in range(16):
        if _probe.is_probe(function):
            return True
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return False
    return False


def _set_enabled(probe: Any, value: bool) -> None:
    if hasattr(type(probe), "enabled"):
        probe.enabled = value


def _wrap_like(target: Target, probe: Any) -> Any:
    """The probe in the same descriptor the function stood in."""
    if isinstance(target.raw, classmethod):
        return classmethod(probe)
    if isinstance(target.raw, staticmethod):
        return staticmethod(probe)
    return probe
