"""Which orders are learned of which training loops, and that healthy variants of a loop keep them."""

from __future__ import annotations

import pytest

from traincheck.check import check
from traincheck.infer import Inference, infer
from traincheck.relations.sequence_roles import Role, role_of
from traincheck.trace import Trace
from traincheck.trace.build import TraceBuilder

from .loops import CALL, Loop, broken
from .worlds import BACKWARD, STEP, ZERO

ORDERS = ("FunctionLeadRelation", "FunctionCoverRelation")


def learned(*traces: Trace) -> Inference:
    return infer(list(traces), relations=ORDERS)


def texts(inference: Inference) -> set[str]:
    return {str(invariant.text_description) for invariant in inference}


def lead(one: str, two: str) -> str:
    return f"{one}() always leads to {two}(), before it is called again"


def cover(one: str, two: str) -> str:
    return f"{one}() always comes before {two}(), anew for every call"


Z, F, B, C, S, L = (
    "Optimizer.zero_grad",
    "Module.__call__",
    "Tensor.backward",
    "clip_grad.clip_grad_norm_",
    "AdamW.step",
    "LRScheduler.step",
)
DATA = "_BaseDataLoaderIter.__next__"


def test_a_plain_loop() -> None:
    """Each order that follows from two others is left out, and what both relations say is said once."""
    assert texts(learned(Loop().trace())) == {
        lead(Z, F),
        lead(Z, B),
        lead(B, C),
        lead(B, S),
        lead(C, S),
        lead(L, S),
        cover(DATA, Z),
        cover(Z, B),
        cover(F, B),
        cover(B, C),
        cover(B, S),
        cover(C, S),
    }


def test_gradient_accumulation() -> None:
    found = texts(learned(Loop(accumulate=2).trace()))
    assert {cover(F, B), cover(B, S), cover(Z, S), lead(Z, B)} <= found
    assert not {cover(Z, B), lead(B, S), lead(B, C)} & found


def test_cleared_at_the_end() -> None:
    found = texts(learned(Loop(zero_last=True, accumulate=3).trace()))
    assert {cover(S, Z), lead(S, Z)} <= found
    assert check(broken("no zero_grad", 3, zero_last=True)(), learned(Loop(zero_last=True).trace())).findings


def test_scheduler_every_step() -> None:
    found = texts(learned(Loop(schedule_every_step=True).trace()))
    assert {lead(S, L), lead(L, S)} <= found
    assert cover(L, S) not in found  # the constructor's own step is not the loop's
    early = broken("scheduler before step", schedule_every_step=True)()
    (finding, *_) = check(early, learned(Loop(schedule_every_step=True).trace())).findings
    assert finding.first_step == 1
    assert finding.title == "LRScheduler.step() was called again without AdamW.step() in between"
    assert "ahead of its schedule" in finding.meaning


def test_a_closure_holds_the_loop() -> None:
    found = texts(learned(Loop(closure=True).trace()))
    assert {lead(Z, B), cover(Z, B), cover(F, B)} <= found
    assert not any(S in text and B in text for text in found)


def test_a_loader_that_looks_ahead_teaches_no_batch_per_iteration() -> None:
    """At the end of an epoch it has taken its last batch one iteration early."""
    assert not any(DATA in text for text in texts(learned(Loop(looks_ahead=True).trace())))
    # ... nor when the run ended before an epoch did.
    assert not any(DATA in text for text in texts(learned(Loop(epochs=1, batches=5).trace())))


def test_collectives_of_the_loop() -> None:
    found = learned(Loop(reduces=True, ranks=2).trace())
    assert cover("distributed_c10d.all_reduce", C) in texts(found)
    result = check(Loop(ranks=2).trace(), found)
    assert "did not exchange" in result.findings[0].meaning


