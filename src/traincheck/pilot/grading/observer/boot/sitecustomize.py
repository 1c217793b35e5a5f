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


class _Loaded:
    """A finder that finds nothing of its own, and acts right after certain modules, which others find, have run."""

    def __init__(self, actions: Any) -> None:
        self._actions = actions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        action = self._actions.pop(name, None)  # first: finders of others may ask all finders again, this one too
        if action is None:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self._follow(spec.loader, action)
                return spec
        self._actions[name] = action
        return None

    def _follow(self, loader: Any, action: Any) -> None:
        """The loader is left as it was."""
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            run(module)
            action(module)

        loader.exec_module = exec_module


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
    actions = {"random": ending.python_seeded, "numpy.random": ending.numpy_seeded, "torch": lambda _: _start(ending)}
    for name in list(actions):
        if name in sys.modules:  # by a .pth file
            actions.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _Loaded(actions))


def _start(ending: Any) -> None:
    try:
        from _replay_observer import steps  # type: ignore[import-not-found]

        steps.Observer(ending).install()
    except Exception as error:
        ending.fault(error)


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
