"""Suspension: probes come off while something looks at functions instead of calling them, and go on again after it.

Such are compilers and tracers (torch.jit, torch.fx, torch.export), which know torch's functions by identity, and the
import of torch's own modules, which copies functions into tables of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traincheck.collect.install import Installer, Placement


class Suspension:
    """Nested suspensions of one installer's probes; ``wanted`` says which placements go on again at the end."""

    def __init__(self, installer: Installer, wanted: Callable[[Placement], bool]) -> None:
        self._installer = installer
        self._wanted = wanted
        self._depth = 0

    @property
    def active(self) -> bool:
        """Whether probes are off now."""
        return self._depth > 0

    def begin(self) -> None:
        """Take all probes off, unless they are."""
        self._depth += 1
        if self._depth == 1:
            self._installer.take_off(lambda _: True)

    def end(self) -> bool:
        """Put them on again at the end of the outermost suspension; tells whether this was it."""
        self._depth -= 1
        if self._depth:
            return False
        self._installer.put_on(self._wanted)
        return True

    def enter(self, probe: Any, args: Any, kwargs: Any, call: int) -> bool:
        """The hook of a probe on a function that looks at others."""
        self.begin()
        return True

    def exit(self, probe: Any, token: Any, args: Any, kwargs: Any, result: Any, error: Any, call: int) -> None:
        """Its counterpart."""
        if token:
            self.end()
