"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.infer import infer

from .relations.worlds import World


def test_nothing_changes_when_one_cannot_be_written(tmp_path: Path) -> None:
    old = tmp_path / "one"
    old.write_text("old")
    with pytest.raises(OSError, match="missing"):
        write_whole({old: "new", tmp_path / "missing" / "two": "new"})
    assert old.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole({tmp_path / "link": "new", pipe: "told"})
        assert os.read(reader, 100) == b"told"
    finally:
        os.close(reader)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_interrupted_save_keeps_the_old_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of the three files cannot be written, the three of before stand as they stood."""
    target = tmp_path / "good.jsonl"
    infer([World().trace()]).save(target)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(before) == ["good.jsonl", "good.jsonl.provenance.json", "good.jsonl.rejected"]
    learned = infer([World(accumulate=2).trace()])
    write = Path.write_text
    for name in before:

        def fails(self: Path, *args: str, bad: str = name, **options: str) -> int:
            if self.name.startswith(f".{bad}."):
                raise OSError(28, "No space left on device")
            return write(self, *args, **options)

        monkeypatch.setattr(Path, "write_text", fails)
        with pytest.raises(TraincheckError, match="No space left"):
            learned.save(target)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
