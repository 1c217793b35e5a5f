"""The compact form: equal to what it replaces, and nothing is removed before that is certain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trace.builders import everything
from traincheck.errors import TraceError
from traincheck.trace import compact as module
from traincheck.trace import open_trace
from traincheck.trace.compact import compact

CALLS = "compact/calls.parquet"


def segments(run: Path) -> list[Path]:
    return sorted([*run.glob("processes/*/*.tcev"), *run.glob("processes/*/symbols.jsonl")])


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return everything().write(tmp_path / "run", segment_records=40)


@pytest.mark.parametrize("keep", [False, True])
def test_same_trace_afterwards(run: Path, keep: bool) -> None:
    before = open_trace(run)
    held = len(segments(run))
    done = compact(run, keep=keep)
    after = open_trace(run)
    for name, frame in before.frames.items():
        assert frame.equals(after.frames[name]), name
        assert done.rows[name] == len(frame)
    assert after.processes == before.processes
    assert after.manifest == before.manifest
    assert after.lacks == before.lacks
    assert len(segments(run)) == (held if keep else 0)
    assert done.removed == (0 if keep else held)
    assert done.to_json()["bytes_after"] > 0


def test_twice(run: Path) -> None:
    compact(run)
    with pytest.raises(TraceError, match="compact already"):
        compact(run, force=True)


def test_again_while_segments_are_there(run: Path) -> None:
    compact(run, keep=True)
    with pytest.raises(TraceError, match="compact already"):
        compact(run)
    compact(run, force=True)
    assert not segments(run)


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    run = everything().write(tmp_path / "run", closed=False)
    with pytest.raises(TraceError, match="not finished") as caught:
        compact(run)
    assert "--force" in (caught.value.hint or "")
    before = open_trace(run)
    compact(run, force=True)
    assert open_trace(run).lacks == before.lacks


def test_what_was_not_understood_is_kept(run: Path) -> None:
    segments(run)[1].write_bytes(b"GIF89a" * 40)
    held = segments(run)
    done = compact(run)
    assert segments(run) == held
    assert done.note is not None


def test_nothing_is_removed_when_it_does_not_read_back(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = segments(run)
    real = module._parquet
    monkeypatch.setattr(module, "_parquet", lambda file, name: real(file, name).head(1))
    with pytest.raises(TraceError, match="does not read back"):
        compact(run)
    assert segments(run) == held
    assert sorted(path.name for path in run.iterdir()) == ["manifest.json", "processes"]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "index"])
def test_damage_is_seen(run: Path, damage: str) -> None:
    compact(run)
    path = run / ("compact/compact.json" if damage == "index" else CALLS)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes({"flip": data, "cut": data[:50], "index": b"[]"}[damage])
    with pytest.raises(TraceError) as caught:
        open_trace(run)
    assert "collect the run again" in (caught.value.hint or "")


def test_a_read_only_folder_is_a_sentence(run: Path) -> None:
    (run / ".compact.blocked").write_text("")
    (run / "compact").write_text("in the way")
    with pytest.raises(TraceError, match="cannot be written"):
        compact(run)
    assert segments(run)