HEALTHY = {
    "plain": Loop(),
    "accumulating": Loop(accumulate=2),
    "zero last": Loop(zero_last=True),
    "scheduled": Loop(schedule_every_step=True),
    "two ranks": Loop(ranks=2, reduces=True),
    "closure": Loop(closure=True),
    "looks ahead": Loop(looks_ahead=True),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_variants_are_silent(name: str) -> None:
    loop = HEALTHY[name]
    invariants = learned(loop.trace())
    assert len(invariants) <= 20
    for variant in (
        loop.but(epochs=1),
        loop.but(epochs=7, batches=2),
        loop.but(evaluate=not loop.evaluate),
        loop.but(batches=5),
        loop.but(killed=True),
        loop.but(sampled=frozenset({1, 4, 5})),
        loop.but(epochs=4, sampled=frozenset(range(2, 9, 2))),
        *([loop.but(accumulate=3)] if loop.accumulate > 1 else []),
    ):
        wrong = [outcome.text for outcome in check(variant.trace(), invariants).outcomes if outcome.violations]
        assert not wrong, (variant, wrong)


def test_two_references_keep_what_both_show() -> None:
    one, two = Loop(), Loop(accumulate=2)
    both = texts(learned(one.trace(), two.trace()))
    assert both == texts(learned(two.trace(), one.trace()))
    assert cover(B, S) in both
    assert cover(Z, B) not in both


CNN, GPT = (tuple(f"torch.nn.modules.{name}.Layer{n}.forward" for n in range(20)) for name in ("conv", "attention"))


def test_reruns_of_one_program_ask_for_all_its_parts() -> None:
    one, two = (Loop(others=CNN, epochs=epochs).trace() for epochs in (3, 4))
    assert cover(C, S) in texts(learned(one, two))
    assert check(broken("no clip", others=CNN)(), learned(one, two)).findings


def test_several_programs_ask_for_what_every_loop_does() -> None:
    """Another program may do without clipping, a loader, or this optimizer, clear gradients last, or sum them up."""
    invariants = learned(Loop(others=CNN).trace(), Loop(others=GPT, epochs=4).trace())
    assert texts(invariants) == {lead(Z, B), lead(Z, F), lead(S, Z), lead(C, Z), cover(F, B), cover(B, S), cover(B, C)}
    third = tuple(f"torch.nn.modules.rnn.Layer{n}.forward" for n in range(20))
    for healthy in (Loop(zero_last=True), Loop(accumulate=2), Loop(zero_last=True, accumulate=3)):
        assert not check(healthy.but(others=third).trace(), invariants).findings
    for fault in ("no clip", "same batch", "no scheduler"):
        assert not check(broken(fault, 0, others=third)(), invariants).findings
    for fault, since, missing in (("no zero_grad", 3, Z), ("step first", 1, B), ("no backward", 3, B)):
        (finding, *_) = check(broken(fault, since, others=third)(), invariants).findings
        assert f"{missing}()" in finding.title


def test_too_short_a_run_teaches_nothing() -> None:
    assert not len(learned(Loop(epochs=1, batches=2).trace()))


def test_a_rank_that_parts_unlearns() -> None:
    builder = TraceBuilder(rank=0)
    for rank in (0, 1):
        process = builder if rank == 0 else builder.process(rank=1)
        for _ in range(4):
            process.step()
            for function in (CALL, BACKWARD, STEP) if rank else (ZERO, CALL, BACKWARD, STEP):
                with process.call(function):
                    pass
        process.mark(8, 0)
    found = texts(learned(builder.trace()))
    assert cover(B, S) in found
    assert not any(Z in text for text in found)


def test_set_up_may_be_told_apart_by_stage() -> None:
    """Clearing once more before the loop begins is not the loop."""
    builder = TraceBuilder()
    with builder.call(ZERO):
        pass
    for _ in range(5):
        builder.step()
        for function in (ZERO, BACKWARD, STEP):
            with builder.call(function):
                pass
        builder.stage("training")
    builder.mark(8, 0)
    found = texts(learned(builder.trace()))
    assert f"{lead(Z, B)} when stage is training" in found


@pytest.mark.parametrize(
    ("function", "role"),
    [
        ("torch.optim.adam.Adam.step", Role.STEP),
        ("accelerate.optimizer.AcceleratedOptimizer.step", Role.STEP),
        ("deepspeed.runtime.engine.DeepSpeedEngine.step", Role.STEP),
        ("torch.optim.lr_scheduler.LRScheduler.step", Role.SCHEDULE),
        ("torch.optim.lr_scheduler.ReduceLROnPlateau.step", Role.SCHEDULE),
        ("accelerate.scheduler.AcceleratedScheduler.step", Role.SCHEDULE),
        ("torch.amp.grad_scaler.GradScaler.step", Role.SCALER_STEP),
        ("torch.cuda.amp.grad_scaler.GradScaler.unscale_", Role.UNSCALE),
        ("torch.optim.optimizer.Optimizer.zero_grad", Role.ZERO),
        ("torch.nn.modules.module.Module.zero_grad", Role.ZERO),
        ("torch._tensor.Tensor.backward", Role.BACKWARD),
        ("accelerate.accelerator.Accelerator.backward", Role.BACKWARD),
        ("torch.autograd.function.Function.backward", None),
        ("torch.nn.utils.clip_grad.clip_grad_norm_", Role.CLIP),
        ("accelerate.accelerator.Accelerator.clip_grad_norm_", Role.CLIP),
        ("torch.nn.modules.module.Module.__call__", Role.FORWARD),
        ("torch.utils.data.dataloader._BaseDataLoaderIter.__next__", Role.DATA),
        ("torch.distributed.distributed_c10d.all_reduce", Role.COLLECTIVE),
        ("torch.distributed.distributed_c10d.barrier", None),
        ("torch.profiler.profiler.profile.step", None),
        ("torch.distributed.pipelining.schedules.PipelineScheduleSingle.step", None),
        ("torch.nn.functional.relu", None),
    ],
)
def test_parts_of_a_loop(function: str, role: Role | None) -> None:
    assert role_of(function) is role
