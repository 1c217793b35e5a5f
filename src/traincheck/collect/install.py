"""Installing: puts probes where functions stand, on every binding of them, and takes them off again completely."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from traincheck.collect import _probe
from traincheck.collect.bindings import in_c_namespaces, off_the_track, read, release, write
from traincheck.collect.targets import Target, excluded, unwrap_descriptor


@dataclass
class Placement:
    """One place that holds (or held) a probe. ``before``: what stood there, or ABSENT; ``wrapped``: what we put there.

    ``probe``: None where several stand in one place (a function's defaults).
    """

    owner: Any
    attribute: str
    before: Any
    wrapped: Any
    probe: Any
    target: Target
    driver: bool
    on: bool = False

    @property
    def full_only(self) -> bool:
        """Part of the full scope alone."""
        return not self.target.boundary and not self.target.muted


class Installer:
    """Places probes and remembers how to undo it.

    ``make`` turns a target into a probe, or None to leave it alone. Drivers (functions that steps are found by) stay on
    while the others are off.
    """

    def __init__(self, make: Callable[[Target], Any], is_driver: Callable[[Target], bool]) -> None:
        self._make = make
        self._is_driver = is_driver
        self._placements: list[Placement] = []
        # id(original) -> (original, probe, target); the original is kept alive here
        self._probes: dict[int, tuple[Any, Any, Target]] = {}
        self._done: set[tuple[int, str]] = set()
        self.functions = 0
        """Number of functions probed."""
        self.refused: list[tuple[str, str]] = []

    def add(self, targets: Iterable[Target]) -> list[Any]:
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
                self.functions += 1
                new.append(target.function)
            else:
                probe = known[1]
            self._done.add(key)
            before = read(target.owner, target.attribute)
            self._put(target.owner, target.attribute, before, _wrap_like(target, probe), probe, target)
        return new

    def rebind(self, modules: Iterable[str]) -> None:
        """Place known probes on the other module attributes that hold the same functions (``from x import f``).

        In modules that are somebody's inner life, what was taken over from elsewhere is the original: calls there are
        none of the program's.
        """
        originals = {id(probe): original for original, probe, _ in self._probes.values()}
        for name in modules:
            module = sys.modules.get(name)
            if not isinstance(module, types.ModuleType):
                continue
            inner = name != "__main__" and excluded(name)
            for attribute, value in list(vars(module).items()):
                if (id(module), attribute) in self._done:
                    continue
                if _probe.is_probe(value):  # loaded while probes were on
                    original = originals.get(id(value))
                    if original is not None and inner:
                        write(module, attribute, original)
                    elif original is not None:
                        self._place_known(module, attribute, original, original, value)
                elif not inner:
                    self._place_known(module, attribute, value, value)

    def rebind_elsewhere(self) -> None:
        """Place known probes where torch looks its C functions up, in defaults, and on optimizers with a scheduler."""
        torch = sys.modules["torch"]
        for owner, attribute, raw, function in in_c_namespaces(torch):
            self._place_known(owner, attribute, raw, function)
        for owner, attribute, before, after in off_the_track(self._standing_for, lambda module: not excluded(module)):
            several = isinstance(before, (dict, tuple))
            values = before.values() if isinstance(before, dict) else before if several else (before,)
            _, probe, target = next(self._probes[id(value)] for value in values if id(value) in self._probes)
            self._put(owner, attribute, before, after, None if several else probe, target)

    def _standing_for(self, value: Any) -> Any:
        known = self._probes.get(id(value))
        return value if known is None or known[2].muted else known[1]

    def _place_known(self, owner: Any, attribute: str, raw: Any, function: Any, there: Any = None) -> None:
        known = self._probes.get(id(function))
        if known is None or known[2].kind not in ("function", "builtin") or (id(owner), attribute) in self._done:
            return
        self._done.add((id(owner), attribute))
        _, probe, target = known
        wrapped = staticmethod(probe) if isinstance(raw, staticmethod) else probe
        self._put(owner, attribute, raw, wrapped, probe, target, there)

    def _put(
        self, owner: Any, attribute: str, before: Any, wrapped: Any, probe: Any, target: Target, there: Any = None
    ) -> None:
        placement = Placement(owner, attribute, before, wrapped, probe, target, self._is_driver(target))
        if there is None and not self._write(placement, wrapped):
            return
        placement.on = True
        self._placements.append(placement)

    def _write(self, placement: Placement, value: Any) -> bool:
        try:
            write(placement.owner, placement.attribute, value)
        except Exception as error:  # a metaclass of the program's own may refuse with anything
            self.refused.append((placement.attribute, str(error)))
            return False
        return True

    def take_off(self, which: Callable[[Placement], bool]) -> None:
        """Put back what stood before. Where someone else has wrapped our probe meanwhile, the probe stays and only
        passes through.
        """
        for placement in reversed(self._placements):
            if not placement.on or not which(placement):
                continue
            ours = read(placement.owner, placement.attribute) is placement.wrapped
            if not ours or not self._write(placement, placement.before):
                _set_enabled(placement.probe, False)
            placement.on = False

    def put_on(self, which: Callable[[Placement], bool]) -> None:
        """The opposite of ``take_off``. What the program has put there meanwhile stays; if it wraps the function, it is
        what is probed now (so does torch._dynamo with torch.manual_seed when it is imported).
        """
        changed: list[Target] = []
        for placement in self._placements:
            if placement.on or not which(placement):
                continue
            found = read(placement.owner, placement.attribute)
            if found is placement.before:
                self._write(placement, placement.wrapped)
            elif found is not placement.wrapped and placement.probe is not None:
                changed += self._wrapper(placement, found)
            _set_enabled(placement.probe, True)
            placement.on = True
        for target in changed:
            self._done.discard((id(target.owner), target.attribute))
        self.add(changed)

    def _wrapper(self, placement: Placement, found: Any) -> Iterator[Target]:
        function, kind = unwrap_descriptor(found)
        if isinstance(function, types.FunctionType) and any(f is placement.target.function for f in _chain(function)):
            kind = kind if isinstance(placement.owner, type) else "function"
            yield replace(
                placement.target,
                owner=placement.owner,
                attribute=placement.attribute,
                raw=found,
                function=function,
                kind=kind,
            )

    def forget(self, which: Callable[[Placement], bool]) -> None:
        """Take off for good."""
        self.take_off(which)
        self._placements = [p for p in self._placements if not which(p)]

    def release(self) -> None:
        """Take everything off for good, and put the originals into copies that were made while probes were on."""
        self.take_off(lambda _: True)
        pairs = [(probe, original) for original, probe, _ in self._probes.values()]
        for probe, _ in pairs:
            _set_enabled(probe, False)  # what keeps one must not write into the next recording
        self._placements.clear()
        self._probes.clear()
        release(pairs)

    @property
    def names(self) -> frozenset[str]:
        """Full names of the functions probed."""
        return frozenset(target.name for _, _, target in self._probes.values())

    @property
    def count(self) -> int:
        """Number of attributes that hold a probe now."""
        return sum(p.on for p in self._placements)


def _holds_probe(function: Any) -> bool:
    """Whether ``function`` is a probe or wraps one, as torch does when it puts its step hooks around an optimizer's
    ``step``.
    """
    return any(_probe.is_probe(inner) for inner in _chain(function))


def _chain(function: Any) -> Iterator[Any]:
    """``function`` and what it wraps, by ``__wrapped__``."""
    for _ in range(16):
        yield function
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return


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
