"""Pairs of variables count as the lower rank's, however the processes were numbered."""

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
