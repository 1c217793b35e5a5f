"""Small runs with what calls are given and give back: layers, a loss, a cut of texts, on one or several ranks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

from traincheck.trace import Trace
from traincheck.trace.build import ProcessBuilder, TraceBuilder, digest
from traincheck.trace.values import Object, Tensor

MODEL = "torch.nn.modules.module.Module.__call__"
LINEAR = "torch.nn.modules.linear.Linear.forward"
DROPOUT = "torch.nn.modules.dropout.Dropout.forward"
F_DROPOUT = "torch.nn.functional.dropout"
LOSS = "torch.nn.functional.cross_entropy"
CUT = "texts.cut.truncate"
SEED = "torch.random.manual_seed"
WIDTHS = ((16, 32), (32, 8))


@dataclass(frozen=True)
class Layers:
    """What a run does. Everything with a default is healthy; ``..._from`` is the first faulty step."""

    steps: int = 6
    ranks: int = 1
    seed: int = 0
    batch: int = 8
    micro: int = 2
    evaluate_every: int = 3
    dtype: str = "torch.bfloat16"
    limit: int = 12
    cast_from: int | None = None
    """Layers compute in float32."""
    detached_from: int | None = None
    """What comes out of the first layer asks for no gradient."""
    dropped_from: int | None = None
    """Dropout gives back another dtype and another size than it was given."""
    nothing_from: int | None = None
    """The loss is None."""
    stuck_from: int | None = None
    """The same batches at every step."""
    doubled_from: int | None = None
    """The same batch in every micro-step."""
    shared_from: int | None = None
    """The same batches on all ranks."""
    uncut_from: int | None = None
    """Texts are not cut to the limit."""
    raises_at: int | None = None
    killed: bool = False
    sampled: frozenset[int] = field(default_factory=frozenset)

    def but(self, **changes: object) -> Layers:
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
    def __init__(self, world: Layers, process: ProcessBuilder, rank: int) -> None:
        self.world, self.process, self.rank = world, process, rank
        self.ids = count(1)
        process.function(LINEAR, ["self", "input"])
        process.function(DROPOUT, ["self", "input"])
        process.function(LOSS, ["input", "target"])
        process.function(CUT, ["tokens", "max_length"])
        process.function(SEED, ["seed"])
        process.function(MODEL, ["self", "*args", "**kwargs"])

    def faulty(self, since: int | None, step: int) -> bool:
        return since is not None and step >= since

    def tensor(self, dtype: str, shape: tuple[int, ...], grad: bool) -> Tensor:
        return Tensor(dtype, shape, requires_grad=grad, is_leaf=not grad, identity=1 + next(self.ids))

    def start(self) -> None:
        p = self.process
        p.stage("init")
        with p.call(SEED, [self.world.seed]) as call:
            call.returns(Object("torch._C.Generator", 77))
        p.stage("training")

    def step(self, step: int) -> None:
        p, w = self.process, self.world
        watched = step not in w.sampled
        p.mark(7, int(watched))
        p.step(step)
        if not watched:
            return
        for micro in range(w.micro):
            self.texts(step, micro)
            data = self.data(step, micro)
            self.forward(step, data, training=True)
            if w.killed and step == w.steps:
                return
        p.mark(2, step)
        if w.evaluate_every and step % w.evaluate_every == 0:
            p.stage("evaluation")
            for number in range(2):
                self.forward(step, ("test", number), training=False)
            p.stage("training")

    def data(self, step: int, micro: int) -> object:
        w = self.world
        rank = 0 if self.faulty(w.shared_from, step) else self.rank
        micro = 0 if self.faulty(w.doubled_from, step) else micro
        at = w.stuck_from if w.stuck_from is not None and step >= w.stuck_from else step
        return (w.seed, at, micro, rank)

    def texts(self, step: int, micro: int) -> None:
        p, w = self.process, self.world
        length = w.limit - (step + micro) % 3 + (5 if self.faulty(w.uncut_from, step) else 0)
        given = self.tensor("torch.int64", (w.batch, 40 + step), False)
        where = ("data.py", 7, "batches")
        with p.call(CUT, [given], {"max_length": w.limit}, location=where) as call:
            call.returns(self.tensor("torch.int64", (w.batch, length), False))

    def forward(self, step: int, data: object, training: bool) -> None:
        p, w = self.process, self.world
        # The last batch of an epoch is smaller.
        size = w.batch - 1 if step % 3 == 0 else w.batch
        dtype = "torch.float32" if self.faulty(w.cast_from, step) else w.dtype
        grad = training and not self.faulty(w.detached_from, step)
        x = self.tensor("torch.float32", (size, WIDTHS[0][0]), False)
        with p.call(MODEL, [Object("user.Net", 50), x], location=("train.py", 20, "main")) as outer:
            with p.observe("input", "before"):
                p.state("input", data=digest(data), size=size, role="batch", variable_type="input")
            for number, (_, width) in enumerate(WIDTHS):
                with p.call(LINEAR, [Object("torch.nn.Linear", 60 + number), x]) as call:
                    x = self.tensor(dtype, (size, width), grad)
                    call.returns(x)
                x = self.dropout(step, x)
                if step == w.raises_at:
                    with p.call(DROPOUT, [Object("torch.nn.Dropout", 71), x], raises="builtins.ValueError"):
                        pass
            outer.returns(x)
        with p.call(LOSS, [x], {"target": self.tensor("torch.int64", (size,), False)}) as call:
            loss = self.tensor("torch.float32", (), grad)
            call.returns(None if self.faulty(w.nothing_from, step) else loss)

    def dropout(self, step: int, x: Tensor) -> Tensor:
        p = self.process
        shape, dtype = tuple(x.shape), str(x.dtype)
        if self.faulty(self.world.dropped_from, step):
            shape, dtype = (shape[0], shape[1] - 1), "torch.float16"
        result = self.tensor(dtype, shape, bool(x.requires_grad))
        with p.call(DROPOUT, [Object("torch.nn.Dropout", 70), x]) as outer:
            with p.call(F_DROPOUT, [x, 0.1]) as inner:
                inner.returns(result)
            outer.returns(result)
        return result
