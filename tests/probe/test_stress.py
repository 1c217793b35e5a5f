"""Many things at once: threads calling while the recorder opens, closes, pauses, forks. Every trace must be whole."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.probe import decode
from tests.probe.conftest import OpenRecording
from traincheck.collect import _probe


class Leaves:
    """Its end calls a probe, from wherever the garbage collector happens to run."""

    def __init__(self, probe: Any) -> None:
        self.probe = probe
        self.me = self

    def __del__(self) -> None:
        self.probe(-1)


def test_threads_while_the_recorder_comes_and_goes(tmp_path: Path) -> None:
    stop = False
    last = _probe.Probe(abs, 4)

    def leaf(value: Any) -> Any:
        Leaves(last)
        return [value]

    leaf_probe = _probe.Probe(leaf, 3, capture_all=True, enter=lambda *a: None, exit=lambda *a: None)
    group = _probe.Probe(leaf_probe, 2, outermost=1, captures=[(900, 1, (("ret",), ("item", 0)))])

    def work(seed: int) -> None:
        values = random.Random(seed)
        while not stop:
            outer(values.random() if values.random() < 0.5 else f"text {values.randrange(50)}")
            time.sleep(0)

    outer = _probe.Probe(lambda value: (group(value), leaf_probe(value), last(-1)), 1, location=1)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    folders = []
    for number in range(25):
        folder = tmp_path / str(number)
        folder.mkdir()
        folders.append(folder)
        _probe.open(str(folder), 1 << 14, decode.Symbols())
        time.sleep(0.01)
        _probe.pause()
        time.sleep(0.002)
        _probe.resume()
        if number % 5 == 0:
            pid = os.fork()
            if pid == 0:
                outer(3)
                os._exit(1 if _probe.recording() else 0)
            assert os.waitpid(pid, 0)[1] == 0
        assert _probe.faults() == []
        _probe.close()
    stop = True
    for thread in threads:
        thread.join()
    seen = 0
    for folder in folders:
        calls = decode.calls(folder)
        by_number = {c.number: c for c in calls}
        assert all(not c.parent or by_number[c.parent].thread == c.thread for c in calls)
        assert len([c for c in calls if c.end is None]) <= 4 * 5  # open when it closed: a chain in each thread
        seen += len(calls)
    assert seen > 100


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.tuples(st.integers(1, 6), st.booleans()),
        lambda c: st.tuples(st.integers(1, 6), st.booleans(), st.lists(c, max_size=4)),
    )
)
def test_any_tree_of_calls_is_recorded_as_it_was(open_recording: OpenRecording, tree: Any) -> None:
    """Calls of any shape, some raising, over segments of the smallest size: read back, they are the same tree."""
    expected: list[tuple[int, int, int]] = []  # (function, number of the parent, outcome)

    def call(node: Any) -> None:
        function, fails, *rest = node
        place = len(expected)
        expected.append((function, _probe.current_call() and current[-1], int(fails)))
        current.append(place + 1)

        def body() -> None:
            for child in rest[0] if rest else []:
                call(child)
            if fails:
                raise ValueError(function)

        try:
            _probe.Probe(body, function, **options[function % len(options)])()
        except ValueError as error:
            assert error.args == (function,)  # noqa: PT017
        current.pop()

    options: list[dict[str, Any]] = [
        {},
        {"capture_all": True, "location": 2},
        {"captures": [(1, 1, (("ret",),)), (2, 0, (("self",),))]},
        {"enter": lambda *a: None, "exit": lambda *a: None},
    ]
    current: list[int] = []
    recording = open_recording(segment_bytes=4096)
    call(tree)
    found = [(c.function, c.parent, c.outcome) for c in recording.calls()]
    assert found == expected
