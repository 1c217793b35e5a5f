"""The chained ledger: what was changed, removed, added or cut off is seen; what was acknowledged is on the disk."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traincheck.pilot import heads
from traincheck.pilot.canonical import encoded, sha256
from traincheck.pilot.ledger import ORIGIN, Ledger, LedgerError, read


def _written(path: Path, count: int = 4) -> list[bytes]:
    with Ledger(path) as ledger:
        for number in range(count):
            ledger.add("kind", {"value": number})
    return path.read_bytes().splitlines(keepends=True)


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        first = ledger.add("one", {"text": "ä", "list": [1, 2.5, None]})
        second = ledger.add("two", {})
        assert ledger.head == second.hash
    assert first.previous == ORIGIN
    assert second.previous == first.hash
    assert list(read(path)) == [first, second]
    assert first.at_ns <= second.at_ns


def test_data_is_hashed_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        entry = ledger.add("kind", {"by": {9: "nine", 10: "ten"}, "pair": (1, 2), "name": "f\udcff"})
    assert list(read(path)) == [entry]
    assert entry.data == {"by": {"9": "nine", "10": "ten"}, "pair": [1, 2], "name": "f\udcff"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: lines[:1] + lines[2:], "entry 1 says that it is number 2"),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], "entry 1 says that it is number 2"),
        (lambda lines: [*lines[:2], lines[2].replace(b'"value":2', b'"value":7'), lines[3]], "entry 2 was changed"),
        (lambda lines: [*lines[:1], b"not json\n", *lines[2:]], "entry 1 is no entry"),
        (lambda lines: [*lines, lines[3]], "entry 4 says that it is number 3"),
        (lambda lines: [lines[0], lines[1].replace(b'"kind":"kind"', b'"kind":"other"'), *lines[2:]], "entry 1 was"),
    ],
)
def test_a_change_is_named(tmp_path: Path, change: object, told: str) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = _written(path)
    path.write_bytes(b"".join(change(lines)))  # type: ignore[operator]
    with pytest.raises(LedgerError, match=told):
        list(read(path))


def test_an_entry_rehashed_alone_does_not_fit_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = _written(path)
    body = json.loads(lines[1])
    body["data"] = {"value": 100}
    del body["hash"]
    lines[1] = encoded({**body, "hash": sha256(body)}) + b"\n"
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerError, match="entry 2 does not follow"):
        list(read(path))


def test_a_cut_end_is_seen_by_the_recorded_head(tmp_path: Path) -> None:
    path = tmp_path / "trials" / "t1" / "ledger.jsonl"
    path.parent.mkdir(parents=True)
    lines = _written(path)
    last = list(read(path))[-1]
    heads.record(tmp_path / "heads.json", path, last.hash)
    assert list(heads.problems(tmp_path / "heads.json")) == []
    assert heads.recorded(tmp_path / "heads.json") == {"trials/t1/ledger.jsonl": last.hash}
    path.write_bytes(b"".join(lines[:-1]))
    assert len(list(read(path))) == 3  # the chain alone can't tell
    (told,) = heads.problems(tmp_path / "heads.json")
    assert "cut off" in told
    path.unlink()
    assert list(heads.problems(tmp_path / "heads.json")) == ["trials/t1/ledger.jsonl: the ledger is missing"]


def test_heads_are_recorded_side_by_side(tmp_path: Path) -> None:
    names = [f"{number}.jsonl" for number in range(20)]
    threads = [
        threading.Thread(target=heads.record, args=(tmp_path / "heads.json", tmp_path / name, name)) for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heads.recorded(tmp_path / "heads.json") == {name: name for name in names}


def test_half_a_line_of_a_killed_writer_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = _written(path)
    path.write_bytes(b"".join(lines) + lines[0][:20])
    with Ledger(path) as ledger:
        entry = ledger.add("after", {})
    assert entry.number == 4
    assert [one.kind for one in read(path)] == ["kind"] * 4 + ["after"]


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    program = (
        "import os, sys; from pathlib import Path; from traincheck.pilot.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]))\n"
        "for number in range(50): ledger.add('kind', {'number': number})\n"
        "print(50, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=False, timeout=60)
    assert done.returncode == -9
    assert done.stdout == b"50\n"
    assert [entry.data["number"] for entry in read(path)] == list(range(50))


def test_a_full_disk_leaves_no_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Ledger(path) as ledger:
        first = ledger.add("kind", {})
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, before[1]))
        try:
            with pytest.raises(OSError, match="only 50 of"):
                ledger.add("kind", {"text": "x" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert list(read(path)) == [first]
        second = ledger.add("kind", {})
    assert list(read(path)) == [first, second]


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        threads = [
            threading.Thread(target=lambda name=name: [ledger.add(name, {"n": n}) for n in range(25)])
            for name in "abcd"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    entries = list(read(path))
    assert [entry.number for entry in entries] == list(range(100))
    for name in "abcd":
        assert [entry.data["n"] for entry in entries if entry.kind == name] == list(range(25))


def test_a_ledger_of_before_a_restart_of_the_machine_is_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, now=lambda: 5_000) as ledger:
        ledger.add("kind", {})
    with pytest.raises(LedgerError, match="started anew"):
        Ledger(path, now=lambda: 4_000)


def test_time_never_goes_back(tmp_path: Path) -> None:
    times = iter([0, 7, 5, 9])
    path = tmp_path / "ledger.jsonl"
    with Ledger(path, now=lambda: next(times)) as ledger:
        assert [ledger.add("kind", {}).at_ns for _ in range(3)] == [7, 7, 9]
    assert [entry.at_ns for entry in read(path)] == [7, 7, 9]


@pytest.mark.parametrize("data", [{"x": float("nan")}, {"x": object()}])
def test_what_is_no_json_is_refused_and_leaves_nothing(tmp_path: Path, data: dict[str, object]) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger(path) as ledger:
        with pytest.raises((ValueError, TypeError)):
            ledger.add("kind", data)
        ledger.add("kind", {})
    assert [entry.number for entry in read(path)] == [0]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(data=st.lists(st.dictionaries(st.text(), _json, max_size=4), min_size=1, max_size=3), at=st.data())
def test_any_json_is_chained_and_any_flipped_byte_is_seen(
    tmp_path_factory: pytest.TempPathFactory, data: list[dict[str, object]], at: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    with Ledger(path) as ledger:
        for one in data:
            ledger.add("kind", one)
    assert [entry.data for entry in read(path)] == data
    content = bytearray(path.read_bytes())
    place = at.draw(st.integers(0, len(content) - 2))
    content[place] ^= at.draw(st.sampled_from([1, 2, 4, 8]))
    path.write_bytes(bytes(content))
    try:
        again = [(entry.kind, entry.data) for entry in read(path)]
    except LedgerError:
        return
    # Only what means the same JSON can pass (e.g. the case of an exponent's letter); never other content.
    assert again == [("kind", one) for one in data]
