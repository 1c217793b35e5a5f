"""Fork, shutdown, sub-interpreters, signals: a recording begins and ends with grace, or is refused."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.probe import decode
from traincheck.events import Outcome

SETUP = """
import os, sys, threading, time, atexit, signal
from tests.probe.decode import Symbols
from traincheck.collect import _probe
directory = sys.argv[1]
_probe.open(directory, 1 << 16, Symbols())
"""


def run(program: str, directory: Path, *, code: int = 0, **options: Any) -> str:
    command = [sys.executable, "-c", SETUP + textwrap.dedent(program), str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == code, done.stderr
    assert "Fatal" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("how", ["os.fork", "os.forkpty", "raw"])
def test_fork_while_recording(tmp_path: Path, how: str) -> None:
    """The parent's trace is the parent's alone; the child records nothing until it opens its own, then all of it."""
    (tmp_path / "parent").mkdir()
    (tmp_path / "child").mkdir()
    program = """
        import ctypes
        def fork():
            if how == "os.fork":
                return os.fork()
            if how == "os.forkpty":
                return os.forkpty()[0]
            return ctypes.CDLL(None).fork()          # releases the GIL: a fork of which Python knows nothing
        how = sys.argv[2]
        inner = _probe.Probe(abs, 2, capture_all=True)
        def f():
            inner(-1)
            pid = fork()
            if pid == 0:
                try:
                    assert not _probe.recording() and _probe.current_call() == 0 and _probe.records() == 0
                    inner(-2)
                    _probe.mark(4, 0, 0, 0)
                    if how != "raw":
                        _probe.abandon()
                        _probe.open(os.path.join(os.path.dirname(directory), "child"), 1 << 12, Symbols())
                        for _ in range(500):
                            inner(-3)
                        return None
                except BaseException as error:
                    os.write(2, repr(error).encode())
                    os._exit(9)
                os._exit(0)
            inner(-4)
            assert os.waitpid(pid, 0)[1] == 0
            return pid
        outer = _probe.Probe(f, 1)
        pid = outer()
        if pid is None:
            _probe.close()
            os._exit(0)
        inner(-5)
        _probe.close()
    """
    command = [sys.executable, "-c", SETUP + textwrap.dedent(program), str(tmp_path / "parent"), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    parent = decode.calls(tmp_path / "parent")
    assert [(c.function, c.parent, c.outcome) for c in parent] == [(1, 0, 0), (2, 1, 0), (2, 1, 0), (2, 0, 0)]
    if how != "raw":
        child = decode.calls(tmp_path / "child")
        assert [(c.function, c.parent, c.outcome) for c in child] == [(2, 0, 0)] * 500
        assert (
            decode.header(decode.segments(tmp_path / "child")[0]).pid
            != decode.header(decode.segments(tmp_path / "parent")[0]).pid
        )


def test_multiprocessing_fork_and_subprocess(tmp_path: Path) -> None:
    program = """
        import multiprocessing, subprocess
        probe = _probe.Probe(abs, 1)
        def child(n):
            assert not _probe.recording()
            return probe(n)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(child, [-1, -2, -3]) == [1, 2, 3]
        subprocess.run([sys.executable, "-c", "pass"], check=True, preexec_fn=lambda: probe(-1))
        probe(-4)
        _probe.close()
    """
    run(program, tmp_path)
    assert [c.outcome for c in decode.calls(tmp_path)] == [0]


def test_fork_in_a_thread_while_others_record(tmp_path: Path) -> None:
    program = """
        probe = _probe.Probe(abs, 1)
        stop = False
        def busy():
            while not stop:
                probe(-1)
                time.sleep(0.0001)
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for t in threads: t.start()
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                probe(-2)
                os._exit(7 if _probe.recording() else 0)
            assert os.waitpid(pid, 0)[1] == 0
        stop = True
        for t in threads: t.join()
        print(_probe.records(), _probe.dropped())
        _probe.close()
    """
    written, dropped = map(int, run(program, tmp_path).split())
    assert dropped == 0
    assert len(list(decode.records(tmp_path))) == written
    assert all(c.outcome == 0 and c.parent == 0 for c in decode.calls(tmp_path))


def test_shutdown_with_the_recorder_open(tmp_path: Path) -> None:
    """atexit functions, __del__, daemon threads calling probes, module teardown: nothing crashes or is printed."""
    program = """
        import weakref
        import torch
        probe = _probe.Probe(abs, 1, capture_all=True, location=2, enter=lambda *a: None, exit=lambda *a: None)
        bare = _probe.Probe(abs, 2)
        class Late:
            def __del__(self):
                probe(-3); bare(-3); torch.ones(2)
        late = Late()
        cycle = [late]; cycle.append(cycle)
        sys.modules["kept"] = late
        weakref.finalize(late, probe, -4)
        atexit.register(probe, -2)
        def busy():
            while True:
                probe(-1); bare(-1); time.sleep(0.0002)
        for _ in range(3):
            threading.Thread(target=busy, daemon=True).start()
        time.sleep(0.2)
        print("out")
    """
    for _ in range(2):
        for path in tmp_path.glob("*.tcev"):
            path.unlink()
        assert run(program, tmp_path) == "out\n"
        calls = decode.calls(tmp_path)
        assert len(calls) > 100
        assert sum(c.outcome is None for c in calls) <= 4


def test_shutdown_after_close(tmp_path: Path) -> None:
    program = """
        probe = _probe.Probe(abs, 1)
        atexit.register(lambda: (probe(-1), _probe.close()))
        def busy():
            while True:
                probe(-1)
                time.sleep(0.0001)
        threading.Thread(target=busy, daemon=True).start()
        time.sleep(0.1)
    """
    run(program, tmp_path)
    assert decode.header(decode.segments(tmp_path)[-1]).count > 0


def test_exits_inside_a_probed_call(tmp_path: Path) -> None:
    run("_probe.Probe(sys.exit, 1)(5)", tmp_path, code=5)
    (call,) = decode.calls(tmp_path)
    assert call.outcome == Outcome.RAISED
    for path in tmp_path.glob("*.tcev"):
        path.unlink()
    run("_probe.Probe(os._exit, 1)(6)", tmp_path, code=6)
    (call,) = decode.calls(tmp_path)
    assert call.outcome is None


def test_signals_reach_the_program(tmp_path: Path) -> None:
    """Ctrl-C while probed code runs, again and again: always the program's KeyboardInterrupt; parents stay right."""
    program = """
        probe = _probe.Probe(sorted, 1, capture_all=True, enter=lambda *a: sum(range(50)), exit=lambda *a: None)
        caught = 0
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        for _ in range(100):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                while True:
                    probe([3, 1, 2])
            except KeyboardInterrupt:
                caught += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert _probe.current_call() == 0 and _probe.muted() == 0
        print(caught, _probe.faults())
        _probe.close()
    """
    assert run(program, tmp_path) == "100 []\n"
    assert all(c.outcome is not None and c.parent == 0 for c in decode.calls(tmp_path))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the private module has another name there")
def test_sub_interpreters_are_refused(tmp_path: Path) -> None:
    program = """
        import _xxsubinterpreters as interpreters
        for isolated in (True, False):
            sub = interpreters.create(isolated=isolated)
            interpreters.run_string(sub, '''if True:
                import sys
                sys.path[:] = %r
                try:
                    import traincheck.collect._probe
                except ImportError as error:
                    assert "interpreter" in str(error), error
                else:
                    raise SystemExit("it was loaded")
            ''' % sys.path)
            interpreters.destroy(sub)
        probe = _probe.Probe(abs, 1)
        probe(-1)
        _probe.close()
        print("refused")
    """
    assert run(program, tmp_path) == "refused\n"
    assert len(decode.calls(tmp_path)) == 1


def test_importing_it_again_is_harmless(tmp_path: Path) -> None:
    program = """
        import importlib
        probe = _probe.Probe(abs, 1)
        del sys.modules["traincheck.collect._probe"]
        import traincheck.collect
        again = importlib.import_module("traincheck.collect._probe")
        assert again.recording() and again.is_probe(probe) and again.Probe is _probe.Probe
        probe(-1)
        again.close()
        assert not _probe.recording()
    """
    run(program, tmp_path)
    assert len(decode.calls(tmp_path)) == 1
