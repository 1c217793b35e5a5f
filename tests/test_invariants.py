from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traincheck.errors import TraincheckError
from traincheck.invariants import (
    RELATIONS,
    InvariantFileError,
    dump_invariants,
    load_invariants,
    parse_invariant,
    provenance_path,
    save_invariants,
)

SAMPLE = Path(__file__).parent / "data" / "invariants" / "sample-0x.json"

CURATED = (
    "e0f3c27ab9b5c0fe",
    "e3c23517f253ad76",
    "7092e00b6f9dc330",
    "c652c1578f75cf80",
    "2fd762b52ec3c954",
    "e45778721fd34e71",
    "784f36247f55e5e9",
)
"""Published canonical hashes of the first lines of the sample."""


def line(**changes: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "text_description": "A() always calls B()",
        "relation": "APIContainRelation",
        "params": [
            {"param_type": "APIParam", "api_full_name": "m.A"},
            {"param_type": "VarTypeParam", "var_type": "T", "attr_name": "a", "pre_value": None},
        ],
        "precondition": {"parent_func_call_pre": {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}},
    }
    return {**data, **changes}


def test_real_files_keep_their_meaning() -> None:
    raw = [json.loads(text) for text in SAMPLE.read_text().splitlines()]
    loaded = load_invariants(SAMPLE)
    assert {invariant.relation for invariant in loaded} == set(RELATIONS) - {"ThresholdRelation"}
    assert [invariant.to_json() for invariant in loaded] == raw
    assert [json.loads(text) for text in dump_invariants(loaded).splitlines()] == raw
    assert tuple(invariant.key for invariant in loaded[: len(CURATED)]) == CURATED


def test_null_is_not_the_same_as_never_set() -> None:
    child = parse_invariant(json.dumps(line())).params[1]
    assert child.is_set("pre_value")  # type: ignore[union-attr]
    assert not child.is_set("post_value")  # type: ignore[union-attr]


def test_key_ignores_order_and_words() -> None:
    def clauses(*names: str) -> dict[str, Any]:
        parts = [{"type": "exist", "prop_name": name, "additional_path": "None", "prop_dtype": "int"} for name in names]
        return {"parent_func_call_pre": {"inverted": False, "preconditions": [{"clauses": parts}]}}

    one = parse_invariant(json.dumps(line(precondition=clauses("a", "b"), num_positive_examples=3)))
    two = parse_invariant(json.dumps(line(precondition=clauses("b", "a"), text_description="other")))
    other = parse_invariant(json.dumps(line(precondition=clauses("a", "c"))))
    assert one.key == two.key != other.key


def _drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(name)


def _put(value: Any, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = value

    return change


GROUP = ("precondition", "parent_func_call_pre")

REFUSED = {
    "unknown relation": (_put("MagicRelation", "relation"), "relation", "unknown relation 'MagicRelation'"),
    "no relation": (_drop("relation"), "relation", "required, but missing"),
    "no precondition": (_drop("precondition"), "precondition", "required, but missing"),
    "no description": (_drop("text_description"), "text_description", "required"),
    "failed": (_put("Failed", "precondition"), "precondition", "dictionary"),
    "api name missing": (lambda d: d["params"][0].pop("api_full_name"), "params.0.api_full_name", "required"),
    "api name a number": (_put(3, "params", 0, "api_full_name"), "params.0.api_full_name", "string"),
    "api name empty": (_put("", "params", 0, "api_full_name"), "params.0.api_full_name", "at least 1"),
    "param unknown": (_put("EvilParam", "params", 0, "param_type"), "params.0", "EvilParam"),
    "param swapped": (lambda d: d["params"].reverse(), "params", "takes [APIParam, APIParam]"),
    "no params": (_put([], "params"), "params", "at least 1"),
    "extra field": (_put(1, "surprise"), "surprise", "unknown field"),
    "inverted a word": (_put("yes", *GROUP, "inverted"), "precondition.parent_func_call_pre.inverted", "boolean"),
    "clause type": (
        _put([{"clauses": [{"type": "magic", "prop_name": "a"}]}], *GROUP, "preconditions"),
        "precondition.parent_func_call_pre.preconditions.0.clauses",
        "",
    ),
    "constant without values": (
        _put([{"clauses": [{"type": "constant", "prop_name": "a"}]}], *GROUP, "preconditions"),
        "precondition.parent_func_call_pre.preconditions.0.clauses",
        "",
    ),
    "always and more": (
        _put([{"clauses": "Unconditional"}, {"clauses": "Unconditional"}], *GROUP, "preconditions"),
        "precondition.parent_func_call_pre",
        "only precondition",
    ),
    "future": (_put(99, "schema"), "schema", "version 99 is newer"),
    "count a word": (_put("many", "num_positive_examples"), "num_positive_examples", "integer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_file_line_and_field(tmp_path: Path, name: str) -> None:
    change, field, problem = REFUSED[name]
    bad = line()
    change(bad)
    path = tmp_path / "i.jsonl"
    path.write_text(json.dumps(line()) + "\n\n" + json.dumps(bad) + "\n")
    with pytest.raises(InvariantFileError) as caught:
        load_invariants(path)
    assert caught.value.line == 3
    assert caught.value.field.startswith(field)
    assert problem in caught.value.message
    assert f"{path}, line 3" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["{", "[]", "3", '"x"', "null", "[" * 100_000, '{"failed_reason": "x", "invariant": {}}']
)
def test_other_things_are_not_invariants(text: str) -> None:
    with pytest.raises(InvariantFileError):
        parse_invariant(text)


def test_nothing_is_evaluated(tmp_path: Path) -> None:
    mark = tmp_path / "evaluated"
    evil = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    clause = {"type": "constant", "prop_name": evil, "prop_dtype": evil, "values": [evil]}
    group = {"parent_func_call_pre": {"inverted": False, "preconditions": [{"clauses": [clause]}]}}
    parse_invariant(json.dumps(line(precondition=group)))
    assert not mark.exists()


def test_unreadable_files_say_so(tmp_path: Path) -> None:
    with pytest.raises(TraincheckError, match="nothing at"):
        load_invariants(tmp_path / "none")
    with pytest.raises(TraincheckError, match="is a folder"):
        load_invariants(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraincheckError, match="not UTF-8"):
        load_invariants(tmp_path / "binary")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"{}")[:-6])
    with pytest.raises(TraincheckError, match="cut or damaged"):
        load_invariants(tmp_path / "torn.gz")


