"""Traces written by the compiled core: what it records is what is read, also after ``kill -9``."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from traincheck.trace import Trace, open_trace

pytest.importorskip("traincheck.collect._probe", reason="the compiled core is not built")

PROGRAM = """
    import os, signal, sys
    from traincheck.collect import _probe
    from traincheck.collect.recorder import Recorder
    from traincheck.events import Mark, Moment

    folder, calls, clock, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    recorder = Recorder(folder, segment_bytes=65536, clock=clock)

    def inner(x, scale=2.0):
        if x % 100 == 99:
            raise KeyError(x)
        return x * scale

    def outer(x):
        try:
            return inner(x, scale=0.5)
        except KeyError:
            return None

    inner_id = recorder.function("toy.inner", "function", ["x", "scale"])
    outer_id = recorder.function("toy.outer", "function", ["x"])
    inner = _probe.Probe(inner, inner_id, capture_all=True)
    outer = _probe.Probe(outer, outer_id, location=1)
    weight = recorder.variable("model.w", "parameter", "torch.nn.Parameter", "model")
    data, grad = recorder.attribute("data"), recorder.attribute("grad")
    for number in range(calls):
        if number % 50 == 0:
            recorder.mark(Mark.STEP_BEGIN, a=number // 50 + 1)
            look = recorder.observe("toy.outer", 0, Moment.ALONE)
            recorder.states(look, [(weight, data, 6, number, 7), (weight, grad, 0, 0, 0)])
        outer(number)
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    recorder.close()
"""


def record(root: Path, calls: int = 3000, clock: int = -1, end: str = "close") -> Trace:
    folder = root / "processes" / "1800000000000000000-7"
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(
        json.dumps({"schema": 1, "pid": 7, "end": "exit" if end == "close" else "running"})
    )
    program = textwrap.dedent(PROGRAM)
    done = subprocess.run([sys.executable, "-c", program, str(folder), str(calls), str(clock), end], timeout=120)
    assert done.returncode == (0 if end == "close" else -signal.SIGKILL)
    return open_trace(root)


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("clock", [0, 1])
def test_what_was_called_is_read(tmp_path: Path, clock: int, end: str) -> None:
    trace = record(tmp_path, 3000, clock, end)
    outer = trace.calls.filter(trace.calls["function"] == "toy.outer")
    inner = trace.calls.filter(trace.calls["function"] == "toy.inner")
    assert (len(outer), len(inner)) == (3000, 3000)
    assert inner["parent"].to_list() == outer["call"].to_list()
    assert inner["outcome"].value_counts(sort=True).rows() == [("returned", 2970), ("raised", 30)]
    assert set(inner["exception"].drop_nulls()) == {"KeyError"}
    assert outer["outcome"].unique().to_list() == ["returned"]
    assert outer["step"].to_list() == [number // 50 + 1 for number in range(3000)]
    assert outer["location"].null_count() == 0
    assert (trace.calls["end_ns"] >= trace.calls["begin_ns"]).all()
    assert trace.calls["begin_ns"].is_sorted()
    assert (outer["end_ns"] >= inner["end_ns"]).all()
    x = trace.captures.filter(trace.captures["name"] == "x")
    assert x["int"].to_list() == list(range(3000))
    results = trace.captures.filter(trace.captures["path"] == "ret")["float"].to_list()
    assert results == [number * 0.5 for number in range(3000) if number % 100 != 99]
    data = trace.states.filter(trace.states["attribute"] == "data")
    assert data["digest"].to_list() == [f"{7:016x}{number:016x}" for number in range(0, 3000, 50)]
    codes = {lack.code for lack in trace.lacks}
    assert codes == {"no-manifest"} | (set() if end == "close" else {"unfinished-process"})
    assert len(list(tmp_path.glob("processes/*/*.tcev"))) > 3


def test_both_clocks_agree(tmp_path: Path) -> None:
    """A time-stamp counter converted to ns spans what the process itself took."""
    spans = []
    for clock in (0, 1):
        trace = record(tmp_path / str(clock), 3000, clock)
        marks = trace.marks.filter(trace.marks["kind"] == "clock")
        assert (marks["time_ns"] - marks["value"]).abs().max() in (None, *range(50_000))
        spans.append(trace.calls["end_ns"].max() - trace.calls["begin_ns"].min())  # type: ignore[operator]
    assert 0.05 < spans[1] / spans[0] < 20
