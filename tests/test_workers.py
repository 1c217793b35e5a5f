"""Processes side by side: in order, and gone when the one that started them is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from traincheck.errors import TraincheckError
from traincheck.workers import side_by_side


def _nothing(*_: object) -> None:
    pass


def _backwards(number: int) -> int:
    time.sleep(0.2 - number / 10)
    return -number


def _dies(_: int) -> None:
    os._exit(9)


def _fails(number: int) -> None:
    raise ValueError(f"no {number}")


@pytest.mark.timeout(120)
def test_in_the_order_of_the_items() -> None:
    assert list(side_by_side(_backwards, [0, 1, 2], 2, _nothing, ())) == [0, -1, -2]
    assert active_children() == []


@pytest.mark.timeout(120)
def test_what_goes_wrong_in_a_worker_is_told() -> None:
    with pytest.raises(ValueError, match="no 1"):
        list(side_by_side(_fails, [1, 2], 2, _nothing, ()))
    with pytest.raises(TraincheckError, match="ended unexpectedly"):
        list(side_by_side(_dies, [1, 2], 2, _nothing, ()))
    assert active_children() == []


WAITING = """
import sys, time
from pathlib import Path
from traincheck.errors import TraincheckError
from traincheck.workers import side_by_side
folder = Path(sys.argv[1])
def start(): (folder / f"started-{time.monotonic_ns()}").touch()
def work(number): time.sleep(60)
if __name__ == "__main__":
    try:
        list(side_by_side(work, [1, 2], 2, start, ()))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("early", [False, True])
def test_an_interrupt_ends_them_without_a_word(tmp_path: Path, early: bool) -> None:
    """Also while they are still starting."""
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    process = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    def ready() -> bool:
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return len(workers) >= 2 if early else len(list(tmp_path.glob("started-*"))) == 2

    while not ready():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == (b"interrupted\n", b"", 0)
    end = time.monotonic() + 30
    while _alive(process.pid) and time.monotonic() < end:  # multiprocessing's own tracker takes a moment
        time.sleep(0.05)
    assert not _alive(process.pid)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
