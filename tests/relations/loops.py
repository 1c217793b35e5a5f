"""Training loops as sequences of calls, built event by event: healthy ones, and ones in which a call is misplaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from traincheck.trace import Trace
from traincheck.trace.build import ProcessBuilder, TraceBuilder

from .worlds import BACKWARD, STEP, ZERO

CALL = "torch.nn.modules.module.Module.__call__"
CLIP = "torch.nn.utils.clip_grad.clip_grad_norm_"
SCHEDULE = "torch.optim.lr_scheduler.LRScheduler.step"
STEP_LR = "torch.optim.lr_scheduler.StepLR.__init__"
NEXT = "torch.utils.data.dataloader._BaseDataLoaderIter.__next__"
ENGINE = "torch.autograd.backward"
REDUCE = "torch.distributed.distributed_c10d.all_reduce"
UPDATE = "torch.optim.adamw.adamw"
ITEM = "torch._C.TensorBase.item"


@dataclass(frozen=True)
class Loop:
    """What a run does in what order. Everything with a default is healthy."""

    epochs: int = 3
    batches: int = 3
    ranks: int = 1
    accumulate: int = 1
    schedule_every_step: bool = False
    zero_last: bool = False
    evaluate: bool = True
    looks_ahead: bool = False
    """The loader takes a batch before the one before it is used, as accelerate's does."""
    reduces: bool = False
    closure: bool = False
    """Everything happens inside the optimizer's step."""
    killed: bool = False
    sampled: frozenset[int] = field(default_factory=frozenset)
    others: tuple[str, ...] = ()
    """What else the model calls: by this, programs differ."""
    fault: str = ""
    since: int = 1
    """Step from which on the fault is there."""

    def but(self, **changes: object) -> Loop:
        return replace(self, **changes)  # type: ignore[arg-type]

    def trace(self) -> Trace:
        builder = TraceBuilder(rank=0 if self.ranks > 1 else None)
        for process in [builder, *(builder.process(rank=rank) for rank in range(1, self.ranks))]:
            _Run(self, process).run()
        return builder.trace()


class _Run:
    def __init__(self, loop: Loop, process: ProcessBuilder) -> None:
        self.loop, self.process, self.step, self.watched = loop, process, 0, True

    def run(self) -> None:
        loop = self.loop
        with self.process.call(STEP_LR), self.process.call(SCHEDULE):
            pass
        for _ in range(loop.epochs):
            self.epoch()
        if not loop.killed:
            self.process.mark(8, 0)

    def epoch(self) -> None:
        loop, batches = self.loop, self.loop.batches * self.loop.accumulate
        if self.is_faulty("scheduler first"):
            self.call(SCHEDULE, 9)
        for batch in range(batches):
            if loop.looks_ahead:
                for _ in range(2 if batch == 0 else 1):
                    self.batch(ends=batch == batches - 1)
            else:
                self.batch(ends=False)
            self.iteration(batch)
        if not loop.looks_ahead:
            self.batch(ends=True)
        if not loop.schedule_every_step:
            self.schedule()
        if loop.evaluate:
            self.process.stage("evaluation")
            for batch in range(2):
                self.call(CALL, 30)
                if loop.reduces and batch:
                    self.call(REDUCE, 31)

    def iteration(self, batch: int) -> None:
        loop = self.loop
        first, last = batch % loop.accumulate == 0, batch % loop.accumulate == loop.accumulate - 1
        if first:
            self.step += 1
            self.watched = self.step not in loop.sampled
            if loop.sampled:
                self.process.mark(7, int(self.watched))
            self.process.step(self.step)
        if first and not loop.zero_last and not loop.closure:
            self.zero()
        self.process.stage("training")
        if loop.closure:
            with self.process.call(STEP, location=("train.py", 20, "main")):
                self.zero()
                self.learn()
            self.process.mark(2, self.step)
            return
        self.learn()
        if last:
            self.update()

    def learn(self) -> None:
        self.call(CALL, 11)
        for function in self.loop.others:
            self.call(function, 11)
        if self.is_faulty("step first"):
            self.call(STEP, 14, inside=UPDATE)
        if not self.is_faulty("no backward"):
            self.call(BACKWARD, 12, inside=ENGINE)

    def update(self) -> None:
        loop = self.loop
        if loop.reduces:
            self.call(REDUCE, 16)
        if not self.is_faulty("no clip", "clip last"):
            self.call(CLIP, 13)
        if self.is_faulty("scheduler before step"):
            self.call(SCHEDULE, 15)
        if not self.is_faulty("step first", "no step"):
            self.call(STEP, 14, inside=UPDATE)
        if self.is_faulty("clip last"):
            self.call(CLIP, 13)
        if loop.schedule_every_step and not self.is_faulty("scheduler before step"):
            self.schedule()
        if loop.zero_last:
            self.zero()
        self.call(ITEM, 17)
        self.process.mark(2, self.step)

    def schedule(self) -> None:
        if not self.is_faulty("no scheduler", "scheduler first"):
            self.call(SCHEDULE, 15)
        if self.is_faulty("scheduler twice"):
            self.call(SCHEDULE, 15)

    def zero(self) -> None:
        if not self.is_faulty("no zero_grad"):
            self.call(ZERO, 10)

    def batch(self, ends: bool) -> None:
        if self.watched and not self.is_faulty("same batch"):
            with self.process.call(NEXT, raises="builtins.StopIteration" if ends else None):
                pass

    def call(self, function: str, line: int, inside: str | None = None) -> None:
        if self.watched:
            with self.process.call(function, location=("train.py", line, "main")):
                if inside is not None:
                    with self.process.call(inside):
                        pass

    def is_faulty(self, *faults: str) -> bool:
        return self.loop.fault in faults and self.step >= self.loop.since


def broken(fault: str, since: int = 1, **changes: object) -> Callable[[], Trace]:
    """A run with the fault."""
    return Loop(fault=fault, since=since).but(**changes).trace
