from __future__ import annotations

from traincheck.events import Mark
from traincheck.relations.tables import Tables, Watch
from traincheck.trace.build import TraceBuilder
from traincheck.trace.manifest import Manifest

from .worlds import World


def test_a_call_cut_by_a_gap_is_not_judged() -> None:
    b = TraceBuilder()
    b.step()
    with b.call("m.whole"):
        pass
    with b.call("m.cut"):
        b.mark(Mark.OBSERVING, 0)
    with b.call("m.inside"):
        pass
    b.state("w", data=1)
    b.mark(Mark.OBSERVING, 1)
    with b.call("m.later"):
        pass
    b.state("w", data=2)
    tables = Tables.of(b.trace())
    assert tables.calls["function"].to_list() == ["m.whole", "m.later"]
    assert tables.calls["span"].to_list() == [0, 1]
    assert tables.states["int"].to_list() == [2]


def test_the_unfinished_step_of_a_killed_process_is_not_judged() -> None:
    whole = Tables.of(World(steps=3).trace())
    for kind in ("running", "exception", "signal"):
        trace = World(steps=3, killed=True).trace()
        trace.processes = [type(info)(**{**vars(info), "end": kind}) for info in trace.processes]
        killed = Tables.of(trace)
        assert killed.calls["step"].max() == 2
        assert killed.states["step"].max() == 2
        assert set(killed.calls["outcome"].cast(str)) == {"returned"}
    assert whole.calls["step"].max() == 3


def test_a_call_that_ends_behind_the_horizon_is_open() -> None:
    b = TraceBuilder()
    with b.call("m.train"):
        b.step()
        b.mark(Mark.STEP_END, 1)
        b.step()
    trace = b.trace()
    trace.processes = [type(info)(**{**vars(info), "end": "running"}) for info in trace.processes]
    calls = Tables.of(trace).calls
    assert calls["outcome"].cast(str).to_list() == ["open"]
    assert calls["end_seq"].to_list() == [None]


def test_steps_are_windows() -> None:
    windows = Tables.of(World(steps=3, ranks=2).trace()).steps()
    assert [sorted(window.states["step"].unique()) for window in windows] == [[0], [1], [2], [3]]
    assert [window.processes for window in windows] == [(0, 1), (0, 1), (0, 1), ()]


def test_a_look_is_never_cut_in_two() -> None:
    tables = Tables.of(World(steps=2).trace())
    for at in range(60):
        parts = tables.cut([{0: at}])
        seen = [set(part.states["observation"]) for part in parts]
        assert not seen[0] & seen[1]


def test_what_counts_as_watched() -> None:
    trace = World(steps=1).trace()
    assert Tables.of(trace).watch.watches("any.function")
    trace.manifest = Manifest(plan={"scope": "boundary", "packages": ["torch"], "state": True})
    watch = Tables.of(trace).watch
    assert watch.watches("torch.optim.adamw.AdamW.step")
    assert not watch.watches("torch.relu")
    trace.manifest = Manifest(plan={"scope": "full", "packages": ["torch"], "state": False})
    watch = Tables.of(trace).watch
    assert watch.watches("torch.never.imported")
    assert not watch.watches("mine.function")
    assert not watch.watches("torch.optim.adamw.AdamW.left_out")
    assert not watch.watches("torch.compiler.is_exporting")
    assert not watch.watches("torch.never._imported.function")
    assert not watch.watches("torch.never.imported._function")
    assert Watch().watches("anything")
