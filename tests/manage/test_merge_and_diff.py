from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from traincheck.errors import TraincheckError
from traincheck.invariants import InvariantSet, load_invariants, provenance_path
from traincheck.manage.diff import diff
from traincheck.manage.merge import merge
from traincheck.manage.sets import concatenated, read, save_derived

from .making import changes, contain, saved, when

A, B, C = contain("m.A", "m.X"), contain("m.B", "m.X"), contain("m.C", "m.X")


def supported(**figures: int):
    return contain("m.A", "m.X", **figures)


def test_each_rule_once_and_sorted(tmp_path: Path) -> None:
    sources = read([saved(tmp_path / "one", C, A, A), saved(tmp_path / "two", B, C)])
    merged = merge(sources)
    assert list(merged.invariants) == [A, B, C]
    assert (merged.read, merged.several_preconditions) == (5, 0)


def test_support_of_different_references_is_added(tmp_path: Path) -> None:
    one = saved(tmp_path / "1", supported(applications=10, excluded=1, steps=5, ranks=2), runs=("runs/a",))
    two = saved(tmp_path / "2", supported(applications=4, steps=3, ranks=4, references=2), runs=("runs/b", "runs/c"))
    (both,) = merge(read([one, two])).invariants
    assert both.support is not None
    assert both.support.model_dump() == {"applications": 14, "excluded": 1, "steps": 8, "ranks": 4, "references": 3}


def test_a_run_does_not_count_twice(tmp_path: Path) -> None:
    one = saved(tmp_path / "1", supported(applications=10, steps=5), runs=("runs/a",))
    two = saved(tmp_path / "2", supported(applications=14, steps=3, references=2), runs=("runs/a", "runs/b"))
    (both,) = merge(read([one, two])).invariants
    assert both.support is not None
    assert both.support.model_dump(exclude_unset=True) == {"applications": 14, "steps": 5, "ranks": 1, "references": 2}
    third = saved(tmp_path / "3", supported(applications=1, steps=1), runs=("runs/b",))
    (all_three,) = merge(read([one, two, third])).invariants
    assert all_three.support is not None
    assert all_three.support.applications == 14


def test_without_provenance_the_content_is_the_origin(tmp_path: Path) -> None:
    one, copy = saved(tmp_path / "1", supported(applications=10)), saved(tmp_path / "2", supported(applications=10))
    other = saved(tmp_path / "3", supported(applications=3))
    (same,) = merge(read([one, copy])).invariants
    (more,) = merge(read([one, other])).invariants
    assert same.support is not None
    assert more.support is not None
    assert (same.support.applications, more.support.applications) == (10, 13)


def test_examples_of_old_files_are_added_and_known_support_is_kept(tmp_path: Path) -> None:
    old = A.model_copy(update={"num_positive_examples": 3})
    new = A.model_copy(update={"num_positive_examples": 4, "num_negative_examples": 1, **_support(7)})
    for first, second in ((old, new), (new, old)):
        sources = read([saved(tmp_path / "1", first, runs=("a",)), saved(tmp_path / "2", second, runs=("b",))])
        (both,) = merge(sources).invariants
        assert (both.num_positive_examples, both.num_negative_examples) == (7, 1)
        assert both.support == new.support


def _support(applications: int) -> dict[str, object]:
    return {"support": supported(applications=applications).support}


def test_merging_with_itself_changes_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path / "1", A, supported(applications=3), B, runs=("runs/a",))
    merged = merge(read([path, path])).invariants
    assert diff(InvariantSet(merge(read([path])).invariants), InvariantSet(merged)).same


def test_other_preconditions_are_kept_and_counted(tmp_path: Path) -> None:
    narrow = contain("m.A", "m.X", when("training"))
    merged = merge(read([saved(tmp_path / "1", A), saved(tmp_path / "2", narrow)]))
    assert len(merged.invariants) == 2
    assert merged.several_preconditions == 1


def test_provenance_of_all(tmp_path: Path) -> None:
    one, two = saved(tmp_path / "1", A, runs=("a", "b")), saved(tmp_path / "2", B, runs=("b", "c"))
    three = tmp_path / "3.gz"
    three.write_bytes(gzip.compress(saved(tmp_path / "3", C).read_bytes()))
    sources = read([one, two, three])
    assert len(concatenated(sources)) == 3
    out = tmp_path / "out"
    save_derived(merge(sources).invariants, out, sources, {"by": "merge"})
    (provenance,) = load_invariants(out).provenance
    assert [reference["run"] for reference in provenance["references"]] == ["a", "b", "c"]
    assert [source["file"] for source in provenance["sources"]] == [str(one), str(two), str(three)]
    assert provenance["made"] == {"by": "merge"}
    assert provenance["invariants"] == 3


def test_odd_provenance_is_no_reference(tmp_path: Path) -> None:
    path = saved(tmp_path / "1", A)
    provenance_path(path).write_text(json.dumps({"schema": 1, "references": "none"}))
    (source,) = read([path])
    assert source.references == []
    with pytest.raises(TraincheckError, match="nothing at"):
        read([tmp_path / "none"])


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    odd = A.model_copy(update={"text_description": "a\u2028b\x85c"})
    path = saved(tmp_path / "1", odd, B)
    assert list(load_invariants(path)) == [odd, B]
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert list(load_invariants(path)) == [odd, B]


def as_set(*invariants) -> InvariantSet:
    return InvariantSet(tuple(invariants))


def test_the_same_whatever_order_and_words() -> None:
    renamed = A.model_copy(update={"text_description": "other words"})
    found = diff(as_set(A, B, A), as_set(B, renamed))
    assert found.same
    assert found.unchanged == 2
    assert found.text() == "the same: 2"


def test_what_differs() -> None:
    narrow, wide = changes("m.S", "data", when("training")), changes("m.S", "data", applications=5)
    found = diff(as_set(A, B, narrow, supported(applications=1)), as_set(wide, C, A))
    assert not found.same
    assert (found.only_a, found.only_b) == ((1,), (1,))
    assert [(change.a, change.b, change.what) for change in found.changed] == [(2, 0, ("precondition", "support"))]
    data = json.loads(json.dumps(found.to_json()))
    assert data["same"] is False
    assert data["changed"][0]["a"]["precondition"] == "the call: stage is training"
    assert data["changed"][0]["b"]["precondition"] == "always"
    text = found.text()
    assert "  - 1 m.B > m.X" in text
    assert "  + 1 m.C > m.X" in text
    assert "precondition: the call: stage is training  ->  always" in text


def test_support_alone() -> None:
    one, two = as_set(supported(applications=1)), as_set(supported(applications=2))
    assert diff(one, two).changed[0].what == ("support",)
    assert diff(one, two, ignore_support=True).same


def test_leftover_preconditions_are_only_in_one() -> None:
    several = [contain("m.A", "m.X", when(stage)) for stage in ("training", "evaluation", "init")]
    found = diff(as_set(*several), as_set(A))
    assert [(change.a, change.b) for change in found.changed] == [(0, 0)]
    assert found.only_a == (1, 2)
    back = diff(as_set(A), as_set(*several))
    assert [(change.a, change.b) for change in back.changed] == [(0, 0)]
    assert back.only_b == (1, 2)


def test_equal_words_are_told_apart_by_full_names() -> None:
    words = {"text_description": "A() calls X()"}
    found = diff(as_set(A.model_copy(update=words)), as_set(contain("m.A", "n.X").model_copy(update=words)))
    assert "      calls of m.X" in found.text()
    assert "      calls of n.X" in found.text()
