"""Every relation keeps the laws of the kit."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from traincheck.relations.registry import ALL
from traincheck.relations.tables import Tables

from . import kit
from .kit import Fault, Subject
from .loops import Loop, broken
from .values_world import Layers
from .worlds import BACKWARD, NAMES, STEP, ZERO, World, names_of

ONE, TWO = World(), World(ranks=2)

CONTAIN = Subject(
    relation="APIContainRelation",
    healthy=lambda seed: World(seed=seed).trace(),
    like={
        "shorter": World(seed=3, steps=3).trace,
        "longer": World(steps=11).trace,
        "two ranks": TWO.trace,
        "never evaluated": World(evaluate_every=0).trace,
        "killed": World(killed=True).trace,
        "sampled": World(steps=12, sampled=frozenset({2, 3, 5, 8, 9, 10})).trace,
        "other widths": World(names=names_of(5)).trace,
    },
    faults={
        "missing zero_grad": Fault(World(no_zero_from=4).trace, 4, (BACKWARD, "conv.weight", "zero_grad")),
        "never zero_grad": Fault(World(no_zero_from=1).trace, 2, (BACKWARD, "fc.weight", "train.py:12")),
        "frozen": Fault(World(frozen=("conv.bias",)).trace, 1, (BACKWARD, "conv.bias", "requires_grad")),
        "wrong optimizer": Fault(World(not_in_optimizer=("fc.weight",)).trace, 1, (STEP, "fc.weight")),
        "fused": Fault(World(fused_from=3).trace, 3, (STEP, "adamw")),
        "one rank of two": Fault(World(ranks=2, frozen=("conv.weight",)).trace, 1, ("conv.weight", BACKWARD)),
        "between gaps": Fault(World(no_zero_from=5, sampled=frozenset({2, 6, 7})).trace, 5, (BACKWARD, "conv.weight")),
    },
    speaks_of=("AdamW.step()", "Tensor.backward()", "Optimizer.zero_grad()", "Parameter.grad", "None", "adamw"),
)

CONSISTENCY = Subject(
    relation="ConsistencyRelation",
    healthy=lambda seed: World(seed=seed, ranks=2).trace(),
    like={
        "shorter": World(seed=3, steps=3, ranks=2).trace,
        "three ranks": World(ranks=3).trace,
        "one rank": ONE.trace,
        "killed": World(ranks=2, killed=True).trace,
        "sampled": World(ranks=2, steps=9, sampled=frozenset({2, 3, 5})).trace,
    },
    faults={
        "parted": Fault(World(ranks=2, parted_from=4).trace, 4, ("conv.weight", "rank 0", "rank 1", "averaged")),
        "parted of three": Fault(World(ranks=3, parted_from=2).trace, 2, ("fc.weight", "rank 2")),
    },
    speaks_of=("Parameter.grad", "Parameter.data", "same name", "different process"),
)

HEALTHY_LAYERS = {
    "shorter": Layers(seed=3, steps=3).trace,
    "longer": Layers(steps=11).trace,
    "other batch size": Layers(batch=5).trace,
    "two ranks": Layers(ranks=2).trace,
    "no accumulation": Layers(micro=1).trace,
    "never evaluated": Layers(evaluate_every=0).trace,
    "raised": Layers(raises_at=2).trace,
    "killed": Layers(killed=True).trace,
    "sampled": Layers(steps=12, sampled=frozenset({2, 3, 5, 8, 9, 10})).trace,
}

OUTPUT = Subject(
    relation="ConsistentOutputRelation",
    healthy=lambda seed: Layers(seed=seed).trace(),
    like=HEALTHY_LAYERS,
    faults={
        "no autocast": Fault(Layers(cast_from=4).trace, 4, ("Linear.forward", "torch.float32", "autocast")),
        "no gradient": Fault(Layers(detached_from=2).trace, 2, ("Linear.forward", "requires_grad=False", "frozen")),
        "no loss": Fault(Layers(nothing_from=3).trace, 3, ("cross_entropy", "no tensor")),
        "one rank": Fault(Layers(ranks=2, cast_from=5).trace, 5, ("Linear.forward", "torch.bfloat16")),
    },
    speaks_of=("Linear.forward()", "dtype=torch.bfloat16", "requires_grad=True", "stage is training"),
)

INPUT_OUTPUT = Subject(
    relation="ConsistentInputOutputRelation",
    healthy=lambda seed: Layers(seed=seed).trace(),
    like=HEALTHY_LAYERS,
    faults={
        "dropout casts": Fault(Layers(dropped_from=3).trace, 3, ("Dropout.forward", "torch.float16", "input.dtype")),
        "between gaps": Fault(
            Layers(dropped_from=5, sampled=frozenset({2, 4})).trace, 5, ("Dropout.forward", "torch.float16")
        ),
    },
    speaks_of=("Dropout.forward()", "input.dtype", "input.shape", "Linear.forward()", "input.shape[0]"),
)

DISTINCT = Subject(
    relation="DistinctArgumentRelation",
    healthy=lambda seed: Layers(seed=seed, ranks=2).trace(),
    like=HEALTHY_LAYERS,
    faults={
        "same batch": Fault(
            Layers(stuck_from=3).trace, 4, ("Module.__call__", "input", "does not move on", "train.py")
        ),
        "same micro-batch": Fault(Layers(doubled_from=2).trace, 2, ("Module.__call__", "within a step")),
        "same on ranks": Fault(Layers(ranks=2, shared_from=5).trace, 5, ("Module.__call__", "rank 0", "Ranks see")),
    },
    speaks_of=("Module.__call__()", "different step", "different rank", "the same process"),
)

THRESHOLD = Subject(
    relation="ThresholdRelation",
    healthy=lambda seed: Layers(seed=seed).trace(),
    like=HEALTHY_LAYERS | {"another limit": Layers(limit=9).trace},
    faults={"not cut": Fault(Layers(uncut_from=4).trace, 4, ("cut.truncate", "max_length", "shape[1]", "data.py:7"))},
    speaks_of=("cut.truncate()", "output[0].shape[1] ≤ max_length"),
)

LIKE_LOOPS = {
    "shorter": Loop(epochs=2).trace,
    "longer": Loop(epochs=5, batches=4).trace,
    "one epoch": Loop(epochs=1).trace,
    "two ranks": Loop(ranks=2).trace,
    "never evaluated": Loop(evaluate=False).trace,
    "killed": Loop(killed=True).trace,
    "sampled": Loop(sampled=frozenset({2, 3, 5, 8})).trace,
}

LEAD = Subject(
    relation="FunctionLeadRelation",
    healthy=lambda seed: Loop(epochs=3 + seed).trace(),
    like=LIKE_LOOPS,
    faults={
        "no backward": Fault(broken("no backward", 4), 5, ("Tensor.backward", "zero_grad", "train.py:10")),
        "no step": Fault(broken("no step", 4), 5, ("AdamW.step", "Tensor.backward", "train.py:12")),
        "scheduler twice": Fault(broken("scheduler twice"), 3, ("LRScheduler.step", "AdamW.step", "train.py:15")),
        "scheduler first": Fault(broken("scheduler first", 0), 0, ("LRScheduler.step", "ahead of its schedule")),
        "no clipping": Fault(broken("no clip", 2), 3, ("clip_grad_norm_", "Tensor.backward")),
        "one rank of two": Fault(broken("no step", 2, ranks=2), 3, ("AdamW.step",)),
        "between gaps": Fault(
            broken("no backward", 5, sampled=frozenset({2, 8})), 6, ("Tensor.backward", "zero_grad", "train.py:10")
        ),
    },
    speaks_of=("Optimizer.zero_grad() always leads to Tensor.backward()", "LRScheduler.step()", "clip_grad_norm_()"),
)

COVER = Subject(
    relation="FunctionCoverRelation",
    healthy=lambda seed: Loop(epochs=3 + seed).trace(),
    like=LIKE_LOOPS,
    faults={
        "never zero_grad": Fault(broken("no zero_grad"), 1, ("zero_grad", "Tensor.backward", "add up", "train.py:12")),
        "missing zero_grad": Fault(broken("no zero_grad", 4), 4, ("zero_grad", "Tensor.backward", "train.py:12")),
        "no backward": Fault(broken("no backward", 3), 3, ("Tensor.backward", "clip_grad_norm_")),
        "step before backward": Fault(broken("step first"), 1, ("AdamW.step", "Tensor.backward", "train.py:14")),
        "clipped too late": Fault(broken("clip last"), 1, ("clip_grad_norm_", "AdamW.step")),
        "one batch for all": Fault(broken("same batch", 2), 3, ("__next__", "zero_grad", "same data")),
        "sampled": Fault(broken("no zero_grad", 4, sampled=frozenset({2, 8})), 4, ("zero_grad",)),
    },
    speaks_of=("Tensor.backward() always comes before AdamW.step()", "zero_grad()", "clip_grad_norm_()"),
)

SUBJECTS = {
    subject.relation: subject
    for subject in (CONTAIN, CONSISTENCY, OUTPUT, INPUT_OUTPUT, COVER, LEAD, DISTINCT, THRESHOLD)
}
FAULTS = [(s, name) for s in SUBJECTS.values() for name in s.faults]

subjects = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=lambda subject: subject.relation)


def test_every_relation_takes_part() -> None:
    assert set(SUBJECTS) == {relation.name for relation in ALL}


@subjects
def test_healthy_is_silent(subject: Subject) -> None:
    kit.healthy_is_silent(subject)


@pytest.mark.parametrize(("subject", "name"), FAULTS, ids=[f"{s.relation}-{name}" for s, name in FAULTS])
def test_fault_is_named(subject: Subject, name: str) -> None:
    kit.fault_is_named(subject, subject.faults[name])


@subjects
def test_file_round_trip(subject: Subject) -> None:
    kit.file_round_trip(subject)


@subjects
def test_same_input_same_bytes(subject: Subject) -> None:
    kit.same_input_same_bytes(subject)


@subjects
def test_words_are_useful(subject: Subject) -> None:
    kit.words_are_useful(subject)


worlds = st.builds(
    World,
    steps=st.integers(1, 5),
    ranks=st.integers(1, 3),
    seed=st.integers(0, 3),
    accumulate=st.integers(1, 2),
    warmup=st.integers(0, 2),
    evaluate_every=st.integers(0, 2),
    no_zero_from=st.none() | st.integers(1, 4),
    frozen=st.sampled_from([(), NAMES[:1]]),
    not_in_optimizer=st.sampled_from([(), NAMES[1:]]),
    fused_from=st.none() | st.integers(1, 4),
    parted_from=st.none() | st.integers(1, 4),
    killed=st.booleans(),
    sampled=st.frozensets(st.integers(1, 5), max_size=3),
)

_HYPOTHESIS = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@subjects
@_HYPOTHESIS
@given(world=worlds, data=st.data())
def test_live_is_offline(subject: Subject, world: World, data: st.DataObject) -> None:
    trace = world.trace()
    tables = Tables.of(trace)
    last = {process: max([0, *tables.states.filter(process=process)["seq"]]) for process in tables.processes}
    count = data.draw(st.integers(1, 6))
    points = {
        p: sorted(data.draw(st.lists(st.integers(0, end), min_size=count, max_size=count))) for p, end in last.items()
    }
    cuts = [{process: points[process][n] for process in points} for n in range(count)]
    kit.live_is_offline(subject, trace, cuts)


@subjects
@_HYPOTHESIS
@given(world=worlds)
def test_split_is_whole(subject: Subject, world: World) -> None:
    kit.split_is_whole(subject, world.trace())


@subjects
@_HYPOTHESIS
@given(world=worlds)
def test_nothing_learned_is_broken_by_its_own_reference(subject: Subject, world: World) -> None:
    from traincheck.check import check
    from traincheck.infer import infer

    trace = world.trace()
    result = check(trace, infer([trace], relations=[subject.relation]))
    assert {outcome.outcome for outcome in result.outcomes} <= {"passed"}


def test_zero_is_zero() -> None:
    """The rules the product is about come out of a plain training loop."""
    texts = [invariant.text_description for invariant in kit.learned(CONTAIN)]
    assert "AdamW.step() changes every Parameter.data: non-None --> non-None" in texts
    assert "Tensor.backward() changes every Parameter.grad: None --> non-None" in texts
    zero = "Optimizer.zero_grad() changes every Parameter.grad: non-None --> None where grad is non-None"
    assert zero in texts
    assert ZERO
