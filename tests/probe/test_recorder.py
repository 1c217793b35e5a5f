"""The segment writer, against docs/trace-format.md."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.probe import decode
from tests.probe.conftest import OpenRecording, Recording
from traincheck.collect import _probe
from traincheck.events import Clock, Kind, Mark, Moment, Value


def nothing() -> None: ...


def test_header_and_clock_pairs(open_recording: OpenRecording) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.time_ns()
    recording = open_recording()
    _probe.close()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.time_ns()
    (segment,) = decode.segments(recording.directory)
    header = decode.header(segment)
    assert (header.pid, header.number, header.first) == (os.getpid(), 0, 0)
    assert before[0] <= header.opened_monotonic <= header.closed_monotonic <= after[0]
    assert before[1] <= header.opened_realtime <= after[1]
    assert header.opened_clock <= header.closed_clock
    assert segment.stat().st_size == 128 + 32 * header.count
    (clock,) = decode.marks(recording.directory, clocks=True)
    assert clock.detail == Mark.CLOCK
    assert before[0] <= clock.b <= after[0]
    assert before[1] <= clock.c <= after[1]


@pytest.mark.parametrize("clock", [Clock.MONOTONIC_NS, -1])
def test_times_are_readings_of_the_clock(open_recording: OpenRecording, clock: int) -> None:
    recording = open_recording(clock=clock)
    probe = _probe.Probe(time.sleep, 1)
    probe(0.05)
    (call,) = recording.calls()
    header = decode.header(decode.segments(recording.directory)[0])
    if clock >= 0:
        assert header.clock == clock
    rate = (header.closed_monotonic - header.opened_monotonic) / (header.closed_clock - header.opened_clock)
    assert call.end is not None
    assert 0.04e9 < (call.end - call.begin) * rate < 5e9


def test_rotation_loses_nothing_and_numbers_on(open_recording: OpenRecording) -> None:
    recording = open_recording(segment_bytes=4096)
    probe = _probe.Probe(nothing, 5)
    for _ in range(1000):
        probe()
    written = _probe.records()
    _probe.close()
    files = decode.segments(recording.directory)
    assert len(files) > 10
    first = 0
    for number, path in enumerate(files):
        header = decode.header(path)
        assert (header.number, header.first) == (number, first)
        data = path.read_bytes()
        assert data[128] == Kind.MARK
        assert data[129] == Mark.CLOCK
        first += header.count
    assert first == written
    assert [call.number for call in decode.calls(recording.directory)] == list(range(1, 1001))
    assert all(call.outcome == 0 for call in decode.calls(recording.directory))


def test_marks_observations_and_states(recording: Recording) -> None:
    reason = _probe.symbol("Optimizer.step")
    _probe.mark(Mark.STEP_BEGIN, 0, 1, 0)
    _probe.mark(Mark.GAP, 7, -1, 2**64 - 1)
    observation = _probe.observe(Moment.AFTER, reason, 12)
    again = _probe.observe(Moment.ALONE, reason, 0)
    _probe.state(observation, 3, 4, Value.INT, -5, 0)
    _probe.states(again, [(2**32 - 1, 2**16 - 1, Value.DIGEST, 2**64 - 1, 2**63), (1, 1, Value.NONE, 0, 0)])
    _probe.states(again, ())
    found = recording.records()
    assert (observation, again) == (1, 2)
    steps = [i for i, r in enumerate(found) if r.kind == Kind.MARK and r.detail == Mark.STEP_BEGIN]
    assert [found[i].b for i in steps] == [1]
    assert found[steps[0] + 1].detail == Mark.CLOCK
    (gap,) = [r for r in found if r.kind == Kind.MARK and r.detail == Mark.GAP]
    assert (gap.id, gap.b, gap.c) == (7, 2**64 - 1, 2**64 - 1)
    observed = [r for r in found if r.kind == Kind.OBSERVE]
    assert [(r.detail, r.id, r.b, r.c) for r in observed] == [(1, reason, 12, 1), (2, reason, 0, 2)]
    states = [(r.detail, r.small, r.id, r.a, r.b, r.c) for r in found if r.kind == Kind.STATE]
    assert states == [
        (Value.INT, 4, 3, 1, 2**64 - 5, 0),
        (Value.DIGEST, 2**16 - 1, 2**32 - 1, 2, 2**64 - 1, 2**63),
        (Value.NONE, 1, 1, 2, 0, 0),
    ]


def test_nothing_is_written_when_closed(recording: Recording, tmp_path: Path) -> None:
    _probe.close()
    _probe.close()
    assert not _probe.recording()
    _probe.mark(Mark.NOTE, 0, 0, 0)
    assert _probe.observe(0, 0, 0) == 0
    _probe.states(1, [(1, 1, 1, 1, 1)])
    probe = _probe.Probe(nothing, 1, enter=lambda *a: pytest.fail("a hook ran"))
    probe()
    assert recording.calls() == []


def test_opening(recording: Recording, tmp_path: Path) -> None:
    assert _probe.recording()
    with pytest.raises(RuntimeError, match="open already"):
        _probe.open(str(tmp_path), 1 << 20, recording.symbols)
    _probe.close()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        _probe.open(str(tmp_path / "nowhere"), 1 << 20, recording.symbols)
    with pytest.raises(FileExistsError):  # never over another trace
        _probe.open(str(recording.directory), 1 << 20, recording.symbols)
    with pytest.raises(TypeError, match="miss must be callable"):
        _probe.open(str(tmp_path), 1 << 20, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="segment_bytes must be at least"):
        _probe.open(str(tmp_path), 100, recording.symbols)
    with pytest.raises(ValueError, match="clock must be"):
        _probe.open(str(tmp_path), 1 << 20, recording.symbols, 7)
    assert not _probe.recording()
    assert not list(tmp_path.glob("*.tcev"))


def test_a_relative_folder_survives_chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    symbols = decode.Symbols()
    _probe.open("out", 4096, symbols)
    monkeypatch.chdir("/")
    probe = _probe.Probe(nothing, 5)
    for _ in range(200):
        probe()
    assert _probe.dropped() == 0
    _probe.close()
    assert len(decode.calls(tmp_path / "out")) == 200


def test_pause_stops_calls_only(recording: Recording) -> None:
    seen: list[int] = []
    inner = _probe.Probe(nothing, 2, captures=[(1, 1, (("ret",),))])
    hooked = _probe.Probe(nothing, 3, enter=lambda p, a, k, call: seen.append(call))

    def outer() -> None:
        _probe.pause()
        inner()
        hooked()
        _probe.mark(Mark.NOTE, 0, 1, 1)

    _probe.Probe(outer, 1)()
    _probe.resume()
    inner()
    hooked()
    assert [(c.function, c.outcome) for c in recording.calls()] == [(1, 0), (2, 0), (3, 0)]
    assert seen[0] == 0
    assert seen[1] > 0
    assert len(decode.marks(recording.directory)) == 1


def test_states_refuses_malformed_rows(recording: Recording) -> None:
    with pytest.raises(TypeError, match="row 1 must be a tuple"):
        _probe.states(1, [(1, 1, 1, 1, 1), (1, 2)])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        _probe.states(1, [(1, 1, 1, 1, "x")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="takes 4 arguments"):
        _probe.mark(1)  # type: ignore[call-arg]


def test_encode_and_symbol(recording: Recording) -> None:
    assert _probe.encode(None) == (Value.NONE, 0, 0)
    assert _probe.encode(True) == (Value.BOOL, 1, 0)
    assert _probe.encode(-3) == (Value.INT, 2**64 - 3, 0)
    assert _probe.encode(2**63 - 1) == (Value.INT, 2**63 - 1, 0)
    assert _probe.encode(0.5) == (Value.FLOAT, struct.unpack("<Q", struct.pack("<d", 0.5))[0], 0)
    assert _probe.encode("adam") == (Value.SYMBOL, _probe.symbol("adam"), 0)
    long = "x" * 300
    kind, low, high = _probe.encode(long)
    assert (kind, recording.symbols.by_id[low], high) == (Value.OBJECT, (10, "builtins.str"), id(long))
    assert recording.symbols.by_id[_probe.symbol(long)] == (4, long)
    assert _probe.symbol((1, "a", None)) == _probe.symbol((1, "a", None))
    assert len({_probe.symbol(t) for t in [(1, 2), (1.0, 2.0), (True, 2), ("1", 2)]}) == 4


def test_view(recording: Recording) -> None:
    data = bytearray(b"abcdef")
    address = (__import__("ctypes").c_char * 6).from_buffer(data)
    view = _probe.view(__import__("ctypes").addressof(address), 6)
    assert view.readonly
    assert bytes(view) == b"abcdef"
    assert bytes(_probe.view(0, 0)) == b""
    with pytest.raises(ValueError, match="address"):
        _probe.view(0, 4)


def run(program: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *args], capture_output=True, text=True, timeout=60, **options
    )


def test_a_full_disk_drops_counts_and_recovers(tmp_path: Path) -> None:
    """No space for the next segment (here: a file size limit): the program goes on, the loss is counted and marked."""
    program = """
        import sys, time, resource
        from tests.probe.decode import Symbols
        from traincheck.collect import _probe
        _probe.open(sys.argv[1], 1 << 16, Symbols())
        probe = _probe.Probe(len, 5)
        def work(n):
            for _ in range(n):
                assert probe("abc") == 3
        def outer():
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
            work(5000)
            assert _probe.dropped() > 0 and _probe.last_error()
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            work(10)                      # not retried at once
            time.sleep(1.05)
        _probe.Probe(outer, 6)()
        work(100)
        lost = _probe.dropped()
        _probe.close()
        print(lost, _probe.records(), _probe.last_error())
    """
    done = run(program, str(tmp_path))
    assert done.returncode == 0, done.stderr
    lost, written, reason = done.stdout.strip().split(" ", 2)
    assert reason == os.strerror(errno.EFBIG)
    calls = decode.calls(tmp_path)
    assert len(list(decode.records(tmp_path))) == int(written)
    (gap,) = [m for m in decode.marks(tmp_path) if m.detail == Mark.GAP]
    assert 0 < gap.b <= int(lost)
    assert (
        sum(1 for c in calls if c.end is None) <= 2
    )  # the one in flight when the space ran out; never an invented END
    assert len([c for c in calls if c.begin > gap.a and c.outcome == 0]) >= 99


def test_a_killed_process_leaves_what_it_wrote(tmp_path: Path) -> None:
    program = """
        import os, signal, sys
        from tests.probe.decode import Symbols
        from traincheck.collect import _probe
        _probe.open(sys.argv[1], 1 << 16, Symbols())
        probe = _probe.Probe(len, 5)
        for _ in range(3000):
            probe("abc")
        print(_probe.records(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = run(program, str(tmp_path))
    assert done.returncode == -9
    assert len(list(decode.records(tmp_path))) == int(done.stdout)
    last = decode.header(decode.segments(tmp_path)[-1])
    assert (last.count, last.closed_clock) == (0, 0)
    assert sum(1 for c in decode.calls(tmp_path) if c.outcome == 0) == 3000


def test_no_descriptor_is_kept(recording: Recording) -> None:
    """A daemon closes all descriptors; what opens next must not be written or cut by us."""
    open_files = {
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
    }
    assert not [name for name in open_files if name.endswith(".tcev")]


def test_a_removed_folder_only_drops(open_recording: OpenRecording) -> None:
    recording = open_recording(segment_bytes=4096)
    for path in recording.directory.iterdir():
        path.unlink()
    recording.directory.rmdir()
    probe = _probe.Probe(nothing, 1)
    for _ in range(500):
        probe()
    assert _probe.dropped() > 0
    assert _probe.last_error() == os.strerror(errno.ENOENT)
