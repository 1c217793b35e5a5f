"""A full, read-only or vanished disk: training ends as it would have, and what the trace lacks is said."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.activation.watching import Done, environment, plain, watched
from tests.crash.harm import launching, small_disk
from traincheck.errors import TraceError
from traincheck.trace import Trace, open_trace

PROGRAM = """
import hashlib, os, sys, time
import torch
disk, fill_at, free_at = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def fill(leave):
    status = os.statvfs(disk)
    rest = status.f_bavail * status.f_frsize - leave
    if rest > 0:
        with open(disk + "/ballast", "ab") as file:
            os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, rest)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for step in range(20):
    if step == fill_at:
        fill(int(sys.argv[4]))
    if step == free_at:
        os.unlink(disk + "/ballast")
        time.sleep(1.1)
    x = torch.rand(step + 1, 4)  # a new shape, so a new symbol
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
for parameter in model.parameters():
    print(hashlib.sha256(parameter.detach().numpy().tobytes()).hexdigest())
print(torch.random.get_rng_state().sum().item())
sys.exit(3)
"""

NEVER = "-1"


def _command(folder: Path, *words: str) -> list[str]:
    (folder / "program.py").write_text(PROGRAM)
    return [sys.executable, "program.py", *words]


def _run(folder: Path, run: Path, command: list[str], **plan: object) -> Done:
    done = subprocess.run(
        launching(run, command, **plan), cwd=folder, env=environment(), capture_output=True, timeout=120, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr, run)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("plain")
    done = plain(folder, _command(folder, "unused", NEVER, NEVER, "0"))
    assert done.code == 3
    return done


def _honest(done: Done, healthy: Done) -> Trace | None:
    """Training was the same; what is lost is said in the summary, in the manifest and by the reader. The trace, if
    there is one.
    """
    assert (done.code, done.out) == (healthy.code, healthy.out)
    assert done.err_of_program == healthy.err
    said = "\n".join(done.said)
    try:
        trace = open_trace(done.run)
    except TraceError:
        trace = None
    if trace is None or not trace.processes:
        assert "nothing was collected: " in said
        return None
    (account,) = done.accounts
    lost = account["dropped"] + account.get("symbols_lost", 0)
    assert ("LOST" in said) == bool(lost)
    assert ("ended without a word" in said) == (account["end"] == "running")
    whole = not lost and account["end"] != "running"
    assert (trace.lacks == []) == whole, trace.lacks
    if done.manifest["ended_ns"] is not None:
        assert done.manifest["complete"] is whole
        assert done.manifest["lost"] == lost
    else:
        assert "the manifest could not be completed" in said
    return trace


@pytest.mark.parametrize(
    "leave", [0, pytest.param(4096, marks=pytest.mark.slow), pytest.param(70_000, marks=pytest.mark.slow)]
)
def test_filled_while_training(tmp_path: Path, healthy: Done, leave: int) -> None:
    """Segments, symbols: whatever needs room next does not get it. The last words have theirs."""
    with small_disk(tmp_path, 20_000) as disk:
        done = _run(
            tmp_path, disk / "run", _command(tmp_path, str(disk), "4", NEVER, str(leave)), segment_bytes=1 << 15
        )
        trace = _honest(done, healthy)
        assert trace is not None
        (account,) = done.accounts
        assert (account["end"], account["exit"], account["steps"]) == ("exit", 3, 20)
        assert done.manifest["exit_code"] == 3
        assert account["dropped"] > 100
        assert account["loss_reason"] == "No space left on device"
        assert f"{account['dropped'] + account['symbols_lost']:,} records were LOST (No space left on device)" in (
            "\n".join(done.said)
        )
        assert "dropped-records" in {lack.code for lack in trace.lacks}
        assert trace.calls.filter(trace.calls["step"] == 3).height > 10  # what was before is there


def test_space_comes_back(tmp_path: Path, healthy: Done) -> None:
    """Recording goes on, with a gap, and no name stays unknown."""
    with small_disk(tmp_path, 20_000) as disk:
        done = _run(tmp_path, disk / "run", _command(tmp_path, str(disk), "4", "10", "0"), segment_bytes=1 << 15)
        trace = _honest(done, healthy)
        assert trace is not None
        (account,) = done.accounts
        assert account["dropped"] > 10
        assert account["symbols_lost"] == 0
        codes = {lack.code for lack in trace.lacks}
        assert {"dropped-records", "gaps"} <= codes
        assert "unresolved-symbols" not in codes
        assert trace.calls.filter(trace.calls["step"] == 20).height > 10


@pytest.mark.parametrize("kilobytes", [4, 24, 300])
def test_too_small_from_the_start(tmp_path: Path, healthy: Done, kilobytes: int) -> None:
    with small_disk(tmp_path, kilobytes) as disk:
        done = _run(tmp_path, disk / "run", _command(tmp_path, str(disk), NEVER, NEVER, "0"))
        assert _honest(done, healthy) is None
        assert "No space left on device" in "\n".join(done.said)


@pytest.mark.slow
def test_filled_at_random_points(tmp_path: Path, healthy: Done) -> None:
    """Disks of random sizes, so that the first write to fail is another one each time."""
    chance = random.Random(7)
    kinds = set()
    for _ in range(16):
        kilobytes = int(4 * 2 ** chance.uniform(2, 9.5))
        with small_disk(tmp_path, kilobytes) as disk:
            command = _command(tmp_path, str(disk), NEVER, NEVER, "0")
            done = _run(tmp_path, disk / "run", command, segment_bytes=chance.choice([1 << 12, 1 << 14, 1 << 16]))
            trace = _honest(done, healthy)
            kinds.add("none" if trace is None else "whole" if not trace.lacks else "part")
    assert kinds == {"none", "part", "whole"}


def test_no_room_for_a_folder(tmp_path: Path, healthy: Done) -> None:
    """Not one inode is free."""
    with small_disk(tmp_path, 1000, ",nr_inodes=2") as disk:
        (disk / "other").mkdir()
        done = _run(tmp_path, disk / "run", _command(tmp_path, str(disk), NEVER, NEVER, "0"))
        assert _honest(done, healthy) is None
        assert done.said[0].startswith(f"traincheck: not collecting: {disk / 'run'} can't be written (No space left")


def test_read_only_disk(tmp_path: Path, healthy: Done) -> None:
    with small_disk(tmp_path, 1000) as disk:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        done = watched(tmp_path, _command(tmp_path, str(disk), NEVER, NEVER, "0"), "-o", str(disk / "run"))
        done = Done(done.code, done.out, done.err, disk / "run")
        assert _honest(done, healthy) is None
        assert done.said == [
            f"traincheck: not collecting: {disk / 'run'} can't be written (Read-only file system); "
            "the program runs all the same",
            f"traincheck: nothing was collected: {disk / 'run'} can't be written (Read-only file system)",
        ]


def test_a_file_stands_where_the_folder_should_be(tmp_path: Path, healthy: Done) -> None:
    (tmp_path / "file").write_text("mine")
    done = _run(tmp_path, tmp_path / "file" / "run", _command(tmp_path, "unused", NEVER, NEVER, "0"))
    assert _honest(done, healthy) is None
    assert "can't be written (Not a directory)" in done.said[0]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("what", ["run", "run/processes", "run/manifest.json"])
def test_output_is_removed_while_training(tmp_path: Path, healthy: Done, what: str) -> None:
    command = _command(tmp_path, "unused", NEVER, NEVER, "0")
    text = (tmp_path / "program.py").read_text()
    remove = f"    if step == 4: os.system('rm -r {what}')\n    if step == fill_at:\n"
    (tmp_path / "program.py").write_text(text.replace("    if step == fill_at:\n", remove))
    done = _run(tmp_path, tmp_path / "run", command, segment_bytes=1 << 15)
    assert (done.code, done.out, done.err_of_program) == (healthy.code, healthy.out, b"")
    said = done.said[-1]
    if what == "run":
        assert said == "traincheck: nothing was collected: the folder was removed while the program ran"
        assert not done.run.exists()
    elif what == "run/processes":
        assert said.startswith("traincheck: nothing was collected: the processes' folders were removed")
    else:
        assert said == "            the manifest could not be completed (No such file or directory)"
        assert {lack.code for lack in open_trace(done.run).lacks} == {"no-manifest"}
