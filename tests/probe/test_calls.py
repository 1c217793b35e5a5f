"""What is recorded of calls: parents, outcomes, hooks, muting, outermost."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.probe.conftest import OpenRecording, Recording
from traincheck.collect import _probe
from traincheck.events import Outcome


def test_parents_follow_nesting_and_recursion(recording: Recording) -> None:
    def down(n: int) -> int:
        return n if n == 0 else probe(n - 1) + leaf(0)

    leaf = _probe.Probe(abs, 2)
    probe = _probe.Probe(down, 1)
    assert _probe.current_call() == 0
    assert probe(3) == 0
    probe(0)
    assert _probe.current_call() == 0
    calls = recording.calls()
    by_number = {c.number: c for c in calls}
    assert [(c.function, by_number[c.parent].function if c.parent else 0) for c in calls] == [
        (1, 0), (1, 1), (1, 1), (1, 1), (2, 1), (2, 1), (2, 1), (1, 0),
    ]  # fmt: skip
    assert [c.parent for c in calls[:4]] == [0, 1, 2, 3]
    assert [c.parent for c in calls[4:7]] == [3, 2, 1]
    assert all(c.outcome == Outcome.RETURNED and c.end is not None and c.begin <= c.end for c in calls)


def test_current_call(recording: Recording) -> None:
    seen: list[int] = []

    def f() -> None:
        seen.append(_probe.current_call())

    outer = _probe.Probe(lambda: (f(), inner(), f()), 1)
    inner = _probe.Probe(f, 2)
    outer()
    assert seen == [1, 2, 1]


class Own(BaseException): ...


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, Own])
def test_exceptions(recording: Recording, error: type[BaseException]) -> None:
    raised = error("x")

    def f(fail: bool) -> None:
        if fail:
            raise raised

    inner = _probe.Probe(f, 2)

    def g() -> None:
        with contextlib.suppress(ValueError):
            inner(True)
        inner(False)

    outer = _probe.Probe(g, 1)
    if error is ValueError:
        outer()
    else:
        with pytest.raises(error) as caught:
            outer()
        assert caught.value is raised
    outer_, *inners = recording.calls()
    assert [c.parent for c in inners] == [1] * len(inners)
    assert inners[0].outcome == Outcome.RAISED
    kind, name = recording.symbols.by_id[inners[0].exception]
    assert (kind, name) == (8, f"{error.__module__}.{error.__qualname__}")
    assert outer_.outcome == (Outcome.RETURNED if error is ValueError else Outcome.RAISED)
    assert [c.outcome for c in inners[1:]] == ([Outcome.RETURNED] if error is ValueError else [])


def test_a_wrong_call_is_the_functions_own_error(recording: Recording) -> None:
    def f(a: int) -> None: ...

    with pytest.raises(TypeError, match=r"f\(\) missing 1 required positional argument: 'a'"):
        _probe.Probe(f, 1)()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"len\(\) takes exactly one argument \(0 given\)"):
        _probe.Probe(len, 1)()
    assert [c.outcome for c in recording.calls()] == [1, 1]


def test_generators_are_recorded_at_creation(recording: Recording) -> None:
    def numbers() -> Iterator[int]:
        inner()
        yield 1
        inner()
        yield 2

    inner = _probe.Probe(int, 2)
    made = _probe.Probe(numbers, 1)()

    def consume() -> list[int]:
        return list(made)

    _probe.Probe(consume, 3)()
    assert [(c.function, c.parent) for c in recording.calls()] == [(1, 0), (3, 0), (2, 2), (2, 2)]


def test_a_generator_left_open_ends_no_call(recording: Recording) -> None:
    def numbers() -> Iterator[int]:
        try:
            yield 1
        finally:
            inner()

    inner = _probe.Probe(int, 2)
    made = _probe.Probe(numbers, 1)()
    next(made)
    _probe.Probe(made.close, 3)()
    assert [(c.function, c.parent, c.outcome) for c in recording.calls()] == [(1, 0, 0), (3, 0, 0), (2, 2, 0)]


def test_async_functions(recording: Recording) -> None:
    async def work(n: int) -> int:
        inner(n)
        await asyncio.sleep(0)
        inner(n)
        return n

    inner = _probe.Probe(abs, 2, captures=[(1, 0, (("arg", 0, None),))])
    probe = _probe.Probe(work, 1)

    async def main() -> list[int]:
        return await asyncio.gather(probe(1), probe(2))

    assert asyncio.run(main()) == [1, 2]
    assert asyncio.iscoroutinefunction(probe)
    calls = recording.calls()
    assert [c.function for c in calls] == [1, 1, 2, 2, 2, 2]
    assert all(c.parent == 0 and c.outcome == 0 for c in calls)
    assert [recording.captured(c)[1] for c in calls[2:]] == [1, 2, 1, 2]


def test_threads_have_their_own_parents(recording: Recording) -> None:
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        for _ in range(200):
            outer()

    outer = _probe.Probe(lambda: inner(-1), 1)
    inner = _probe.Probe(abs, 2)
    main = _probe.Probe(lambda: [t.join() for t in started], 3)
    started = [threading.Thread(target=work) for _ in range(4)]
    for thread in started:
        thread.start()
    main()
    calls = recording.calls()
    assert len(calls) == 4 * 400 + 1
    assert len({c.thread for c in calls}) == 5
    by_number = {c.number: c for c in calls}
    for call in calls:
        if call.function == 2:
            assert by_number[call.parent].function == 1
            assert by_number[call.parent].thread == call.thread
        else:
            assert call.parent == 0
    kinds = [kind for kind, _ in recording.symbols.asked]
    assert kinds.count(100) == 5


def test_hooks(recording: Recording) -> None:
    seen: list[Any] = []

    def enter(probe: Any, args: Any, kwargs: Any, call: int) -> str:
        seen.append(("enter", probe, args, kwargs, call, _probe.muted(), _probe.current_call()))
        probe.__wrapped__(0)
        quiet()
        return "token"

    def leave(probe: Any, token: Any, args: Any, kwargs: Any, result: Any, error: Any, call: int) -> None:
        seen.append(("exit", probe, token, args, kwargs, result, error, call, _probe.muted()))
        quiet()

    quiet = _probe.Probe(int, 9)

    def f(a: int, b: int = 0) -> int:
        if a < 0:
            raise ValueError(a)
        return a + b

    p = _probe.Probe(f, 1, enter=enter, exit=leave)
    assert p(1, b=2) == 3
    with pytest.raises(ValueError, match="-1") as caught:
        p(-1)
    assert seen == [
        ("enter", p, (1,), {"b": 2}, 1, 1, 1),
        ("exit", p, "token", (1,), {"b": 2}, 3, None, 1, 1),
        ("enter", p, (-1,), None, 2, 1, 2),
        ("exit", p, "token", (-1,), None, None, caught.value, 2, 1),
    ]
    assert all(_probe.is_probe(entry[1]) for entry in seen)
    assert [c.function for c in recording.calls()] == [1, 1]
    assert _probe.faults() == []


def test_one_hook_only(recording: Recording) -> None:
    seen: list[Any] = []
    _probe.Probe(int, 1, exit=lambda p, token, *rest: seen.append(token))()
    _probe.Probe(int, 1, enter=lambda p, *rest: seen.append(rest))("7")
    assert seen == [None, (("7",), None, 2)]


def test_record_off_runs_hooks_only_and_enabled_off_nothing(recording: Recording) -> None:
    seen: list[int] = []
    p = _probe.Probe(int, 1, enter=lambda probe, a, k, call: seen.append(call), capture_all=True)
    p.record = False
    p()
    p.enabled = False
    p()
    p.enabled = p.record = True
    p()
    assert seen == [0, 1]
    simple = _probe.Probe(int, 2)
    simple.record = False
    simple()
    assert [c.function for c in recording.calls()] == [1]


def test_muting(recording: Recording) -> None:
    seen: list[Any] = []
    p = _probe.Probe(int, 1, enter=lambda *a: seen.append(a))
    quiet = _probe.Mute(lambda: (p(), p()))
    quiet()
    _probe.mute()
    _probe.mute()
    assert _probe.muted() == 2
    p()
    _probe.unmute()
    p()
    _probe.unmute()
    with pytest.raises(RuntimeError, match="without mute"):
        _probe.unmute()
    failing = _probe.Mute(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing()
    assert _probe.muted() == 0
    thread = threading.Thread(target=p)
    _probe.mute()
    thread.start()
    thread.join()
    _probe.unmute()
    assert len(seen) == 1
    assert len(recording.calls()) == 1


def test_outermost(recording: Recording) -> None:
    hooks: list[Any] = []

    def make(id: int, **options: Any) -> Any:
        def f(n: int) -> int:
            if n == -1:
                raise ValueError
            return 0 if n == 0 else probes[id](n - 1) + probes[5 - id](0)

        return _probe.Probe(f, id, enter=lambda *a: hooks.append(id), **options)

    probes = {2: make(2, outermost=1, group=3), 3: make(3, outermost=1, group=3)}
    other = _probe.Probe(lambda: probes[2](1), 7, outermost=1, group=4)
    plain = _probe.Probe(lambda: probes[2](1), 8, group=3)
    groupless = _probe.Probe(lambda: probes[2](1), 9)
    probes[2](2)
    with pytest.raises(ValueError):  # noqa: PT011
        probes[3](-1)
    other()
    plain()  # recorded itself whatever is open, and opens its group
    groupless()
    probes[3](0)
    assert [(c.function, c.parent) for c in recording.calls()] == [
        (2, 0),
        (3, 0),
        (7, 0),
        (2, 3),
        (8, 0),
        (9, 0),
        (2, 6),
        (3, 0),
    ]
    assert hooks == [2, 3, 2, 2, 3]


def test_outermost_counts_calls_that_are_not_recorded(recording: Recording) -> None:
    inner = _probe.Probe(int, 1, outermost=1)
    outer = _probe.Probe(lambda: inner(), 2, outermost=1)
    outer.record = False
    outer()
    _probe.pause()
    outer()
    _probe.resume()
    inner()
    assert [c.function for c in recording.calls()] == [1]


def test_calls_open_at_close_and_reopen(recording: Recording, open_recording: OpenRecording) -> None:
    """A call begun before close() gets no END in the next recording, and is nobody's parent there."""
    left: list[Any] = []
    inner = _probe.Probe(int, 2, captures=[(1, 1, (("ret",),))])
    second: list[Recording] = []

    def f() -> None:
        _probe.close()
        second.append(open_recording())
        inner()

    for options in (
        {},
        {"exit": lambda p, t, a, k, r, e, call: left.append(call)},
        {"capture_all": True},
        {"outermost": 1},
    ):
        outer = _probe.Probe(f, 1, captures=[(2, 1, (("ret",),))], **options)  # type: ignore[arg-type]
        outer()
        inner()
        (first_call, *_) = recording.calls() if len(second) == 1 else second[-2].calls()
        assert (first_call.function, first_call.end) == (1, None) or first_call.function == 2
        second_calls = second[-1].calls()
        assert [(c.function, c.parent, c.outcome) for c in second_calls] == [(2, 0, 0), (2, 0, 0)]
        second.append(open_recording())
    assert left == [0]


