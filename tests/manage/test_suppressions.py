from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincheck.errors import TraincheckError
from traincheck.invariants import InvariantFileError, load_invariants
from traincheck.suppressions import (
    FILE_NAME,
    Suppression,
    SuppressionFileError,
    beside,
    load_suppressions,
    parse_suppression,
    save_suppressions,
)

from .making import contain, saved

TODAY = date(2026, 5, 10)
KEY = "0123456789abcdef"


def line(**changes: Any) -> dict[str, Any]:
    return {"schema": 1, "id": KEY, "text": "A() calls B()", "reason": "known", "date": "2026-05-01", **changes}


def _drop(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda data: data.pop(name)


def _put(name: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda data: data.update({name: value})


REFUSED = {
    "no schema": (_drop("schema"), "schema", "required, but missing"),
    "future": (_put("schema", 2), "schema", "version 2 is newer"),
    "schema a word": (_put("schema", "1"), "schema", "integer"),
    "schema a truth": (_put("schema", True), "schema", "integer"),
    "schema zero": (_put("schema", 0), "schema", "greater"),
    "no id": (_drop("id"), "id", "required, but missing"),
    "id an index": (_put("id", "3"), "id", "16 of the digits"),
    "id in capitals": (_put("id", KEY.upper()), "id", "16 of the digits"),
    "id with a line end": (_put("id", KEY + "\n"), "id", "16 of the digits"),
    "no text": (_drop("text"), "text", "required, but missing"),
    "no reason": (_drop("reason"), "reason", "required, but missing"),
    "reason blank": (_put("reason", " \t"), "reason", "some words"),
    "reason a list": (_put("reason", ["x"]), "reason", "string"),
    "no date": (_drop("date"), "date", "required, but missing"),
    "date a number": (_put("date", 20260501), "date", "YYYY-MM-DD"),
    "date a time": (_put("date", "2026-05-01T10:00:00"), "date", "YYYY-MM-DD"),
    "date short": (_put("date", "20260501"), "date", "YYYY-MM-DD"),
    "date impossible": (_put("date", "2026-02-30"), "date", "YYYY-MM-DD"),
    "until a word": (_put("until", "tomorrow"), "until", "YYYY-MM-DD"),
    "until before": (_put("until", "2026-04-30"), "until", "before the date"),
    "extra": (_put("who", "me"), "who", "unknown field"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_file_line_and_field(tmp_path: Path, name: str) -> None:
    change, field, problem = REFUSED[name]
    bad = line()
    change(bad)
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(line(id="f" * 16)) + "\n\n" + json.dumps(bad) + "\n")
    with pytest.raises(SuppressionFileError) as caught:
        load_suppressions(path)
    assert (caught.value.line, caught.value.field) == (3, field)
    assert problem in caught.value.message
    assert f"{path}, line 3, field {field}: " in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("text", ["{", "[]", "3", "null", "[" * 100_000, '{"relation": "X"}', "nonsense"])
def test_other_things_are_not_suppressions(text: str) -> None:
    with pytest.raises(SuppressionFileError, match="line 1: "):
        parse_suppression(text)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x)).map(json.dumps))
def test_any_other_json_is_refused(text: str) -> None:
    with pytest.raises(SuppressionFileError, match=r"^<text>, line 1: "):
        parse_suppression(text)


def test_the_two_kinds_of_file_are_told_apart(tmp_path: Path) -> None:
    rules = saved(tmp_path / "i.jsonl", contain("a.A", "a.B"))
    accepted = tmp_path / FILE_NAME
    accepted.write_text(json.dumps(line()) + "\n")
    with pytest.raises(SuppressionFileError, match="this is an invariant"):
        load_suppressions(rules)
    with pytest.raises(InvariantFileError, match="line of suppressions"):
        load_invariants(accepted)


def test_once_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text(json.dumps(line()) + "\n" + json.dumps(line(reason="again")) + "\n")
    with pytest.raises(SuppressionFileError, match=r"line 2, field id: .* in line 1 already"):
        load_suppressions(path)


def test_unreadable_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(TraincheckError, match="nothing at"):
        load_suppressions(tmp_path / "none")
    with pytest.raises(TraincheckError, match="is a folder"):
        load_suppressions(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(TraincheckError, match="not UTF-8"):
        load_suppressions(tmp_path / "binary")
    (tmp_path / "empty").touch()
    assert len(load_suppressions(tmp_path / "empty")) == 0


def test_the_last_day_still_counts(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text(json.dumps(line(until="2026-05-10")) + "\n")
    assert load_suppressions(path, today=TODAY).of(KEY) is not None
    later = load_suppressions(path, today=date(2026, 5, 11))
    assert later.of(KEY) is None
    assert [one.id for one in later.expired([KEY])] == [KEY]
    assert later.expired(["f" * 16]) == []
    assert "ended on 2026-05-10 (known): it counts again" in later.notes([KEY])[0]


def test_one_in_force_is_enough(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text(json.dumps(line(until="2026-05-02")) + "\n")
    new.write_text(json.dumps(line(reason="still")) + "\n")
    both = load_suppressions(old, new, today=TODAY)
    found = both.of(KEY)
    assert found is not None
    assert found.reason == "still"
    assert both.expired([KEY]) == []
    assert both.files == (str(old), str(new))


def test_those_of_nothing_checked_are_said(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text(json.dumps(line()) + "\n")
    found = load_suppressions(path, today=TODAY)
    assert found.notes([KEY]) == []
    assert found.notes([]) == [f"1 suppression is of no invariant checked here ({KEY})"]
    assert found.to_json([])["unmatched"] == [line()]


def test_many_ended_ones_do_not_fill_the_screen(tmp_path: Path) -> None:
    path = tmp_path / "s"
    ids = [f"{number:016x}" for number in range(50)]
    path.write_text("".join(json.dumps(line(id=key, until="2026-05-02")) + "\n" for key in ids))
    notes = load_suppressions(path, today=TODAY).notes(ids)
    assert len(notes) == 11
    assert "40 more" in notes[-1]


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    path = tmp_path / "s"
    entries = [
        Suppression(id=KEY, text="Ü\u2028 “x”", reason="a\nb", date=TODAY),
        Suppression(id="f" * 16, text="", reason="c", date=TODAY, until=date(2027, 1, 1)),
    ]
    save_suppressions(entries, path)
    assert list(load_suppressions(path)) == entries
    assert len(path.read_text(encoding="utf-8").split("\n")) == 3
    assert set(json.loads(path.read_text().split("\n")[0])) == {"schema", "id", "text", "reason", "date"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["s"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").touch()
    link = tmp_path / "link"
    os.symlink(tmp_path / "real", link)
    save_suppressions([parse_suppression(json.dumps(line()))], link)
    assert link.is_symlink()
    assert len(load_suppressions(tmp_path / "real")) == 1


def test_unwritable_place_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraincheckError, match="cannot write"):
        save_suppressions([], tmp_path / "no" / "folder")


def test_found_beside(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "sub" / "c.jsonl"]
    assert beside(files) == []
    (tmp_path / FILE_NAME).touch()
    assert beside(files) == [tmp_path / FILE_NAME]