def test_files_are_concatenated_with_their_places(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two.gz"
    one.write_text("\n" + json.dumps(line()) + "\n")
    two.write_bytes(gzip.compress(json.dumps(line(relation="APIContainRelation")).encode()))
    loaded = load_invariants(one, two)
    assert loaded.places == ((str(one), 2), (str(two), 1))


def test_provenance_stands_beside(tmp_path: Path) -> None:
    path = tmp_path / "good.jsonl"
    save_invariants([parse_invariant(json.dumps(line()))], path, {"references": [{"run": "runs/good"}]})
    assert all("relation" in json.loads(text) for text in path.read_text().splitlines())
    assert load_invariants(path).provenance[0]["references"] == [{"run": "runs/good"}]
    provenance_path(path).write_text('{"schema": 99}')
    with pytest.raises(TraincheckError, match="newer"):
        load_invariants(path)
    provenance_path(path).write_text("[]")
    with pytest.raises(TraincheckError, match="not a provenance file"):
        load_invariants(path)
    provenance_path(path).unlink()
    assert load_invariants(path).provenance == ()


def test_unwritable_place_says_so(tmp_path: Path) -> None:
    with pytest.raises(TraincheckError, match="cannot write"):
        save_invariants([], tmp_path / "no" / "such" / "folder")


@pytest.mark.parametrize("at", [20, 60, 100, -6])
def test_damaged_gzip_is_bad_input(tmp_path: Path, at: int) -> None:
    """Wherever the damage is: header, data, checksum."""
    data = bytearray(gzip.compress("".join(json.dumps(line(id=f"{n:016x}")) + "\n" for n in range(40)).encode()))
    data[at : at + 2 if at > 0 else None] = b"\xff\xff"
    (tmp_path / "damaged.gz").write_bytes(bytes(data))
    with pytest.raises(TraincheckError, match=r"damaged|not UTF-8|not JSON") as caught:
        load_invariants(tmp_path / "damaged.gz")
    assert caught.value.hint or "not UTF-8" in caught.value.message


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "i.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(line()).encode() + b"\r\n")
    assert len(load_invariants(tmp_path / "i.jsonl")) == 1


def test_a_field_given_twice_is_refused() -> None:
    text = json.dumps(line())[:-1] + ', "relation": "FunctionLeadRelation"}'
    with pytest.raises(InvariantFileError, match="field relation: expected once in an object, found twice"):
        parse_invariant(text)
    with pytest.raises(InvariantFileError, match="field attr_name"):
        parse_invariant(json.dumps(line()).replace('"attr_name":', '"attr_name": "b", "attr_name":'))


@pytest.mark.parametrize("depth", [300, 900])
def test_deep_values_are_told_in_few_words(depth: int) -> None:
    text = json.dumps(line()).replace('"pre_value": null', f'"pre_value": {"[" * depth}{"]" * depth}')
    with pytest.raises(InvariantFileError, match="nested too deeply") as caught:
        parse_invariant(text)
    assert len(caught.value.message) < 200


def test_what_was_found_is_told() -> None:
    with pytest.raises(InvariantFileError, match='field params: expected a valid list, found "abc"'):
        parse_invariant(json.dumps(line(params="abc")))
    with pytest.raises(InvariantFileError, match=r"expected a param_type among APIParam, .*, found null"):
        parse_invariant(json.dumps(line(params=[{}])))