def test_deep_recursion_ends_in_recursion_error(recording: Recording) -> None:
    def down() -> Any:
        return probe()

    probe = _probe.Probe(down, 1)
    with pytest.raises(RecursionError):
        probe()
    calls = recording.calls()
    assert len(calls) > 100
    assert all(c.outcome == 1 for c in calls)


@pytest.mark.parametrize("where", ["main", "thread"])
def test_recursion_past_the_c_stack_is_an_error_and_no_crash(tmp_path: Path, where: str) -> None:
    program = """
        import sys, threading
        from tests.probe.decode import Symbols
        from traincheck.collect import _probe
        _probe.open(sys.argv[1], 1 << 20, Symbols())
        sys.setrecursionlimit(10**6)
        def down(n):
            return n if n == 0 else probe(n - 1)
        probe = _probe.Probe(down, 1)
        def run():
            assert probe(500) == 0
            try:
                probe(500_000)
            except RecursionError as error:
                print("refused")
        if sys.argv[2] == "main":
            run()
        else:
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr[-500:]


def test_location(recording: Recording) -> None:
    _probe.set_library_prefixes([contextlib.__file__, "<frozen", asyncio.__path__[0]])
    try:
        always = _probe.Probe(int, 1, location=2)
        outermost = _probe.Probe(lambda: (always(), top()), 2, location=1)
        top = _probe.Probe(int, 3, location=1)
        with contextlib.ExitStack() as stack:
            stack.callback(always)  # called from library code: the user's frame is this one
        outermost()
        line = outermost.__code__.co_firstlineno
        assert _probe.location() == (__file__, line + 6, "test_location")
    finally:
        _probe.set_library_prefixes([])
    calls = recording.calls()
    places = [recording.captured(c).get("@location") for c in calls]
    assert [c.function for c in calls] == [1, 2, 1, 3]
    assert places == [
        (__file__, line + 2, "test_location"),
        (__file__, line + 4, "test_location"),
        (__file__, line, "<lambda>"),
        None,
    ]


def test_location_without_a_user_frame(recording: Recording) -> None:
    _probe.set_library_prefixes([""])
    try:
        assert _probe.location() is None
        _probe.Probe(int, 1, location=2)()
    finally:
        _probe.set_library_prefixes([])
    with pytest.raises(TypeError, match="prefixes must be strings"):
        _probe.set_library_prefixes([3])  # type: ignore[list-item]
    assert [c.captures for c in recording.calls()] == [[]]
