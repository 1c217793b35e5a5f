"""Looking without being seen: what keeps an observation from changing training.

``quiet()`` turns off, for this thread: tensor subclasses' and modes' Python code, dispatch modes (flop counters, fake
tensors) and autograd.
``tracing()`` says when nothing may be looked at: tensors have no content while a compiler or a functorch transform is
at work.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

_C: Any = torch._C
_KEYS: Any = _C._TorchDispatchModeKey
_INFRA = tuple(getattr(_C._TorchDispatchModeKey, name) for name in ("FAKE", "FUNCTIONAL", "PROXY"))


class quiet:  # noqa: N801  (reads as a statement: with quiet(): ...)
    """No Python dispatch, no autograd node, no view tracking inside. Cheap, and may be nested."""

    __slots__ = ("_guards",)

    def __enter__(self) -> None:
        self._guards = (_C.DisableTorchFunction(), _C._DisableTorchDispatch(), _C._AutoDispatchBelowAutograd())
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(kind, error, trace)


def tracing() -> bool:
    """True while tensors may have no content of their own: compile, export, fake mode, jit trace, functorch, CUDA
    graph capture.
    """
    if torch.compiler.is_compiling() or _C._get_tracing_state() is not None:
        return True
    for key in _INFRA:
        if _C._get_dispatch_mode(key) is not None:
            return True
    if _C._functorch.maybe_current_level() is not None:
        return True
    cuda = sys.modules.get("torch.cuda")
    return bool(cuda is not None and cuda.is_initialized() and cuda.is_current_stream_capturing())
