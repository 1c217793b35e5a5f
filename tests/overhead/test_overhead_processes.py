"""Commands of a study: their environment, their cost, and that none is left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from traincheck.studykit import processes


def run(tmp_path: Path, code: str, timeout_s: float = 60, **variables: str) -> processes.Cost:
    return processes.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=processes.environment(1, **variables),
        out=tmp_path / "out",
        err=tmp_path / "err",
        timeout_s=timeout_s,
    )


def test_cost_and_output(tmp_path: Path) -> None:
    busy = "import time\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint('done')"
    cost = run(tmp_path, busy)
    assert (cost.exit_code, cost.timed_out) == (0, False)
    assert 0.2 <= cost.cpu_s < 5
    assert cost.wall_s >= 0.2
    assert cost.began_ns < cost.ended_ns
    assert (tmp_path / "out").read_text() == "done\n"


def test_what_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    parent = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('child').write_text(str(child.pid))\n"
        "time.sleep(60)"
    )
    cost = run(tmp_path, parent, timeout_s=3)
    assert cost.timed_out
    assert cost.exit_code != 0
    assert cost.wall_s < 30
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not _alive(child):
            return
        time.sleep(0.05)
    pytest.fail(f"child {child} lives on")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_of_launchers_or_of_traincheck_reaches_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRAINCHECK_RUN", "RANK", "WORLD_SIZE", "MASTER_ADDR", "PYTHONPATH", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    seen = processes.environment(2)
    assert not {"TRAINCHECK_RUN", "RANK", "WORLD_SIZE", "MASTER_ADDR", "PYTHONPATH", "LOCAL_RANK"} & set(seen)
    assert (seen["OMP_NUM_THREADS"], seen["HF_HUB_OFFLINE"], seen["PATH"]) == ("2", "1", os.environ["PATH"])


def test_the_last_words_are_the_ends_of_what_was_said(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x" * 1000 + "end\n")
    (tmp_path / "err").write_text("\n")
    said = processes.last_words(tmp_path / "out", tmp_path / "err", most=10)
    assert said == "xxxxxxxend"
    assert processes.last_words(tmp_path / "none") == ""
