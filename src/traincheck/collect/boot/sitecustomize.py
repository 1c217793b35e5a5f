"""Put first on PYTHONPATH by ``traincheck collect``: hands over to any other sitecustomize, and waits for torch.

Runs at the start of every Python process of the run, so it does almost nothing and never fails loudly. It imports
only what is loaded anyway: an import of more, this early, could take the place of a module of the user's with the
same name.
"""

from __future__ import annotations

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _UntilTorch:
    """A finder that finds nothing: when torch is asked for, TrainCheck is loaded to watch that import."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._born = os.getpid()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            from traincheck.collect.activation import watch_import
        except Exception as error:
            _not_watched(self._run, error)
            return None
        return watch_import(self._run, self._born, name, path, target)


def _not_watched(run: str, error: Exception) -> None:
    """The interpreter has no TrainCheck, or one that does not load: the launcher says so at the end."""
    missing = isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "traincheck"
    text = "TrainCheck is not installed there" if missing else f"{type(error).__name__}: {error}"
    try:
        with open(os.path.join(run, f"not-watched-{os.getpid()}.txt"), "w") as file:
            file.write(f"{sys.executable}: {text}\n")
    except OSError:
        pass


def _wait_for_torch() -> None:
    run = os.environ.get("TRAINCHECK_RUN")
    if not run:
        return
    try:  # noqa: SIM105  one empty file: some Python process was reached
        os.close(os.open(os.path.join(run, "reached"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
    except OSError:
        pass
    finder = _UntilTorch(run)
    sys.meta_path.insert(0, finder)
    if "torch" in sys.modules:  # by a .pth file
        finder.find_spec("torch")


def _chain() -> None:
    """Run the sitecustomize that would have run without us, under its own name."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != here]
    sys.path_importer_cache.pop(here, None)
    spec = _frozen_importlib_external.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        return
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _wait_for_torch()
finally:
    _chain()
