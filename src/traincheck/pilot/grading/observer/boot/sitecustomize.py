"""Put first on PYTHONPATH by the grader: hands over to any other sitecustomize, and waits for torch.

Runs at the start of every Python process of a replay. It imports only what is loaded anyway: an import of more, this
early, could take the place of a module of the program's with the same name.
"""

from __future__ import annotations

import _frozen_importlib
import _frozen_importlib_external
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = "_replay_observer"


class _UntilTorch:
    """A finder that finds nothing of its own: torch comes from the finders behind it, and is observed from then on."""

    def __init__(self, ending: Any) -> None:
        self._ending = ending

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        """Start right after torch has run; the loader is left as it was."""
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            run(module)
            _start(self._ending)

        loader.exec_module = exec_module


def _start(ending: Any) -> None:
    try:
        from _replay_observer import steps  # type: ignore[import-not-found]

        steps.Observer(ending).install()
    except Exception as error:
        ending.fault(error)


def _watch() -> None:
    records = os.environ.get("TRAINCHECK_REPLAY_RECORDS")
    if not records:
        return
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec: Any = _frozen_importlib_external.spec_from_file_location(
        _NAME, os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    from _replay_observer.ending import Ending  # type: ignore[import-not-found]

    ending = Ending(records)
    ending.watch()
    if "torch" in sys.modules:  # by a .pth file
        _start(ending)
    else:
        sys.meta_path.insert(0, _UntilTorch(ending))


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
    _watch()
finally:
    _chain()
