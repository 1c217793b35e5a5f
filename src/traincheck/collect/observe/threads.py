"""Which gradients a thread may look at.

torch crashes when one thread reads ``.grad`` of a tensor while another sets it, in a backward, in ``zero_grad`` or by
hand. Where one thread trains, all gradients are looked at. Where several do, each looks at those alone that the
program itself is just working on in that thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

_in_backward: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
"""Number of the backward that runs on this thread, -1 outside of any. Threads of the autograd engine run parts of the
program's own backward, and may start another one inside (checkpointing): they are no further trainers."""

_PATIENCE_S: Final = 2.0


class _Own(threading.local):
    trains = False


class Trainers:
    """The threads that trained so far: ran a backward, an optimizer's step, or cleared gradients."""

    def __init__(self) -> None:
        self._own = _Own()
        self._lock = threading.RLock()  # collecting garbage while it is held may run anything
        self._count = 0

    def trains(self) -> None:
        """This thread trains. Its first time waits until no thread looks at all gradients any more, but never for
        long: an observer must not stand in the way for good.
        """
        if self._own.trains or _in_backward() != -1:
            return
        held = self._lock.acquire(timeout=_PATIENCE_S)
        self._own.trains = True
        self._count += 1
        if held:
            self._lock.release()

    @property
    def alone(self) -> bool:
        """Whether no thread but this one ever trained."""
        return self._count == int(self._own.trains)

    @contextmanager
    def looking(self) -> Iterator[bool]:
        """Gives ``alone``, which stays true inside."""
        if not self.alone:
            yield False
            return
        with self._lock:
            yield self.alone


def leaves(roots: Iterable[Tensor]) -> dict[int, Tensor]:
    """Leaf tensors into which a backward from ``roots`` accumulates, by ``id``; walks the whole graph."""
    found: dict[int, Tensor] = {}
    waiting: list[Any] = []
    for root in roots:
        if root.grad_fn is not None:
            waiting.append(root.grad_fn)
        elif root.requires_grad:
            found[id(root)] = root
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor):
            found[id(variable)] = variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found
