"""What is in every worker: it attests in all arms, and refuses the package in those without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from traincheck.pilot import guard


def worker(root: Path, code: str, *, refuse: bool, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    for name in ("guard", "workers"):
        (root / name).mkdir(exist_ok=True)
    guard.write(root / "guard", refuse=refuse)
    package = root / "package" / "traincheck"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("value = 1\n")
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{root / 'guard'}:{root / 'package'}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "code",
    ["import traincheck", "import traincheck.check", "import importlib; importlib.import_module('traincheck')",
     "import runpy; runpy.run_module('traincheck')", "from traincheck import value"],
)  # fmt: skip
def test_imports_are_refused(tmp_path: Path, code: str) -> None:
    done = worker(tmp_path, code, refuse=True)
    assert done.returncode == 1
    assert "No module named 'traincheck" in done.stderr
    (told,) = guard.attestations(tmp_path / "workers")
    assert told.guard
    assert told.imported_at_exit is False


def test_imports_work_where_they_may(tmp_path: Path) -> None:
    done = worker(tmp_path, "import traincheck; print(traincheck.value)", refuse=False)
    assert done.stdout == "1\n"
    (told,) = guard.attestations(tmp_path / "workers")
    assert (told.importable_at_start, told.imported_at_exit, told.guard) == (True, True, False)


def test_what_was_not_imported_is_attested_as_such(tmp_path: Path) -> None:
    worker(tmp_path, "import json", refuse=False)
    (told,) = guard.attestations(tmp_path / "workers")
    assert told.importable_at_start
    assert told.imported_at_exit is False


@pytest.mark.parametrize("code", ["import os; os._exit(0)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_worker_that_ends_without_a_word_leaves_none(tmp_path: Path, code: str) -> None:
    worker(tmp_path, code, refuse=True)
    (told,) = guard.attestations(tmp_path / "workers")
    assert told.imported_at_exit is None


def test_a_fork_does_not_speak_for_its_parent(tmp_path: Path) -> None:
    code = "import os, sys\nif os.fork() == 0:\n    sys.exit()\nos.wait()\nprint('parent')"
    assert worker(tmp_path, code, refuse=True).stdout == "parent\n"
    assert len(list(guard.attestations(tmp_path / "workers"))) == 1
    (path,) = (tmp_path / "workers").iterdir()
    assert len(path.read_text().splitlines()) == 2


def test_a_worker_that_skips_its_site_attests_nothing(tmp_path: Path) -> None:
    worker(tmp_path, "print()", refuse=True, options=("-I",))
    assert list(guard.attestations(tmp_path / "workers")) == []


def test_what_a_worker_spoiled_counts_as_one_that_had_it(tmp_path: Path) -> None:
    (tmp_path / "1-1.jsonl").write_text("nonsense\n")
    (tmp_path / "2-2.jsonl").write_text("")
    told = list(guard.attestations(tmp_path))
    assert [(one.importable_at_start, one.imported_at_exit) for one in told] == [(True, None)] * 2


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    other = tmp_path / "package"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('the other')\n")
    assert worker(tmp_path, "print('program')", refuse=True).stdout.split("\n")[:2] == ["the other", "program"]


def test_the_folder_of_a_run_is_told(tmp_path: Path) -> None:
    code = (
        "import os, sys\nos.environ['TRAINCHECK_RUN'] = 'runs/x'\nos.execv(sys.executable, [sys.executable, '-c', ''])"
    )
    worker(tmp_path, code, refuse=False)
    first, second = guard.attestations(tmp_path / "workers")
    assert first.run is None
    assert first.imported_at_exit is None  # exec is an end without a word
    assert second.run == "runs/x"


def test_it_writes_json_and_fails_nothing_when_it_can_not(tmp_path: Path) -> None:
    worker(tmp_path, "print(1)", refuse=True)
    (path,) = (tmp_path / "workers").iterdir()
    assert set(json.loads(path.read_text().splitlines()[0])) == {"pid", "importable", "guard", "run", "command"}
    path.unlink()
    (tmp_path / "workers").rmdir()
    (tmp_path / "workers").touch()
    done = subprocess.run(
        [sys.executable, "-c", "print('runs')"],
        env={"PYTHONPATH": str(tmp_path / "guard")}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("runs\n", "")
