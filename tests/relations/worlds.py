"""Small training runs, built event by event: healthy ones, and ones with a planted fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from traincheck.trace import Trace
from traincheck.trace.build import ProcessBuilder, TraceBuilder, digest

STEP = "torch.optim.adamw.AdamW.step"
ADAMW = "torch.optim.adamw.adamw"
ZERO = "torch.optim.optimizer.Optimizer.zero_grad"
BACKWARD = "torch._tensor.Tensor.backward"
FORWARD = "torch.nn.modules.conv.Conv2d.forward"
CONV = "torch._VariableFunctionsClass.conv2d"
DROPOUT = "torch.nn.functional.dropout"
NAMES = ("conv.bias", "conv.weight", "fc.weight")


@dataclass(frozen=True)
class World:
    """What a run does. Everything with a default is healthy."""

    steps: int = 6
    ranks: int = 1
    seed: int = 0
    names: tuple[str, ...] = NAMES
    accumulate: int = 1
    warmup: int = 0
    """Steps with learning rate 0."""
    evaluate_every: int = 3
    no_zero_from: int | None = None
    frozen: tuple[str, ...] = ()
    not_in_optimizer: tuple[str, ...] = ()
    fused_from: int | None = None
    """From this step on the optimizer does not call ``adamw``."""
    parted_from: int | None = None
    """From this step on ranks do not average gradients."""
    killed: bool = False
    """Ends in the middle of the last step's update."""
    sampled: frozenset[int] = field(default_factory=frozenset)
    """Steps during which observation is off."""
    dtype: str | None = None
    lost: frozenset[tuple[int, str]] = field(default_factory=frozenset)
    """(step, parameter): updates that are too small to move it."""
    grads: dict[str, object] = field(default_factory=dict)
    split: tuple[str, ...] | None = None
    """Parameters of which tensor-parallel ranks hold parts; the parts start equal."""
    marks: bool = True
    """Whether the framework says so."""

    def but(self, **changes: object) -> World:
        return replace(self, **changes)  # type: ignore[arg-type]

    def trace(self) -> Trace:
        return self.builder().trace()

    def builder(self) -> TraceBuilder:
        builder = TraceBuilder(rank=0 if self.ranks > 1 else None)
        processes = [builder, *(builder.process(rank=rank) for rank in range(1, self.ranks))]
        runs = [_Run(self, process, number) for number, process in enumerate(processes)]
        for run in runs:
            run.start()
        for step in range(1, self.steps + 1):
            for run in runs:
                run.step(step)
        for run in runs:
            if not self.killed:
                run.process.mark(8, 0)
        return builder


class _Run:
    def __init__(self, world: World, process: ProcessBuilder, rank: int) -> None:
        self.world, self.process, self.rank = world, process, rank
        self.grad: dict[str, object] = dict.fromkeys(world.names)
        self.data: dict[str, object] = {name: digest((world.seed, name, 0)) for name in world.names}

    def start(self) -> None:
        p, w = self.process, self.world
        with p.observe("baseline", "before", 0):
            for name in w.names:
                p.state(name, data=digest((self.rank, name)), grad=None, **self.facts(name))
            self.group(0)
        p.stage("training")

    def facts(self, name: str) -> dict[str, object]:
        inside = name not in self.world.not_in_optimizer
        facts: dict[str, object] = {} if self.world.dtype is None else {"dtype": self.world.dtype}
        if self.world.split is not None and self.world.marks:
            facts["tensor_model_parallel"] = name in self.world.split
        return {
            **facts,
            "requires_grad": name not in self.world.frozen,
            "in_optimizer": "optimizer/0" if inside else None,
        }

    def group(self, step: int) -> None:
        rate = 0.0 if step <= self.world.warmup else 0.1
        self.process.state("group.0", lr=rate, role="optimizer_group", owner="optimizer", variable_type="dict")

    def step(self, step: int) -> None:
        p, w = self.process, self.world
        p.mark(7, 0 if step in w.sampled else 1)
        p.step(step)
        watched = step not in w.sampled
        if w.no_zero_from is None or step < w.no_zero_from:
            self.zero(watched)
        for micro in range(w.accumulate):
            self.forward(watched)
            self.backward(step, micro, watched)
        self.update(step, watched)
        if w.evaluate_every and step % w.evaluate_every == 0:
            p.stage("evaluation")
            self.forward(watched)
            p.stage("training")

    def look(self, reason: str, moment: str, call: int, *attributes: str) -> None:
        with self.process.observe(reason, moment, call):
            for name in self.world.names:
                values = {"data": self.data[name], "grad": self.grad[name]}
                self.process.state(name, {attribute: values[attribute] for attribute in attributes})

    def zero(self, watched: bool) -> None:
        p = self.process
        if watched:
            call = p.begin(ZERO, location=("train.py", 10, "main"))
            self.look("zero_grad", "before", call.number, "grad")
        self.grad = {n: (g if n in self.world.not_in_optimizer else None) for n, g in self.grad.items()}
        if watched:
            p.end()
            self.look("zero_grad", "after", call.number, "grad")

    def forward(self, watched: bool) -> None:
        if watched:
            with self.process.call(FORWARD), self.process.call(CONV):
                pass

    def backward(self, step: int, micro: int, watched: bool) -> None:
        p, w = self.process, self.world
        parted = w.parted_from is not None and step >= w.parted_from
        if watched:
            call = p.begin(BACKWARD, location=("train.py", 12, "main"))
        for name in w.names:
            if name not in w.frozen:
                rank = self.rank if parted or name in (w.split or ()) else 0
                self.grad[name] = digest((w.seed, name, "grad", step, micro, rank, str(self.grad[name])))
        if watched:
            p.end()
            self.look("backward", "after", call.number, "grad")

    def update(self, step: int, watched: bool) -> None:
        p, w = self.process, self.world
        if watched:
            with p.observe("scheduler", "alone", 0):
                self.group(step)
            call = p.begin(STEP, location=("train.py", 14, "main"))
            self.look("step", "before", call.number, "data", "grad")
            if w.killed and step == w.steps:
                return
            if w.fused_from is None or step < w.fused_from:
                with p.call(ADAMW):
                    pass
        for name in w.names:
            trained = name not in w.frozen and name not in w.not_in_optimizer and (step, name) not in w.lost
            if trained and step > w.warmup and self.grad[name]:
                self.data[name] = digest((str(self.data[name]), str(self.grad[name])))
        if watched:
            p.end()
            self.look("step", "after", call.number, "data")
            p.mark(2, step)


def names_of(count: int) -> tuple[str, ...]:
    return tuple(sorted(f"layer{number}.weight" for number in range(count)))


def texts(invariants: Sequence[object]) -> list[str]:
    return [str(getattr(invariant, "text_description", invariant)) for invariant in invariants]
