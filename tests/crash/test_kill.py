"""``kill -9`` at random moments: what had happened is in the trace, and nothing else.

The program keeps its own account: after each round of calls has returned it writes the round's number to a file, with
one ``write(2)``; the same number is an argument of a call of that round.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from tests.activation.watching import environment
from tests.crash.harm import launching
from traincheck.trace import Trace, open_trace

PROGRAM = """
import os, sys
account = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(account, b"%d\\n" % os.getpid())
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
number, last = 0, int(sys.argv[2])
while number < last:
    number += 1
    torch.full((1,), number)
    torch.special.expit(torch.ones(2))
    if number % 3 == 0:
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
    torch.full((1,), -number)
    os.write(account, b"%d\\n" % number)
"""

ROUNDS = 30
SEGMENT = 1 << 16  # several segments a run: kills meet their changes too


def _start(folder: Path, rounds: int) -> subprocess.Popen[bytes]:
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", str(folder / "account"), str(rounds)]
    return subprocess.Popen(
        launching(folder / "run", command, segment_bytes=SEGMENT),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _account(folder: Path) -> tuple[int | None, int]:
    """(process id, number of the last round that is known to have returned)."""
    path = folder / "account"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return (int(lines[0]) if lines else None), (int(lines[-1]) if len(lines) > 1 else 0)


def _rounds(trace: Trace) -> list[tuple[str, int | None, str]]:
    """(function, round number or None, outcome) of every call since the first round, in order."""
    numbers = trace.captures.filter((pl.col("path") == "args[1]") & (pl.col("kind") == "int")).select(
        "process", "call", pl.col("int").alias("number")
    )
    calls = trace.calls.join(numbers, on=["process", "call"], how="left").sort("call")
    calls = calls.with_columns(
        pl.when(pl.col("function").cast(pl.String).str.ends_with(".full")).then("number").alias("number")
    )
    rows = list(calls.select("function", "number", "outcome").iter_rows())
    first = next((i for i, row in enumerate(rows) if row[1] is not None), len(rows))
    return rows[first:]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int | None, str]]:
    """What a run of some rounds records that nobody kills."""
    folder = tmp_path_factory.mktemp("whole")
    process = _start(folder, ROUNDS)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    trace = open_trace(folder / "run")
    assert trace.lacks == []
    return _rounds(trace)


def _expect(expected: list[tuple[str, int | None, str]], length: int) -> list[tuple[str, int | None, str]]:
    """The first ``length`` calls of a run of any number of rounds: from round 4 on every three rounds look the same."""
    begins = [i for i, (_, number, _) in enumerate(expected) if number is not None and number > 0]
    cycle = expected[begins[3] : begins[6]]
    found = list(expected[: begins[3]])
    turn = 0
    while len(found) < length:
        shift = 3 * turn
        found += [
            (name, number if number is None else number + shift * (1 if number > 0 else -1), outcome)
            for name, number, outcome in cycle
        ]
        turn += 1
    return found[:length]


def _judge(folder: Path, expected: list[tuple[str, int | None, str]]) -> tuple[int, int, int]:
    """(rounds accounted for, calls in the trace, calls lost) of a killed run."""
    _, returned = _account(folder)
    trace = open_trace(folder / "run")
    if not trace.processes:  # killed before torch was there
        assert returned == 0
        return 0, 0, 0
    assert len(trace.processes) == 1
    assert {lack.code for lack in trace.lacks} <= {
        "unfinished-run",
        "incomplete-run",
        "unfinished-process",
        "open-segment",
        "torn-segment",
        "torn-symbols",
        "clock",
        "no-process-file",
    }
    rounds = _rounds(trace)
    # Nothing is invented: the calls are those of the program, in its order, none twice, only the last ones still open.
    want = _expect(expected, len(rounds))
    if rounds and rounds[-1][1:] == (None, "open"):  # killed between its entry and its first argument
        want[-1] = (want[-1][0], None, want[-1][2])
    assert [(name, number) for name, number, _ in rounds] == [(name, number) for name, number, _ in want]
    closed = [i for i, (_, _, outcome) in enumerate(rounds) if outcome != "open"]
    assert all(rounds[i][2] == want[i][2] for i in closed)
    # Nothing is lost: what had returned by the last account is there, closed.
    ended = {number for _, number, outcome in rounds if number is not None and outcome == "returned"}
    missing = [n for n in range(1, returned + 1) if n not in ended or -n not in ended]
    assert missing == []
    assert max((abs(n) for n in ended), default=0) <= returned + 1
    return returned, len(rounds), 2 * len(missing)


def _kill(folder: Path, process: subprocess.Popen[bytes], everyone: bool) -> None:
    victim, _ = _account(folder)
    if everyone or victim is None:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        os.kill(victim, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    if everyone or victim is None:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 137
        assert b"1 process ended without a word (killed?): its trace is there up to that moment" in err or (
            b"nothing was collected" in err and not any((folder / "run" / "processes").iterdir())
        )
        assert json.loads((folder / "run" / "manifest.json").read_text())["exit_code"] == 137


def _run_and_kill(folder: Path, delay: float, after_round: bool, everyone: bool) -> None:
    process = _start(folder, 1 << 30)
    while _account(folder)[1 if after_round else 0] in (None, 0):
        assert process.poll() is None
        time.sleep(0.01)
    time.sleep(delay)
    _kill(folder, process, everyone)


@pytest.mark.parametrize("everyone", [False, True])
def test_killed(tmp_path: Path, expected: list[tuple[str, int | None, str]], everyone: bool) -> None:
    _run_and_kill(tmp_path, 0.2, True, everyone)
    rounds, calls, lost = _judge(tmp_path, expected)
    assert rounds > 10
    assert calls > rounds
    assert lost == 0


@pytest.mark.slow
def test_killed_at_twenty_random_moments(
    tmp_path: Path, expected: list[tuple[str, int | None, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Four of them while torch is imported and probes are put on, sixteen while it trains; half with the launcher."""
    chance = random.Random(20)
    found = []
    for moment in range(20):
        folder = tmp_path / str(moment)
        folder.mkdir()
        starting = moment < 4
        _run_and_kill(folder, chance.uniform(0, 3.0 if starting else 0.8), not starting, bool(moment % 2))
        found.append(_judge(folder, expected))
    with capsys.disabled():
        rounds, calls, lost = (sum(column) for column in zip(*found, strict=True))
        print(f"\nkilled at 20 moments: {calls} calls in the traces, {2 * rounds} known to have returned, {lost} lost")
    assert sum(1 for rounds, _, _ in found if rounds) >= 16
