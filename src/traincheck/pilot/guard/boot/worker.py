"""``sitecustomize`` of a trial's Python workers: what was within reach at the start, what was loaded at the end.

Standard library only, and nothing in here may fail a worker. It lies in ``guard``, beside ``workers``.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = "traincheck"
_HERE = os.path.dirname(os.path.abspath(__file__))


class _Refuse:
    """A finder that finds nothing, and lets nobody else find TrainCheck."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] == _NAME:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _importable() -> bool:
    for finder in list(sys.meta_path):
        try:
            if finder.find_spec(_NAME, None) is not None:
                return True
        except Exception:
            continue
    return False


def _loaded() -> bool:
    return any(name.partition(".")[0] == _NAME for name in list(sys.modules))


def _write(path: str, line: dict[str, Any]) -> None:
    try:
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")
    except OSError:
        pass


def _attest() -> None:
    refuse = os.path.exists(os.path.join(_HERE, "refuse"))
    born = os.getpid()
    path = os.path.join(os.path.dirname(_HERE), "workers", f"{time.monotonic_ns()}-{born}.jsonl")
    start = {
        "pid": born,
        "importable": _importable(),
        "guard": refuse,
        "run": os.environ.get("TRAINCHECK_RUN"),
        "command": list(getattr(sys, "orig_argv", [])),
    }
    if refuse:
        sys.meta_path.insert(0, _Refuse())
    _write(path, start)

    def at_exit() -> None:
        if os.getpid() == born:  # not in a fork of this worker
            _write(path, {"imported": _loaded()})

    atexit.register(at_exit)


def _chain() -> None:
    """Run the sitecustomize that would have run without us."""
    others = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _attest()
except Exception:
    pass
finally:
    _chain()
