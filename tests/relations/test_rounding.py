"""An update that rounding swallows is no violation; a parameter that is not trained is one."""

from __future__ import annotations

import pytest

from traincheck.check import check
from traincheck.infer import infer
from traincheck.relations.registry import BY_NAME

from .worlds import NAMES, World, texts

WORLD = World(dtype="torch.float32", names=NAMES)
RULE = "AdamW.step() changes every Parameter.data: non-None --> non-None"
LOST = frozenset((step, "conv.bias") for step in (2, 3, 5))


@pytest.mark.parametrize("reference", [WORLD, WORLD.but(lost=LOST)], ids=["never lost", "lost before"])
def test_an_update_that_is_lost_among_others_says_nothing(reference: World) -> None:
    learned = infer([reference.trace()])
    assert RULE in texts(learned)
    for rerun in (WORLD, WORLD.but(lost=LOST), WORLD.but(lost=LOST | {(1, "fc.weight")})):
        result = check(rerun.but(seed=4).trace(), learned)
        assert result.summary["violated"] == result.summary["error"] == 0


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (WORLD.but(not_in_optimizer=("conv.bias",)), ("conv.bias",)),
        (WORLD.but(frozen=("conv.bias",)), ("conv.bias",)),
        (WORLD.but(lost=frozenset((3, name) for name in NAMES)), NAMES),
        (WORLD.but(lost=LOST, dtype="torch.bfloat16"), ("conv.bias",)),
        (WORLD.but(lost=LOST, dtype=None), ("conv.bias",)),
    ],
    ids=["not in the optimizer", "frozen", "nothing moved", "narrow format", "format not known"],
)
def test_what_is_not_trained_is_still_named(fault: World, named: tuple[str, ...]) -> None:
    learned = infer([WORLD.trace()])
    result = check(fault.trace(), learned)
    broken = [o for o in result.outcomes if o.outcome == "violated" and o.text.startswith(RULE.split(":")[0])]
    assert broken
    assert any(set(named) <= set(finding.tensors) for finding in result.findings)


def test_what_tells_it_is_observed() -> None:
    rule = next(one for one in infer([WORLD.trace()]) if RULE in one.text_description)
    assert BY_NAME[rule.relation].needs(rule).facts >= {"grad.present", "in_optimizer", "dtype"}
