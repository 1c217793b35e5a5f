"""The laws of the kit on random runs with arguments and results: any cut, any split, any reference."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traincheck.check import check
from traincheck.infer import infer
from traincheck.relations.tables import Tables

from . import kit
from .kit import Subject
from .test_laws import DISTINCT, INPUT_OUTPUT, OUTPUT, THRESHOLD
from .values_world import Layers

SUBJECTS = (OUTPUT, INPUT_OUTPUT, DISTINCT, THRESHOLD)
subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.relation)

since = st.none() | st.integers(1, 4)
worlds = st.builds(
    Layers,
    steps=st.integers(1, 5),
    ranks=st.integers(1, 3),
    seed=st.integers(0, 2),
    batch=st.integers(2, 9),
    micro=st.integers(1, 3),
    evaluate_every=st.integers(0, 2),
    cast_from=since,
    detached_from=since,
    dropped_from=since,
    nothing_from=since,
    stuck_from=since,
    doubled_from=since,
    shared_from=since,
    uncut_from=since,
    raises_at=since,
    killed=st.booleans(),
    sampled=st.frozensets(st.integers(1, 5), max_size=3),
)

_HYPOTHESIS = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@subjects
@_HYPOTHESIS
@given(world=worlds, data=st.data())
def test_live_is_offline(subject: Subject, world: Layers, data: st.DataObject) -> None:
    trace = world.trace()
    tables = Tables.of(trace)
    last = {process: max([0, *tables.captures.filter(process=process)["seq"]]) for process in tables.processes}
    count = data.draw(st.integers(1, 8))
    points = {
        p: sorted(data.draw(st.lists(st.integers(0, end), min_size=count, max_size=count))) for p, end in last.items()
    }
    kit.live_is_offline(subject, trace, [{process: points[process][n] for process in points} for n in range(count)])


@subjects
@_HYPOTHESIS
@given(world=worlds)
def test_split_is_whole(subject: Subject, world: Layers) -> None:
    kit.split_is_whole(subject, world.trace())


@subjects
@_HYPOTHESIS
@given(world=worlds)
def test_nothing_learned_is_broken_by_its_own_reference(subject: Subject, world: Layers) -> None:
    trace = world.trace()
    result = check(trace, infer([trace], relations=[subject.relation]))
    assert {outcome.outcome for outcome in result.outcomes} <= {"passed"}
