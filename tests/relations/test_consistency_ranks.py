"""Ranks: pairs count as the lower rank's, however processes were numbered; split parameters are no replicas."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from traincheck.check import check
from traincheck.infer import infer
from traincheck.trace.build import TraceBuilder

from .worlds import World, _Run


@dataclass(frozen=True)
class Reversed(World):
    """The processes of the higher ranks began first."""

    def builder(self) -> TraceBuilder:
        builder = TraceBuilder(rank=self.ranks - 1)
        processes = [builder, *(builder.process(rank=rank) for rank in reversed(range(self.ranks - 1)))]
        runs = [_Run(self, process, self.ranks - 1 - number) for number, process in enumerate(processes)]
        for run in runs:
            run.start()
        for step in range(1, self.steps + 1):
            for run in runs:
                run.step(step)
        for run in runs:
            run.process.mark(8, 0)
        return builder


@pytest.mark.parametrize("parted", [None, 3])
@pytest.mark.parametrize("by_step", [False, True])
def test_the_order_in_which_processes_began_says_nothing(parted: int | None, by_step: bool) -> None:
    invariants = infer([World(ranks=3).trace()], relations=["ConsistencyRelation"])
    one, two = (
        check(world(ranks=3, parted_from=parted).trace(), invariants, by_step=by_step) for world in (World, Reversed)
    )
    assert {outcome.outcome for outcome in one.outcomes} == ({"passed"} if parted is None else {"violated"})
    for left, right in zip(one.outcomes, two.outcomes, strict=True):
        assert left.ranks == right.ranks == (0, 1)
        assert (left.applications, left.violations, left.steps, left.violated_steps) == (
            right.applications,
            right.violations,
            right.steps,
            right.violated_steps,
        )


def test_the_same_is_learned() -> None:
    one, two = (infer([world(ranks=2).trace()], relations=["ConsistencyRelation"]) for world in (World, Reversed))
    assert [invariant.id for invariant in one] == [invariant.id for invariant in two]


SPLIT = ("conv.bias", "fc.weight")


def test_parameters_that_ranks_hold_in_parts_are_no_replicas() -> None:
    healthy = World(ranks=2, split=SPLIT)
    invariants = infer([healthy.trace()], relations=["ConsistencyRelation"])
    said = {
        text for text in map(str, (i.text_description for i in invariants)) if "tensor_model_parallel is False" in text
    }
    assert {text.split()[0] for text in said} == {"Parameter.data", "Parameter.grad"}
    for other, outcome in ((healthy.but(seed=5), "passed"), (healthy.but(seed=5, parted_from=3), "violated")):
        result = check(other.trace(), invariants)
        assert {one.outcome for one in result.outcomes} == {outcome}
    assert [finding.first_step for finding in result.findings] == [3, 3]
    assert {finding.tensors for finding in result.findings} == {("conv.weight",)}
    assert all("Tensor-parallel ranks hold" in finding.meaning for finding in result.findings)


def test_without_a_mark_no_rule_is_made_of_replicas() -> None:
    # What is split cannot be told from what is not: no rule is better than a wrong one.
    assert len(infer([World(ranks=2, split=SPLIT, marks=False).trace()], relations=["ConsistencyRelation"])) == 0
