"""Which thread trains which model.

Several threads may each train a model of their own. What one of them changes must not be looked at from another: torch
crashes when ``.grad`` is read while another thread's backward sets it, and what is read halfway is no state.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import torch

from traincheck.collect.observe.models import Model

_in_backward: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
"""Number of the backward that runs on this thread, -1 outside of any. In one, on a thread of the autograd engine or on
the program's, a checkpointed module is called again, and may start a backward inside: that is no other training."""


class Worker:
    """A thread of the program. Only the thread itself holds it, so it is gone when the thread is."""

    __slots__ = ("__weakref__", "trains")

    def __init__(self) -> None:
        self.trains = False


class Threads(threading.local):
    """The threads that were met; each sees its own ``worker``."""

    def __init__(self) -> None:
        self.worker = Worker()

    def calls(self, model: Model) -> None:
        """This thread calls a model: it has it from now on."""
        if _in_backward() == -1:
            model.worker = weakref.ref(self.worker)

    def trains(self) -> None:
        """This thread starts a backward, updates parameters or clears gradients."""
        if not self.worker.trains and _in_backward() == -1:
            self.worker.trains = True

    def foreign(self, model: Model) -> bool:
        """Whether another thread that is still there called the model last."""
        worker = model.worker
        return worker is not None and worker() not in (None, self.worker)

    def busy(self, model: Model) -> bool:
        """Whether another thread that is still there called the model last, and trains."""
        worker = None if model.worker is None else model.worker()
        return worker is not None and worker is not self.worker and worker.trains
