"""Processes that are known by a variable in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from traincheck.marked import carrying, lives

CHAIN = (
    "import subprocess, sys, time;"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True);"
    "print(child.pid, flush=True); time.sleep(60)"
)


def test_descendants_are_found_in_whatever_session_and_the_dead_do_not_live() -> None:
    variable = f"TRAINCHECK_TEST_MARK={os.getpid()}"
    name, _, value = variable.partition("=")
    process = subprocess.Popen(
        [sys.executable, "-c", CHAIN], env={**os.environ, name: value}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    pids = {process.pid, int(process.stdout.readline())}
    try:
        until = time.monotonic() + 30
        while carrying(variable) != pids and time.monotonic() < until:
            time.sleep(0.02)
        assert carrying(variable) == pids
        assert carrying(variable + "0") == set()  # a whole value, and not how it begins
        assert all(map(lives, pids))
    finally:
        for pid in pids:
            os.kill(pid, 9)
    while carrying(variable):
        time.sleep(0.02)
    assert not lives(process.pid)  # not waited for yet: an exit code is all there is
    process.wait()
    process.stdout.close()
    assert not lives(process.pid)
