"""How a process of a replay ends: by itself, by an exception of its own, or without a word.

Loaded before the program: it imports nothing that is not loaded anyway until there is something to write.
"""

from __future__ import annotations

import atexit
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SCHEMA = 1


class Ending:
    """The folder of this process's records, and what it leaves there when it ends.

    ``header.json`` from the first step on, ``exception.json`` for an uncaught exception, ``end.json`` when the
    interpreter ends in order, ``fault-<n>.json`` for a fault of the observer, which never reaches the program.
    """

    def __init__(self, records: str) -> None:
        self._records = records
        self._folder: str | None = None
        self._faults = 0
        self._told = False
        self._over = False
        self._before = sys.excepthook
        self._exit = os._exit
        self.observed = False
        """Whether torch is observed in this process."""
        self.steps = 0
        """Optimizer steps so far."""
        self.final: Callable[[], Any] | None = None
        """Gives the state that the program ends with."""
        self.seeds: dict[str, Any] = {}
        """States that the system gave the generators of Python and numpy, before the program could seed them."""

    def watch(self) -> None:
        """Look at how this process ends, and at nothing else."""
        sys.excepthook = self._raised
        atexit.register(self._ended)
        os.register_at_fork(after_in_child=self._forked)
        setattr(os, "_exit", self._leave)  # noqa: B010  the only end that no handler sees

    def python_seeded(self, module: Any) -> None:
        """Python's ``random`` has just been imported. Raises nothing."""
        try:
            self.seeds["python"] = module.getstate()[1][:-1]
        except Exception as error:
            self.fault(error)

    def numpy_seeded(self, module: Any) -> None:
        """``numpy.random`` has just been imported. Raises nothing."""
        try:
            self.seeds["numpy"] = tuple(module.get_state()[1].tolist())
        except Exception as error:
            self.fault(error)

    @property
    def folder(self) -> str:
        """This process's own folder; made when it is first asked for."""
        if self._folder is None:
            path = os.path.join(self._records, f"{os.getpid()}-{time.monotonic_ns()}")
            os.makedirs(path, exist_ok=True)
            self._folder = path
        return self._folder

    def write(self, name: str, value: Any) -> None:
        """Write ``value`` as JSON, whole or not at all. Raises OSError."""
        import json

        path = os.path.join(self.folder, name)
        with open(path + ".next", "w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump(value, file)
        os.replace(path + ".next", path)

    def fault(self, error: BaseException) -> None:
        """Leave word of a fault of the observer. Raises nothing."""
        import traceback

        self._faults += 1
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        try:  # noqa: SIM105  contextlib may not be loaded
            self.write(f"fault-{self._faults}.json", {"step": self.steps, "text": text[-4000:]})
        except OSError:
            pass

    def _raised(self, kind: type[BaseException], error: BaseException, trace: Any) -> None:
        self._tell(kind, error)
        self._before(kind, error, trace)

    def _tell(self, kind: type[BaseException], error: BaseException | None) -> None:
        self._told = True
        failures = getattr(error, "failures", None)  # torchrun: exit codes of its workers
        codes = {}
        if isinstance(failures, dict):
            codes = {str(rank): getattr(failure, "exitcode", None) for rank, failure in failures.items()}
        try:
            self.write(
                "exception.json",
                {
                    "type": f"{kind.__module__}.{kind.__qualname__}",
                    "text": str(error)[:2000],
                    "rank": os.environ.get("RANK"),
                    "steps": self.steps,
                    "at_ns": time.monotonic_ns(),
                    "workers": codes,
                },
            )
        except Exception as fault:
            self.fault(fault)

    def _leave(self, status: int) -> Any:
        """``os._exit`` of a process that has trained: some programs end so on purpose."""
        if self.steps:
            self._ended()
        self._exit(status)

    def _ended(self) -> None:
        if self._over:
            return
        self._over = True
        if not self._told and hasattr(sys, "last_type") and sys.last_type is not None:
            self._tell(sys.last_type, getattr(sys, "last_value", None))  # the program has an excepthook of its own
        if not self.observed:
            return
        final = None
        if self.final is not None:
            try:
                final = self.final()
            except Exception as error:
                self.fault(error)
        try:
            self.write(
                "end.json", {"steps": self.steps, "rank": os.environ.get("RANK"), "pid": os.getpid(), "final": final}
            )
        except Exception as error:
            self.fault(error)

    def _forked(self) -> None:
        """A child has records of its own."""
        self._folder, self.steps, self._faults, self._told, self._over = None, 0, 0, False, False
