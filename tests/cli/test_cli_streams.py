"""Standard output that is closed, full, narrow or left by its reader: the exit code stays, the words are ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli_support import plain_environment
from tests.relations.worlds import World
from traincheck.infer import infer

COMMAND = f"{sys.executable} -m traincheck"
CHECK = "check bad -i good.jsonl --no-suppressions"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, what was learned of it, and one that breaks some of that."""
    home = tmp_path_factory.mktemp("streams")
    world = World()
    infer([world.trace()]).save(home / "good.jsonl")
    world.but(no_zero_from=3).builder().write(home / "bad")
    return home


def bash(folder: Path, script: str, **changes: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a script."""
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=plain_environment(**changes), capture_output=True, timeout=120
    )
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode()


@pytest.mark.parametrize(
    ("words", "code"), [("--help", 0), ("check --help", 0), (CHECK, 3), (f"{CHECK} --json", 3)], ids=str
)
def test_a_reader_that_goes_away(folder: Path, words: str, code: int) -> None:
    # The reader leaves at once: whatever is written first meets a pipe that nobody reads.
    got, _, said = bash(folder, f"{COMMAND} {words} | true; exit ${{PIPESTATUS[0]}}")
    assert (got, said) == (code, "")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [("check --help", 0), (CHECK, 3), (f"{CHECK} --json", 3)], ids=str)
def test_closed_output(folder: Path, words: str, code: int, closed: str) -> None:
    got, _, said = bash(folder, f"{COMMAND} {words} {closed}")
    assert got == code
    assert "error" not in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("words", [CHECK, f"{CHECK} --json", "invariants show good.jsonl"])
def test_full_output_is_told(folder: Path, words: str) -> None:
    code, _, said = bash(folder, f"{COMMAND} {words} >/dev/full")
    assert code == 1
    assert said.startswith("error: cannot write the results: No space left on device\ntry: ")


def test_narrow_output_gets_escapes(folder: Path) -> None:
    code, text, said = bash(folder, f"{COMMAND} {CHECK}", PYTHONIOENCODING="ascii")
    assert (code, said) == (3, "")
    assert text.startswith("\\u2717 ")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_json_with_a_name_that_is_not_utf8(folder: Path, encoding: str) -> None:
    """Run, invariant file and report in folders with such names: read, checked, written."""
    strange = os.fsdecode(b"r\xff")
    if not (folder / strange).exists():
        World().builder().write(folder / strange)
    name = "$'r\\xff'"
    code, _, said = bash(folder, f"{COMMAND} infer {name} -o {name}.jsonl --force")
    assert (code, said) == (0, "")
    both = f"{COMMAND} check {name} -i {name}.jsonl -o {name}.out --force --json"
    code, text, said = bash(folder, both, PYTHONIOENCODING=encoding)
    assert (code, said) == (0, "")
    result = json.loads(text)
    assert result["run"] == strange
    assert json.loads((folder / f"{strange}.out" / "results.json").read_bytes())["run"] == strange


def test_a_pipe_as_invariant_file(folder: Path) -> None:
    """Invariants only: nothing can stand beside a pipe."""
    code, text, said = bash(folder, f"{COMMAND} infer bad -o /dev/stdout --force | grep -c '^{{'")
    assert (code, said) == (0, "")
    assert int(text) > 0
    assert not os.path.exists("/dev/stdout.rejected")
