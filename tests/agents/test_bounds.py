"""Answers stay small, whatever they are about."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from traincheck.agents.bounds import LONGEST, MOST, answer, clip, page, tail

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(max_size=20), JSON, max_size=8))
def test_a_small_answer_is_whole(value):
    told = json.loads(answer(value))
    assert told.keys() == value.keys()
    assert "shortened" not in told or "shortened" in value


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 3000), st.integers(1, 3000))
def test_a_large_answer_is_cut_and_says_so(rows, width):
    value = {"rows": [{"text": "x" * width, "n": n, "list": list(range(n % 50))} for n in range(rows)]}
    text = answer(value)
    assert len(text) <= MOST
    told = json.loads(text)
    whole = len(json.dumps(value, separators=(",", ":")))
    if whole > 3 * MOST:
        assert told["shortened"]
    if "shortened" not in told:
        assert len(told["rows"]) == rows


def test_what_no_cut_makes_small_is_refused_with_its_fields():
    told = json.loads(answer({f"field{n}": list(range(100)) for n in range(5000)}))
    assert told["shortened"].startswith("too much")
    assert told["fields"][0] == "field0"


def test_a_long_text_keeps_both_ends():
    told = clip("a" * 400 + "b" * 400)
    assert told.startswith("aaa")
    assert told.endswith("bbb")
    assert "200 characters left out" in told
    assert clip("x" * LONGEST) == "x" * LONGEST


def test_names_that_are_not_utf8_survive():
    text = answer({"run": "caf\udce9"})
    text.encode("utf-8")
    assert json.loads(text) == {"run": "caf\udce9"}


def test_pages_lead_from_one_to_the_next():
    items = list(range(25))
    seen, offset = [], 0
    while offset is not None:
        part = page(items, offset, 10)
        seen += part.items
        told = part.to_json("items")
        assert told["total"] == 25
        offset = told.get("next_offset")
    assert seen == items
    assert page(items, 99, 10).to_json("items") == {"items": [], "total": 25}


def test_the_tail_reads_progress_bars_and_large_files(tmp_path):
    file = tmp_path / "log"
    file.write_text("first\n" + "10%\r50%\r\x1b[1;32m100%\x1b[0m\x1b[K\n" + "last\n")
    assert tail(file, 2) == "100%\nlast"
    assert tail(file, 0) == ""
    file.write_text("\n".join(f"line {n}" for n in range(100_000)))
    assert tail(file, 2) == "line 99998\nline 99999"
    assert len(tail(file, 10_000)) <= 4000
    assert tail(tmp_path / "none", 3) == ""
