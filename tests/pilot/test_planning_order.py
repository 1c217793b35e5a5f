"""Order of trials: randomised blocks, one seed, names that say nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traincheck.pilot.plan import Budgets, Draft, SolverChoice
from traincheck.pilot.planning import order

BUDGETS = Budgets(time_s=1, working_time_s=1, tokens=1, device_seconds=1)
ARMS = ("control", "optional", "encouraged", "placebo")


def a_draft(trials=3, arms=ARMS, solvers=("one", "two"), seed=0, name="study"):
    chosen = tuple(SolverChoice(name=solver, agent="react", model="m") for solver in solvers)
    return Draft(schema=1, name=name, cases=("x",), arms=arms, solvers=chosen, trials=trials, seed=seed,
                 budgets=BUDGETS)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), trials=st.integers(1, 6), arms=st.integers(1, 4), cases=st.integers(1, 3))
def test_every_block_holds_every_arm_once_and_nothing_else(seed, trials, arms, cases):
    found = order.trials(a_draft(trials, ARMS[:arms], seed=seed), [f"case-{each}" for each in range(cases)])
    blocks = {}
    for trial in found:
        blocks.setdefault(trial.block, []).append(trial)
    assert len(blocks) == trials * cases * 2
    for block in blocks.values():
        assert sorted(trial.arm for trial in block) == sorted(ARMS[:arms])
        assert len({(trial.case, trial.solver) for trial in block}) == 1
        assert [trial.position for trial in block] == list(range(block[0].position, block[0].position + arms))
    assert [trial.position for trial in found] == list(range(len(found)))
    assert len({trial.id for trial in found}) == len(found)


def test_a_round_holds_each_case_and_solver_once():
    found = order.trials(a_draft(trials=4), ["a", "b"])
    per_round = 2 * 2 * len(ARMS)
    for number in range(4):
        part = found[number * per_round : (number + 1) * per_round]
        assert {(trial.case, trial.solver) for trial in part} == {(c, s) for c in "ab" for s in ("one", "two")}


def test_the_seed_decides_and_the_same_draft_gives_the_same_plan():
    one = order.trials(a_draft(seed=1), ["a", "b"])
    assert one == order.trials(a_draft(seed=1), ["a", "b"])
    other = order.trials(a_draft(seed=2), ["a", "b"])
    assert [trial.arm for trial in one] != [trial.arm for trial in other]
    assert {trial.id for trial in one}.isdisjoint(trial.id for trial in other)


def test_arms_come_in_every_place_of_a_block_about_as_often():
    found = order.trials(a_draft(trials=200, solvers=("one",), arms=("control", "optional")), ["a"])
    first = sum(trial.arm == "control" for trial in found if trial.position % 2 == 0)
    assert 70 <= first <= 130  # 200 fair draws: six standard deviations are 42


def test_names_say_nothing_of_arm_or_order():
    found = order.trials(a_draft(trials=50, solvers=("one",)), ["a"])
    assert [trial.id for trial in found] != sorted(trial.id for trial in found)
    # Names do not change when only the arms' order within blocks does: they are drawn apart.
    for trial in found:
        assert not any(word in trial.id for word in ("control", "optional", "a-", "one"))
    letters = {arm: "".join(trial.id[2:] for trial in found if trial.arm == arm) for arm in ARMS}
    shares = [text.count("b") / len(text) for text in letters.values()]
    assert max(shares) - min(shares) < 0.1


@pytest.mark.parametrize("trials", [1, 5])
def test_one_trial_each_is_one_block(trials):
    assert len(order.trials(a_draft(trials, solvers=("one",)), ["a"])) == trials * len(ARMS)
