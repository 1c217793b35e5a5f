"""Watching imports: calls made while a module is imported are not training, and modules that arrive late get their
probes.

The import system's own entrance is muted in C; a finder in front of the others wraps, for watched packages only, the
loader's
``exec_module`` of that one module, and leaves it as it was.
"""

from __future__ import annotations

import contextlib
import importlib._bootstrap as bootstrap
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class ImportWatcher:
    """A meta path finder that calls ``loading(name)`` right before a module of a watched top-level package runs, and
    ``loaded(name)`` right after it, also when it fails.
    """

    def __init__(
        self,
        packages: Sequence[str],
        loaded: Callable[[str], None],
        loading: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._packages = set(packages)
        self._loaded = loaded
        self._loading = loading

    def watch(self, package: str) -> None:
        """Watch another top-level package."""
        self._packages.add(package)

    def start(self) -> None:
        """Stand in front of the other finders."""
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Step aside."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Ask the finders behind this one; wrap the loader when the module is watched."""
        if name.partition(".")[0] not in self._packages:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._wrap(spec)
                return spec
        return None

    def _wrap(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module
            self._loading(spec.name)
            try:
                run(module)
            finally:
                self._loaded(spec.name)

        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader with slots: its modules are found at the next look around
            return


def mute_imports(mute: Callable[[Any], Any]) -> Callable[[], None]:
    """Put ``mute`` (a class such as ``_probe.Mute``) around the import system's entrance; returns what takes it off."""
    original = bootstrap._find_and_load  # type: ignore[attr-defined]
    muted = mute(original)
    bootstrap._find_and_load = muted  # type: ignore[attr-defined]

    def undo() -> None:
        if bootstrap._find_and_load is muted:  # type: ignore[attr-defined]
            bootstrap._find_and_load = original  # type: ignore[attr-defined]

    return undo


def loaded_modules() -> list[str]:
    """Names of all modules that are loaded now."""
    return [name for name, module in list(sys.modules.items()) if isinstance(module, ModuleType)]
