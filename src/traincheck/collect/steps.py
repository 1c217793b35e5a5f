"""Steps and stages: where one training step ends and the next begins, told from what the run does.

A step is one completed update of the run's main optimizer (the first one that completes an update). Its window begins
at the first sign of a new iteration after the previous update, the sign that the first step began with: zero_grad of
that optimizer, a training forward of that model, or a backward. Until then (the second optimizer of a GAN, scheduler,
logging, evaluation, taking the next batch) events belong to the step just done. Where that sign stays away (a forgotten
zero_grad), any other that the first iteration gave, and that is not given between iterations too, begins the step.
Taking a batch is no sign, because loaders look ahead; what a step consumed is seen where the model is called.
``traincheck.step()`` takes over for good; an explicit stage wins over what is told from grad mode.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from traincheck.collect.recorder import Recorder
from traincheck.events import STAGES, Mark


def _wraps(optimizer: Any) -> bool:
    return hasattr(optimizer, "optimizer")


def _nothing(*_: object) -> None: ...


class StepTracker:
    """Emits step, stage, micro-step and evaluation-step marks. ``on_begin(step)`` and ``on_update(step)`` tell the
    session.
    """

    def __init__(
        self,
        recorder: Recorder,
        on_begin: Callable[[int], None] = _nothing,
        on_update: Callable[[int], None] = _nothing,
        on_stage: Callable[[str], None] = _nothing,
    ) -> None:
        self._recorder = recorder
        self._on_begin, self._on_update, self._on_stage = on_begin, on_update, on_stage
        self.restart()

    def restart(self) -> None:
        """Know nothing yet, as at the start of a process: a forked child counts its own steps."""
        self.step = 0
        self.updates = 0
        self.stage = "init"
        self._explicit_steps = False
        self._explicit_stages: list[str] = []
        self.cause = 0
        """Number of the call that gives the sign now being told: it belongs to what it begins."""
        self._between = True
        self._in_update = 0
        self._main: weakref.ref[Any] | None = None
        self._first_sign: tuple[str, int] | None = None
        self._inside: set[tuple[str, int]] = set()
        self._outside: set[tuple[str, int]] = set()
        self._early: set[tuple[str, int]] = set()
        self._micro = 0
        self._evaluations = 0
        self._trained_in_train_mode = False
        self._trains_in_eval_mode = False

    # --- steps -------------------------------------------------------------------------------------------------------

    def explicit_step(self) -> int:
        """The loop says that an iteration begins now."""
        self._explicit_steps = True
        self._begin()
        return self.step

    def sign_of_iteration(self, sign: str, who: int = 0) -> None:
        """``zero_grad``, a training ``forward`` or a ``backward`` of the object with identity ``who`` begins."""
        if self._in_update or self._explicit_steps:
            return
        given = (sign, who)
        if self._first_sign is None:
            self._first_sign = given
        if not self.updates:
            self._inside.add(given)
        if not self._between:
            if self._early and given == self._first_sign:  # the step begins here: the earlier signs are given elsewhere
                self._outside |= self._early
                self._early = set()
            elif self._early:
                self._early.add(given)
        elif given == self._first_sign:
            self._begin()
        elif self.updates > 1 and given in self._inside - self._outside:
            self._early = {given}
            self._begin()
        else:
            self._outside.add(given)

    def backward_begins(self) -> None:
        """A root backward begins, perhaps in a closure of ``step``: whoever runs backward is training."""
        if self.stage == "evaluation" and not self._explicit_stages:
            self._trains_in_eval_mode = True
            self._set_stage("training")
        elif self.stage == "init":
            self._set_stage("training")
        self.sign_of_iteration("backward")
        self._micro += 1
        self._recorder.mark(Mark.MICRO_STEP, a=self._micro)

    def update_begins(self, optimizer: Any) -> None:
        """An optimizer's ``step`` is entered. It is a sign too: Lightning runs forward and backward in a closure within
        it.
        """
        if not _wraps(optimizer):
            self.sign_of_iteration("step", id(optimizer))
            self._in_update += 1

    def update_ends(self, optimizer: Any, completed: bool) -> None:
        """An optimizer's ``step`` is left. Wrappers of another optimizer (Accelerate, DeepSpeed) do not count."""
        if _wraps(optimizer):
            return
        self._in_update = max(0, self._in_update - 1)
        if self._in_update or not completed:
            return
        if self._main is None or self._main() is None:
            self._main = weakref.ref(optimizer)
        if self._main() is not optimizer or self._explicit_steps:
            return
        if self._between:  # an update with no sign since the last: iterations begin otherwise than was thought
            self._first_sign = None
            self._begin()
        self._between = True
        self._early = set()
        self.updates += 1
        self._micro = 0
        self._recorder.mark(Mark.STEP_END, a=self.step)
        self._on_update(self.step)

    def _begin(self) -> None:
        self.step += 1
        self._between = False
        self._micro = 0
        self._recorder.mark(Mark.STEP_BEGIN, a=self.step, b=self.cause)
        self._on_begin(self.step)

    # --- stages ------------------------------------------------------------------------------------------------------

    def forward_begins(self, training_mode: bool, grad_enabled: bool, who: int = 0) -> None:
        """An outermost call of the module with identity ``who`` begins, perhaps in a closure of ``step``."""
        evaluating = not grad_enabled or (
            not training_mode and self._trained_in_train_mode and not self._trains_in_eval_mode
        )
        if not self._explicit_stages:
            if evaluating:
                self._set_stage("evaluation")
            else:
                self._set_stage("training")
        if self.stage == "training":
            self._trained_in_train_mode |= training_mode
            self.sign_of_iteration("forward", who)
        elif self.stage == "evaluation":
            self._evaluations += 1
            self._recorder.mark(Mark.EVALUATION_STEP, a=self._evaluations)

    @contextmanager
    def explicit_stage(self, name: str) -> Iterator[None]:
        """``name`` until the block ends. Raises ValueError for a name that is no stage."""
        if name not in STAGES:
            raise ValueError(f"a stage is one of {', '.join(STAGES)}, not {name!r}")
        before = self.stage
        self._explicit_stages.append(name)
        self._set_stage(name)
        try:
            yield
        finally:
            self._explicit_stages.pop()
            self._set_stage(before)

    def enter_stage(self, name: str) -> str | None:
        """A stage told from a call that begins (saving is ``checkpointing``); an explicit one wins. Returns what
        ``leave_stage`` takes.
        """
        if self._explicit_stages or self.stage == name:
            return None
        before = self.stage
        self._set_stage(name)
        return before

    def leave_stage(self, before: str | None) -> None:
        """The call has ended."""
        if before is not None and not self._explicit_stages:
            self._set_stage(before)

    def _set_stage(self, name: str) -> None:
        if name != self.stage:
            self.stage = name
            self._recorder.mark(Mark.STAGE, name, b=self.cause)
            self._on_stage(name)
