"""The observer: at every outermost optimizer step of a process, the state of the training goes to a file.

<records>/<pid>-<start>/header.json         rank, world size, pid
<records>/<pid>-<start>/step-000001.json    entries of all tensors, see ``Observer._finish``
<records>/<pid>-<start>/step-000001.pt      contents that no earlier file of the process has
<records>/<pid>-<start>/end.json, end.pt    that the process ended in order, and with what state
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from .ending import SCHEMA, Ending
from .generators import Generators
from .naming import Models, inputs
from .tensors import Contents, digest, plain


class Observer:
    """Watches one process through torch's global hooks. A fault of its own is noted and never reaches the program."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self._models = Models()
        self._contents = Contents()
        self._generators = Generators(ending.seeds)
        self._calls = threading.local()
        """``depth``: of module calls in this thread."""
        self._optimizers: list[Any] = []
        self._running: list[tuple[Any, FrameType]] = []
        """Optimizer steps under way, the outermost first, with the frames they run in."""
        self._open: dict[str, Any] = {}
        self._inputs: list[dict[str, str]] = []

    def install(self) -> None:
        """Watch from now on. Children that are forked off later have records of their own."""
        from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        register_module_forward_pre_hook(self._called)
        register_module_forward_hook(self._returned, always_call=True)
        register_optimizer_step_pre_hook(self._step_begins)
        register_optimizer_step_post_hook(self._step_ends)
        os.register_at_fork(after_in_child=self._forked)
        self._ending.observed = True
        self._ending.final = self._final

    # -- hooks: nothing is raised from here ---------------------------------------------------------------------------

    def _called(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        depth = getattr(self._calls, "depth", 0)
        self._calls.depth = depth + 1
        if depth or not torch.is_grad_enabled():
            return
        caller = sys._getframe(1)
        self._guarded(lambda: self._input(module, args, caller.f_locals.get("kwargs") or {}))

    def _returned(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._calls.depth = max(0, getattr(self._calls, "depth", 0) - 1)

    def _step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        frame = sys._getframe(1)
        while self._running and not _runs(self._running[-1][1], frame):
            self._running.pop()  # that step was left by an exception
        self._running.append((optimizer, frame))
        if len(self._running) == 1:
            self._guarded(lambda: self._begin(optimizer))

    def _step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        while self._running and self._running.pop()[0] is not optimizer:
            pass
        if not self._running:
            self._guarded(lambda: self._finish(optimizer))

    def _guarded(self, work: Callable[[], None]) -> None:
        probe = sys.modules.get("traincheck.collect._probe")  # what we read is none of the program's doing
        mute, unmute = getattr(probe, "mute", None), getattr(probe, "unmute", None)
        if mute is not None:
            mute()
        try:
            with torch.no_grad():
                work()
        except Exception as error:
            self._ending.fault(error)
        finally:
            if unmute is not None:
                unmute()

    # -- what is written ----------------------------------------------------------------------------------------------

    def _input(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._models.seen(module):
            found = inputs(module, args, kwargs)
            self._inputs.append({name: digest(plain(tensor)) for name, tensor in sorted(found.items())})

    def _begin(self, optimizer: Any) -> None:
        if not any(known is optimizer for known in self._optimizers):
            self._optimizers.append(optimizer)
        entry, names = self._contents.entry, self._names(optimizer)
        gradients = {
            **dict(self._models.parameters()),
            **{names[id(parameter)]: parameter for parameter in _of(optimizer)},
        }
        self._open = {
            "before": self._state(optimizer, names),
            "gradients": {
                name: entry(parameter.grad) if parameter.grad is not None else None
                for name, parameter in gradients.items()
            },
            "generators_before": self._generators.states(),
        }

    def _finish(self, optimizer: Any) -> None:
        if not self._open:
            raise RuntimeError("a step ended that was not seen to begin")
        names = self._names(optimizer)
        number = self._ending.steps + 1
        record = {
            "schema": SCHEMA,
            "step": number,
            "optimizer": self._number(optimizer),
            "inputs": self._inputs,
            **self._open,
            "after": self._state(optimizer, names),
            "optimizer_state": self._optimizer_state(optimizer, names),
            "generators_after": self._generators.states(),
        }
        self._open, self._inputs = {}, []
        if number == 1:
            self._ending.write("header.json", self._header())
        self._contents.save(os.path.join(self._ending.folder, f"step-{number:06}.pt"))
        self._ending.write(f"step-{number:06}.json", record)
        self._ending.steps = number

    def _final(self) -> dict[str, Any] | None:
        if not self._ending.steps:
            return None
        with torch.no_grad():
            state = self._model_state()
        self._contents.save(os.path.join(self._ending.folder, "end.pt"))
        return state

    def _header(self) -> dict[str, Any]:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            rank, world = distributed.get_rank(), distributed.get_world_size()
        else:
            rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        return {"schema": SCHEMA, "pid": os.getpid(), "rank": rank, "world_size": world, "torch": torch.__version__}

    # -- state --------------------------------------------------------------------------------------------------------

    def _model_state(self) -> dict[str, Any]:
        entry = self._contents.entry
        return {
            "parameters": {name: entry(parameter) for name, parameter in self._models.parameters()},
            "buffers": {name: entry(buffer) for name, buffer in self._models.buffers()},
        }

    def _state(self, optimizer: Any, names: dict[int, str]) -> dict[str, Any]:
        """The models, and parameters that only the optimizer has (flat fp32 partitions of mixed precision)."""
        state = self._model_state()
        own = {names[id(p)]: p for p in _of(optimizer) if names[id(p)] not in state["parameters"]}
        state["masters"] = {name: self._contents.entry(parameter) for name, parameter in own.items()}
        return state

    def _names(self, optimizer: Any) -> dict[int, str]:
        names = {id(parameter): name for name, parameter in self._models.parameters()}
        number = self._number(optimizer)
        for group, held in enumerate(optimizer.param_groups):
            for place, parameter in enumerate(held["params"]):
                names.setdefault(id(parameter), f"optimizer{number}.group{group}.param{place}")
        return names

    def _number(self, optimizer: Any) -> int:
        return next(number for number, known in enumerate(self._optimizers, start=1) if known is optimizer)

    def _optimizer_state(self, optimizer: Any, names: dict[int, str]) -> dict[str, Any]:
        """State and numeric settings by parameter: how parameters are grouped does not matter."""
        found: dict[str, Any] = {}
        for group in optimizer.param_groups:
            settings = {key: value for key, value in group.items() if key != "params"}
            for parameter in group["params"]:
                name = names[id(parameter)]
                self._collect(found, name, dict(optimizer.state.get(parameter, {})))
                self._collect(found, f"{name}.setting", settings)
        return found

    def _collect(self, found: dict[str, Any], name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found[name] = self._contents.entry(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = self._contents.number(value)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._collect(found, f"{name}.{key}", item)
        elif isinstance(value, (list, tuple)):
            for place, item in enumerate(value):
                self._collect(found, f"{name}.{place}", item)

    def _forked(self) -> None:
        self._contents, self._running, self._open, self._inputs = Contents(), [], {}, []


def _of(optimizer: Any) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _runs(frame: FrameType, inside: FrameType) -> bool:
    """Whether ``frame`` is among the callers of ``inside``."""
    here: FrameType | None = inside
    while here is not None:
        if here is frame:
            return True
        here = here.f_back
    return False
