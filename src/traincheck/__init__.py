"""TrainCheck watches PyTorch training, learns what a healthy run does, and says what broke in the others.

The public names are resolved when they are first used, so that importing this package costs next to nothing inside a
training process: no torch, no Polars, no command line.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0.dev0"

__all__ = [
    "TraincheckError",
    "__version__",
    "check",
    "collect",
    "infer",
    "load_invariants",
    "open_trace",
    "save_invariants",
    "stage",
    "step",
]

if TYPE_CHECKING:
    from traincheck.check import check as check
    from traincheck.collect.api import collect as collect
    from traincheck.collect.api import stage as stage
    from traincheck.collect.api import step as step
    from traincheck.errors import TraincheckError as TraincheckError
    from traincheck.infer import infer as infer
    from traincheck.invariants import load_invariants as load_invariants
    from traincheck.invariants import save_invariants as save_invariants
    from traincheck.trace import open_trace as open_trace

_HOMES = {
    "TraincheckError": "traincheck.errors",
    "check": "traincheck.check",
    "collect": "traincheck.collect.api",
    "infer": "traincheck.infer",
    "load_invariants": "traincheck.invariants",
    "open_trace": "traincheck.trace",
    "save_invariants": "traincheck.invariants",
    "stage": "traincheck.collect.api",
    "step": "traincheck.collect.api",
}


def _resolve(name: str) -> Any:
    return getattr(import_module(_HOMES[name]), name)


class _CallableModule(ModuleType):
    """``traincheck.collect``, ``.infer`` and ``.check`` are rooms of the house and the verb done in them: both work."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _resolve(self.__name__.rpartition(".")[2])(*args, **kwargs)

    @property
    def __signature__(self) -> Any:
        from inspect import signature

        return signature(_resolve(self.__name__.rpartition(".")[2]))


class _Package(ModuleType):
    """The import system binds a submodule here the first time it is loaded: then a verb among them becomes callable."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOMES and type(value) is ModuleType:
            value.__class__ = _CallableModule
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in ("check", "collect", "infer"):
            return import_module(f"{__name__}.{name}")
        value = _resolve(name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
