"""Drivers: the hooks by which steps and stages are found, and how they share a probe with an observation point.

A driver's hooks always run, also in steps that are left out; an observation point's only while the run is observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from traincheck.collect.steps import StepTracker

Args = tuple[Any, ...]
Kwargs = "dict[str, Any] | None"
Enter = Callable[..., Any]
Exit = Callable[..., None]


class Point(Protocol):
    """What an observation point offers: either may be None."""

    enter: Enter | None
    exit: Exit | None


class Drivers:
    """Step and stage hooks by role (see ``catalog``)."""

    def __init__(self, tracker: StepTracker, grad_enabled: Callable[[], bool]) -> None:
        self._tracker = tracker
        self._grad_enabled = grad_enabled
        self._backward_depth = 0

    def hooks(self, role: str) -> tuple[Enter | None, Exit | None]:
        """(enter, exit) of a role; (None, None) if it drives nothing."""
        return {
            "Optimizer:step": (self._step_enter, self._step_exit),
            "Optimizer:zero_grad": (self._sign, None),
            "Module:zero_grad": (self._sign, None),
            "Tensor:backward": (self._backward_enter, self._backward_exit),
            "autograd.backward": (self._backward_enter, self._backward_exit),
            "Module:__call__": (self._forward_enter, None),
            "save": (self._save_enter, self._save_exit),
        }.get(role, (None, None))

    @contextmanager
    def _because_of(self, call: int) -> Iterator[None]:
        """What is told in here is told by the call of this number, which has begun already."""
        self._tracker.cause = call
        try:
            yield
        finally:
            self._tracker.cause = 0

    def _step_enter(self, probe: Any, args: Args, kwargs: Any, call: int) -> None:
        with self._because_of(call):
            self._tracker.update_begins(args[0] if args else None)

    def _step_exit(self, probe: Any, token: Any, args: Args, kwargs: Any, result: Any, error: Any, call: int) -> None:
        with self._because_of(call):
            self._tracker.update_ends(args[0] if args else None, error is None)

    def _sign(self, probe: Any, args: Args, kwargs: Any, call: int) -> None:
        with self._because_of(call):
            self._tracker.sign_of_iteration("zero_grad", id(args[0]) if args else 0)

    def _backward_enter(self, probe: Any, args: Args, kwargs: Any, call: int) -> None:
        self._backward_depth += 1
        if self._backward_depth == 1:
            with self._because_of(call):
                self._tracker.backward_begins()

    def _backward_exit(
        self, probe: Any, token: Any, args: Args, kwargs: Any, result: Any, error: Any, call: int
    ) -> None:
        self._backward_depth = max(0, self._backward_depth - 1)

    def _forward_enter(self, probe: Any, args: Args, kwargs: Any, call: int) -> None:
        if args and not self._backward_depth:
            training = bool(getattr(args[0], "training", True))
            with self._because_of(call):
                self._tracker.forward_begins(training, self._grad_enabled(), id(args[0]))

    def _save_enter(self, probe: Any, args: Args, kwargs: Any, call: int) -> str | None:
        with self._because_of(call):
            return self._tracker.enter_stage("checkpointing")

    def _save_exit(self, probe: Any, token: Any, args: Args, kwargs: Any, result: Any, error: Any, call: int) -> None:
        self._tracker.leave_stage(token)


DRIVER_ROLES = frozenset(
    {
        "Optimizer:__init__",
        "Optimizer:step",
        "Optimizer:zero_grad",
        "Module:zero_grad",
        "Tensor:backward",
        "autograd.backward",
        "Module:__call__",
        "DataLoaderIter:workers",
        "compile",
        "dynamo",
        "jit",
        "worker",
    }
)
"""Roles whose probes stay on in steps that are left out."""


def compose(
    driver: tuple[Enter | None, Exit | None], point: Point | None, observing: Callable[[], bool]
) -> tuple[Enter | None, Exit | None]:
    """One (enter, exit) that runs the driver's hooks always and the point's while observing; on the way out the point
    comes first, because
    what it sees belongs to the step that the call ends.
    """
    d_enter, d_exit = driver
    if point is None:
        return d_enter, d_exit
    p_enter, p_exit = point.enter, point.exit

    def enter(probe: Any, args: Args, kwargs: Any, call: int) -> Any:
        d_token = d_enter(probe, args, kwargs, call) if d_enter is not None else None
        p_token = p_enter(probe, args, kwargs, call) if p_enter is not None and observing() else None
        return d_token, p_token

    def leave(probe: Any, token: Any, args: Args, kwargs: Any, result: Any, error: Any, call: int) -> None:
        d_token, p_token = token if token is not None else (None, None)
        if p_exit is not None and (p_token is not None or observing()):  # what was entered must be left
            p_exit(probe, p_token, args, kwargs, result, error, call)
        if d_exit is not None:
            d_exit(probe, d_token, args, kwargs, result, error, call)

    return enter, leave
