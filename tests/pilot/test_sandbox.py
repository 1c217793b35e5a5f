"""Inspect's view of a place: commands end with all they started, files are those that processes in it see."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from traincheck.pilot import jail
from traincheck.pilot.inspecting.sandbox import PlaceSandbox

from .places_support import inside, trial_place

KIND = "jail" if jail.available().ok else "local"


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[PlaceSandbox]:
    with trial_place(tmp_path, "control", KIND) as place:
        PlaceSandbox.place = place
        try:
            yield PlaceSandbox()
        finally:
            PlaceSandbox.place = None


def left(sandbox: PlaceSandbox, mark: str) -> bool:
    assert sandbox.place is not None
    listed = inside(sandbox.place, "sh", "-c", "for one in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $one; echo; done")
    return any(line.strip() == mark for line in listed.stdout.splitlines())


def test_a_command_runs_in_the_workspace(sandbox: PlaceSandbox) -> None:
    done = asyncio.run(
        sandbox.exec(["bash", "-c", "cat; pwd; echo $MORE; echo no >&2; exit 3"], input="in\n", env={"MORE": "x"})
    )
    assert (done.returncode, done.success) == (3, False)
    assert done.stdout.splitlines()[0] == "in"
    assert done.stdout.splitlines()[1].endswith("/work")
    assert done.stdout.splitlines()[2] == "x"
    assert done.stderr == "no\n"


def test_a_command_that_takes_too_long_ends_with_all_it_started(sandbox: PlaceSandbox) -> None:
    mark = f"sleep 95{os.getpid()}"
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(sandbox.exec(["bash", "-c", f"{mark} & setsid {mark} & (trap '' TERM; {mark}); true"], timeout=1))
    assert time.monotonic() - began < 20
    assert not left(sandbox, mark)


def test_a_command_whose_trial_is_over_ends_with_all_it_started(sandbox: PlaceSandbox) -> None:
    mark = f"sleep 94{os.getpid()}"

    async def run() -> None:
        work = asyncio.ensure_future(sandbox.exec(["bash", "-c", f"{mark} & {mark}; true"]))
        await asyncio.sleep(1.0)
        assert left(sandbox, mark)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    began = time.monotonic()
    asyncio.run(run())
    assert time.monotonic() - began < 20
    assert not left(sandbox, mark)


def test_files_are_written_and_read(sandbox: PlaceSandbox) -> None:
    asyncio.run(sandbox.write_file("new/deep/it's.txt", "grün\n"))
    assert asyncio.run(sandbox.read_file("new/deep/it's.txt")) == "grün\n"
    asyncio.run(sandbox.write_file("bytes", b"\x00\xff"))
    assert asyncio.run(sandbox.read_file("bytes", text=False)) == b"\x00\xff"
    assert (Path(str(sandbox.place and sandbox.place.root)) / "work" / "bytes").read_bytes() == b"\x00\xff"


def test_what_can_not_be_read_or_written_is_told_by_its_kind(sandbox: PlaceSandbox) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(sandbox.read_file("none"))
    with pytest.raises(IsADirectoryError):
        asyncio.run(sandbox.read_file("."))
    if KIND == "jail":
        with pytest.raises(PermissionError):
            asyncio.run(sandbox.write_file("/usr/new", "x"))


@pytest.mark.skipif(KIND != "jail", reason="nothing is out of reach without a jail")
def test_a_link_leads_nowhere_but_in_the_place(sandbox: PlaceSandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    asyncio.run(sandbox.exec(["ln", "-s", str(tmp_path), "away"]))
    with pytest.raises(FileNotFoundError):
        asyncio.run(sandbox.read_file("away/secret"))
    with pytest.raises(OSError):  # noqa: PT011  the link leads to nothing: of which kind that is does not matter
        asyncio.run(sandbox.write_file("away/new", "x"))
    assert not (tmp_path / "new").exists()
