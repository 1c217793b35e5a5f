"""A small trace with one of everything."""

from __future__ import annotations

from traincheck.events import Mark
from traincheck.trace.build import ProcessBuilder, TraceBuilder, digest
from traincheck.trace.values import MISSING, Error, Identity, Object, Symbol, Tensor

RELU = "torch.relu"
STEP = "torch.optim.sgd.SGD.step"


def train(process: ProcessBuilder, steps: int = 3) -> None:
    """A few steps of something like training."""
    process.function(RELU, ["input", "*rest", "**options"], "builtin")
    for step in range(steps):
        number = process.step()
        if number == 2:
            process.stage("training")
        arguments = [Tensor(shape=(2, 3), requires_grad=True, identity=11), 1.5, True, None, "x", 10**30]
        with process.call(RELU, arguments, {"lr": float("nan")}, location=("train.py", 3, "main")) as call:
            call.capture("args[0].dtype", Symbol("dtype", "torch.float32"))
            call.capture("args[0].shape", Symbol("shape", [2, 3]))
            call.capture("self.grad", MISSING)
            call.capture("self.bad", Error("RuntimeError"))
            call.capture("self.id", Identity(99))
            call.capture("self", Object("torch.nn.modules.linear.Linear", 12))
            call.capture("args[6]", digest("batch"))
            with process.call("inner", raises="builtins.ValueError"):
                pass
            with process.thread("worker"), process.call("other"):
                pass
            call.returns((1, "2"))
        with process.call(STEP) as call:
            for moment in ("before", "after"):
                with process.observe(STEP, moment):
                    process.state("model.w", data=digest((step, moment)), grad=None, lr=0.1)
                    process.state("model.b", data=digest("b"), dtype=Symbol("dtype", "torch.bfloat16"), gone=MISSING)
        process.mark(Mark.STEP_END, number)


def everything(ranks: int = 2, steps: int = 3) -> TraceBuilder:
    """A run of ``ranks`` processes; the last one is inside a call when it stops."""
    builder = TraceBuilder(rank=0)
    processes = [builder, *(builder.process(rank=rank) for rank in range(1, ranks))]
    for process in processes:
        train(process, steps)
    processes[-1].begin("torch.add")
    return builder
