"""Limits of a process, and programs that are careless with descriptors and files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.activation.watching import TRAIN, Done, environment, plain, script, watched
from tests.crash.harm import launching
from traincheck.trace import open_trace


def _run(folder: Path, command: list[str], **plan: object) -> Done:
    done = subprocess.run(
        launching(folder / "run", command, **plan),
        cwd=folder,
        env=environment(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, folder / "run")


DEADLY = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
"""Python ignores the signal that a file grown too large raises; a program may have changed that."""


@pytest.mark.parametrize(
    ("limit", "deadly"),  # torch itself needs a few bytes
    [
        (1000, True),
        (20_000, False),
        *(pytest.param(n, deadly, marks=pytest.mark.slow) for n in (64, 20_001, 300_000) for deadly in (False, True)),
    ],
)
def test_size_of_files_is_limited_from_the_start(tmp_path: Path, limit: int, deadly: bool) -> None:
    program = (
        f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        + (DEADLY if deadly else "")
        + "import sys\nsys.dont_write_bytecode = True\n"
        + TRAIN
        + "print(train(30))\n"
    )
    without = plain(tmp_path, script(tmp_path, program)).fine()
    done = _run(tmp_path, script(tmp_path, program)).fine()
    assert done.out == without.out
    assert done.err_of_program == without.err
    if done.accounts and "LOST" not in done.said[-1]:
        assert open_trace(done.run).lacks == []
    else:
        assert "File too large" in "\n".join(done.said)
        assert done.manifest["complete"] is False


@pytest.mark.parametrize("deadly", [False, True])
def test_size_of_files_is_limited_while_training(tmp_path: Path, deadly: bool) -> None:
    program = (
        TRAIN
        + (DEADLY if deadly else "")
        + "import resource\ntrain()\nresource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\nprint(train(60))\n"
    )
    done = _run(tmp_path, script(tmp_path, program), segment_bytes=1 << 14).fine()
    assert done.out == plain(tmp_path, script(tmp_path, program)).fine().out
    said = "\n".join(done.said)
    assert "LOST (File too large)" in said or "ended without a word" in said
    assert open_trace(done.run).lacks != []


@pytest.mark.parametrize("free", [0, 1, 2, 3])
def test_out_of_descriptors_at_the_start(tmp_path: Path, free: int) -> None:
    """All are taken when torch is imported; collecting needs one for good and another now and then."""
    # torch itself needs many descriptors to be imported: they are taken in the moment between its import and ours.
    program = (
        f"""
import os, resource, sys
import traincheck.collect.activation as activation
start = activation.start
def late(run):
    import traincheck.collect.session, traincheck.collect.plan
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    for _ in range({free}):
        os.close(taken.pop())
    session = start(run)
    for descriptor in taken:
        os.close(descriptor)
    print(session is None, len(os.listdir('/proc/self/fd')), file=sys.stderr)
    return session
activation.start = late
"""
        + TRAIN
        + "print(train())\n"
    )
    done = _run(tmp_path, script(tmp_path, program)).fine()
    assert done.out == plain(tmp_path, script(tmp_path, program)).fine().out
    if free < 2:
        assert done.said[-1].endswith(": Too many open files")
        assert done.accounts == []
        assert list((done.run / "processes").iterdir()) == []
        assert done.err_of_program == b"True 4\n"  # nothing of ours is left open
    else:
        assert open_trace(done.run).lacks == []


def test_out_of_descriptors_while_training(tmp_path: Path) -> None:
    program = (
        TRAIN
        + """
import os, resource
train()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True: taken.append(os.dup(0))
except OSError: pass
print(train(60))
for descriptor in taken: os.close(descriptor)
"""
    )
    done = _run(tmp_path, script(tmp_path, program), segment_bytes=1 << 14).fine()
    assert done.out == plain(tmp_path, script(tmp_path, program)).fine().out
    (account,) = done.accounts
    assert (account["end"], account["exit"], account["loss_reason"]) == ("exit", 0, "Too many open files")
    assert account["dropped"] > 0
    assert "dropped-records" in {lack.code for lack in open_trace(done.run).lacks}


@pytest.mark.parametrize("first", [3, 0])
def test_a_program_that_closes_all_descriptors(tmp_path: Path, first: int) -> None:
    """As daemons do. Its own files then have the numbers that ours had: nothing of ours may end up in them."""
    program = (
        TRAIN
        + f"""
import os
train()
os.closerange({first}, 4096)
own = [os.open(f"own{{n}}", os.O_RDWR | os.O_CREAT) for n in range(600)]
model = torch.nn.Linear(5, 3)
for n in range(1, 40):
    model(torch.ones(n, 5))
    torch.full((n, 2), 0.5)
assert all(os.fstat(d).st_size == 0 for d in own)
"""
    )
    done = _run(tmp_path, script(tmp_path, program)).fine()
    assert all(path.stat().st_size == 0 for path in tmp_path.glob("own*"))
    assert len(list(tmp_path.glob("own*"))) == 600
    assert open_trace(done.run).lacks == []


def test_a_program_that_changes_folder_and_mask(tmp_path: Path) -> None:
    program = TRAIN + "import os\nos.mkdir('there')\nos.chdir('there')\nos.umask(0o777)\ntrain(40)\n"
    done = _run(tmp_path, script(tmp_path, program), segment_bytes=1 << 14).fine()
    assert len(list(next((done.run / "processes").iterdir()).glob("events-*"))) > 1
    assert open_trace(done.run).lacks == []
    assert list((tmp_path / "there").iterdir()) == []


def test_relative_output_and_a_program_elsewhere(tmp_path: Path) -> None:
    script(tmp_path, TRAIN + "train()\n")
    shell = f"cd / && exec '{sys.executable}' '{tmp_path}/program.py'"
    done = watched(tmp_path, ["sh", "-c", shell], "-o", "here/run").fine()
    assert open_trace(tmp_path / "here" / "run").lacks == []
    assert "in here/run" in done.said[-1]
