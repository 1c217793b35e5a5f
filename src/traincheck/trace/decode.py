"""From one process's records and symbols to frames."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.events import Kind, Mark, Moment, Outcome, Value
from traincheck.trace import schema
from traincheck.trace.columns import ValueTable, location_text, pick, text_of
from traincheck.trace.segments import Stream
from traincheck.trace.symbols import Symbols, parameter_path

Array = npt.NDArray[Any]

LOCATION_PATH: Final = "@location"
"""Path of the capture that holds a call's place in the user's code; it becomes ``calls.location``."""

_VARIABLE_FIELDS: Final = frozenset({"k", "id", "name", "role", "type", "owner"})
_DAMAGED: Final = "not of this format version, or damaged"


@dataclass
class Decoded:
    """Frames of one process, what they lack as (code, sentence), and how many records each kind had."""

    frames: dict[str, pl.DataFrame]
    lacks: list[tuple[str, str]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class _Decoder:
    def __init__(self, stream: Stream, symbols: Symbols, process: int, rank: int | None) -> None:
        self.stream = stream
        self.symbols = symbols
        self.process = process
        self.rank = rank
        self.values = ValueTable(symbols)
        self.unresolved = 0
        self.unknown_values = 0
        self.lacks: list[tuple[str, str]] = []
        kinds = stream.records["kind"]
        self.at = {kind: np.flatnonzero(kinds == kind) for kind in Kind if kind is not Kind.NONE}
        unknown = len(kinds) - sum(len(at) for at in self.at.values())
        if unknown:
            self.lacks.append(("unknown-records", f"{unknown} records were left out: their kind is {_DAMAGED}."))
        entries = symbols.entries
        self.functions = [text_of(e, "name") if e["k"] == "function" else None for e in entries]
        self.function_words = pl.Series(self.functions, dtype=pl.Categorical)
        self.texts = [text_of(e, "v") if e["k"] == "value" else None for e in entries]
        self._place_marks()

    # --- where a record lies -----------------------------------------------------------------------------------------

    def _place_marks(self) -> None:
        marks = self.stream.records[self.at[Kind.MARK]]
        seq = self.stream.seq[self.at[Kind.MARK]]
        steps = marks["b"] == Mark.STEP_BEGIN
        self.step_seq = self._since(marks[steps], seq[steps])
        number = np.minimum(marks["y"][steps], np.uint64(2**31 - 1)).astype(np.int32)
        self.step_number = np.concatenate([np.zeros(1, dtype=np.int32), number])
        stages = marks["b"] == Mark.STAGE
        self.stage_seq = self._since(marks[stages], seq[stages])
        names = [self.texts[p] if p >= 0 else None for p in self.symbols.lookup(marks["i"][stages]).tolist()]
        self.unresolved += names.count(None)
        self.stage_names = pl.Series(["init", *(name or "unknown" for name in names)], dtype=pl.Categorical)

    def _since(self, marks: Array, seq: Array) -> Array:
        """Where what these marks begin begins: with the call that gave the sign, if they name one."""
        begins = self.at[Kind.BEGIN]
        numbers = self.stream.records["y"][begins]
        at = np.searchsorted(numbers, marks["z"])
        at[at == len(numbers)] = 0
        named = (marks["z"] > 0) & (numbers[at] == marks["z"]) if len(numbers) else np.zeros(len(marks), dtype=bool)
        found = np.where(named, np.minimum(seq, self.stream.seq[begins[at]]) if len(numbers) else seq, seq)
        moved: Array = np.maximum.accumulate(found)
        return moved

    def step(self, seq: Array) -> Array:
        """Step each position lies in."""
        found: Array = self.step_number[np.searchsorted(self.step_seq, seq, side="right")]
        return found

    def stage(self, seq: Array) -> pl.Series:
        """Stage each position lies in."""
        return pick(self.stage_names, np.searchsorted(self.stage_seq, seq, side="right"), pl.Categorical())

    # --- helpers -----------------------------------------------------------------------------------------------------

    def find(self, ids: Array) -> Array:
        """Positions of symbols."""
        return self.symbols.lookup(ids)

    def frame(self, name: str, columns: dict[str, Any], rows: int) -> pl.DataFrame:
        """A frame with process and rank filled in, in the columns and types of the contract."""
        given = {
            "process": pl.Series(np.full(rows, self.process, dtype=np.uint32)),
            "rank": pl.Series([self.rank], dtype=pl.Int32).new_from_index(0, rows),
            **columns,
        }
        made = {}
        for column in schema.FRAMES[name]:
            found = given.get(column.name)
            if found is None:
                made[column.name] = pl.Series([None], dtype=column.dtype).new_from_index(0, rows)
                continue
            series = found if isinstance(found, pl.Series) else pl.Series(np.ascontiguousarray(found))
            made[column.name] = series if series.dtype == column.dtype else series.cast(column.dtype)
        return pl.DataFrame(made)

    # --- frames ------------------------------------------------------------------------------------------------------

    def calls(self, locations: dict[str, Array]) -> pl.DataFrame:
        """Begin and end of every call. ``locations``: calls and the symbols of their places."""
        stream = self.stream
        begin_at = self.at[Kind.BEGIN]
        numbers = stream.records["y"][begin_at]
        if len(numbers) > 1 and not np.all(numbers[1:] > numbers[:-1]):
            kept, first = np.unique(numbers, return_index=True)
            if len(kept) < len(numbers):
                twice = len(numbers) - len(kept)
                self.lacks.append(
                    ("damaged-records", f"{twice} entries repeat the number of an earlier call; they are left out.")
                )
            begin_at = begin_at[first]
        begins = stream.records[begin_at]
        begin_seq = stream.seq[begin_at]
        self.call_numbers = begins["y"]

        end_at = self.at[Kind.END]
        ends = stream.records[end_at]
        pair = self.call_position(ends["y"])
        orphans = int(np.count_nonzero(pair < 0))
        if orphans:
            self.lacks.append(
                ("ends-without-begin", f"{orphans} calls have an end but no begin (it was lost); they are left out.")
            )
        fits = pair >= 0
        fits[fits] = stream.seq[end_at[fits]] > begin_seq[pair[fits]]
        end_at, pair = end_at[fits], pair[fits]
        pair, first = np.unique(pair, return_index=True)
        end_at = end_at[first]
        extra = len(ends) - orphans - len(end_at)
        if extra:
            self.lacks.append(
                ("damaged-records", f"{extra} ends come before their call or end it again; they are left out.")
            )
        end = np.full(len(begins), -1, dtype=np.int64)
        end[pair] = np.arange(len(end_at))
        ends = stream.records[end_at]
        end_seq = stream.seq[end_at]
        outcomes = np.where(ends["b"] <= Outcome.RAISED, ends["b"].astype(np.int64), -1)
        outcome = np.full(len(begins), int(Outcome.OPEN), dtype=np.int64)
        outcome[pair] = outcomes
        raised = self.find(ends["z"])
        raised[ends["z"] == 0] = -1
        exception = np.full(len(begins), -1, dtype=np.int64)
        exception[pair] = raised
        function = self.find(begins["i"])
        self.call_functions = pick(self.function_words, function, pl.Categorical())
        self.unresolved += self.call_functions.null_count()

        location = np.full(len(begins), -1, dtype=np.int64)
        place = self.call_position(locations["call"])
        location[place[place >= 0]] = locations["position"][place >= 0]
        places = [location_text(e) if e["k"] == "location" else None for e in self.symbols.entries]
        return self.frame(
            "calls",
            {
                "thread": begins["h"],
                "call": begins["y"],
                "parent": begins["z"],
                "function": self.call_functions,
                "begin_seq": begin_seq,
                "end_seq": pick(pl.Series(end_seq), end, pl.UInt64()),
                "begin_ns": stream.time_ns[begin_at],
                "end_ns": pick(pl.Series(stream.time_ns[end_at]), end, pl.Int64()),
                "outcome": pick(list(schema.OUTCOME.categories), outcome, schema.OUTCOME),
                "exception": pick(self.texts, exception, pl.Categorical()),
                "step": self.step(begin_seq),
                "end_step": pick(pl.Series(self.step(end_seq)), end, pl.Int32()),
                "stage": self.stage(begin_seq),
                "location": pick(places, location, pl.String()),
            },
            len(begins),
        )

    def call_position(self, calls: Array) -> Array:
        """Row in ``calls`` of each call number, -1 where there is none."""
        known = self.call_numbers
        if not len(known):
            return np.full(len(calls), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(known, calls), len(known) - 1)
        return np.where(known[at] == calls, at, -1)

    def captures(self) -> tuple[pl.DataFrame, dict[str, Array]]:
        """Values read at calls, and apart from them the places of calls in the user's code."""
        entries = self.symbols.entries
        sides, paths, names, functions = [], [], [], []
        for entry in entries:
            function = self.symbols.get(entry.get("function"), "function") if entry["k"] == "capture" else None
            path = text_of(entry, "path") if entry["k"] == "capture" else None
            moment = entry.get("moment")
            params = function.get("params") if function else None
            known = params if isinstance(params, list) and all(isinstance(p, str) for p in params) else None
            sides.append(moment if path is not None and moment in ("in", "out") else None)
            paths.append(path)
            names.append(parameter_path(path, known) if path is not None else None)
            functions.append(text_of(function, "name") if function else None)

        at = self.at[Kind.CAPTURE]
        records = self.stream.records[at]
        capture = self.find(records["i"])
        is_place = np.asarray([path == LOCATION_PATH for path in paths] + [False])[capture]
        placed = records[is_place & (records["b"] == Value.LOCATION)]
        locations = {"call": placed["x"], "position": self.find(placed["y"])}
        keep = ~is_place & self._known(records["b"])
        at, records, capture = at[keep], records[keep], capture[keep]
        seq = self.stream.seq[at]
        columns, unresolved = self.values.columns(records["b"], records["y"], records["z"], tensors=True)
        digest = columns.pop("digest")
        path_words = pick(paths, capture, pl.Categorical())
        self.unresolved += unresolved + path_words.null_count()
        frame = self.frame(
            "captures",
            {
                "seq": seq,
                "call": records["x"],
                "function": pick(functions, capture, pl.Categorical()),
                "moment": pick(sides, capture, schema.SIDE),
                "path": path_words,
                "name": pick(names, capture, pl.Categorical()),
                **columns,
                "text": columns["text"]
                if digest.null_count() == len(digest)
                else columns["text"].zip_with(digest.is_null(), digest),
                "step": self.step(seq),
                "stage": self.stage(seq),
            },
            len(records),
        )
        return frame, locations

    def states(self) -> pl.DataFrame:
        """What tracked variables were at observation points."""
        entries = self.symbols.entries
        looks = self.at[Kind.OBSERVE]
        number, first = np.unique(self.stream.records["z"][looks], return_index=True)
        looks = looks[first]
        observed = self.stream.records[looks]

        at = self.at[Kind.STATE]
        at = at[self._known(self.stream.records["b"][at])]
        records = self.stream.records[at]
        seq = self.stream.seq[at]
        observation = records["x"]
        look = np.full(len(records), -1, dtype=np.int64)
        if len(number):
            place = np.minimum(np.searchsorted(number, observation), len(number) - 1)
            look = np.where(number[place] == observation, place, -1)
        lost = int(np.count_nonzero(look < 0))
        if lost:
            self.lacks.append(
                ("states-without-observation", f"{lost} state records belong to observations that were lost.")
            )
        variable = self.find(records["i"])
        attribute = self.symbols.attribute_lookup(records["h"])
        columns, unresolved = self.values.columns(records["b"], records["y"], records["z"], tensors=False)
        of = {
            key: [text_of(e, key) if e["k"] == "variable" else None for e in entries]
            for key in ("name", "owner", "role", "type")
        }
        names = pick(of["name"], variable, pl.Categorical())
        attributes = pick([text_of(a, "name") for a in self.symbols.attributes], attribute, pl.Categorical())
        self.unresolved += unresolved + names.null_count() + attributes.null_count()
        moment = np.where(observed["b"] <= Moment.ALONE, observed["b"].astype(np.int64), -1)
        function = pick(self.call_functions, self.call_position(observed["y"]), pl.Categorical())
        reason = pick(self.texts, self.find(observed["i"]), pl.Categorical())
        return self.frame(
            "states",
            {
                "seq": seq,
                "time_ns": pick(pl.Series(self.stream.time_ns[looks]), look, pl.Int64()),
                "observation": observation,
                "reason": pick(reason, look, pl.Categorical()),
                "moment": pick(pick(list(schema.MOMENT.categories), moment, schema.MOMENT), look, schema.MOMENT),
                "call": pick(pl.Series(observed["y"]), look, pl.UInt64()),
                "function": pick(function, look, pl.Categorical()),
                "variable": names,
                "owner": pick(of["owner"], variable, pl.Categorical()),
                "role": pick(of["role"], variable, pl.Categorical()),
                "variable_type": pick(of["type"], variable, pl.Categorical()),
                "attribute": attributes,
                **columns,
                "step": self.step(seq),
                "stage": self.stage(seq),
            },
            len(records),
        )

    def marks(self) -> pl.DataFrame:
        """Steps, stages, notes and the recorder's own marks."""
        at = self.at[Kind.MARK]
        kinds = self.stream.records["b"][at]
        known = np.isin(kinds, [int(kind) for kind in Mark])
        if not known.all():
            count = int(np.count_nonzero(~known))
            self.lacks.append(("unknown-records", f"{count} marks were left out: their kind is {_DAMAGED}."))
        at = at[known]
        records = self.stream.records[at]
        seq = self.stream.seq[at]
        text = self.find(records["i"])
        text[records["i"] == 0] = -1
        return self.frame(
            "marks",
            {
                "seq": seq,
                "time_ns": self.stream.time_ns[at],
                "thread": records["h"],
                "kind": pick(list(schema.MARK_KIND.categories), records["b"].astype(np.int64) - 1, schema.MARK_KIND),
                "value": np.ascontiguousarray(records["y"]).view(np.int64),
                "text": pick(self.texts, text, pl.String()),
                "b": np.ascontiguousarray(records["z"]).view(np.int64),
                "step": self.step(seq),
                "stage": self.stage(seq),
            },
            len(records),
        )

    def variables(self) -> pl.DataFrame:
        """Every variable that was ever named."""
        found = [e for e in self.symbols.entries if e["k"] == "variable"]
        return self.frame(
            "variables",
            {
                "variable": pl.Series([text_of(e, "name") for e in found], dtype=pl.Categorical),
                "owner": pl.Series([text_of(e, "owner") for e in found], dtype=pl.Categorical),
                "role": pl.Series([text_of(e, "role") for e in found], dtype=pl.Categorical),
                "variable_type": pl.Series([text_of(e, "type") for e in found], dtype=pl.Categorical),
                "facts": pl.Series(
                    [
                        json.dumps({k: v for k, v in e.items() if k not in _VARIABLE_FIELDS}, sort_keys=True)
                        for e in found
                    ],
                    dtype=pl.String,
                ),
            },
            len(found),
        )

    def function_table(self) -> pl.DataFrame:
        """Every function that was named: kind and parameters."""
        by_name: dict[str, dict[str, Any]] = {}
        for entry in self.symbols.entries:
            if entry["k"] == "function" and isinstance(entry.get("name"), str):
                by_name.setdefault(entry["name"], entry)
        found = by_name.values()
        params = [
            p if isinstance(p := e.get("params"), list) and all(isinstance(name, str) for name in p) else None
            for e in found
        ]
        return pl.DataFrame(
            {"function": list(by_name), "kind": [text_of(e, "kind") for e in found], "params": params},
            schema=schema.schema("functions"),
        )

    def _known(self, kinds: Array) -> Array:
        known: Array = kinds <= max(Value)
        self.unknown_values += int(np.count_nonzero(~known))
        return known


def decode(stream: Stream, symbols: Symbols, process: int, rank: int | None) -> Decoded:
    """Frames of a process. ``process`` is its index, ``rank`` its global rank. Any records and symbols give frames."""
    decoder = _Decoder(stream, symbols, process, rank)
    captures, locations = decoder.captures()
    calls = decoder.calls(locations)
    frames = {
        "calls": calls,
        "captures": captures,
        "states": decoder.states(),
        "marks": decoder.marks(),
        "variables": decoder.variables(),
        "functions": decoder.function_table(),
    }
    lacks = decoder.lacks
    if decoder.unknown_values:
        lacks.append(("unknown-values", f"{decoder.unknown_values} values were left out: their kind is {_DAMAGED}."))
    if decoder.unresolved:
        lacks.append(
            (
                "unresolved-symbols",
                f"{decoder.unresolved} references lead to names that are not in symbols.jsonl; they read as null.",
            )
        )
    counts = {kind.name.lower(): len(at) for kind, at in decoder.at.items()}
    return Decoded(frames, lacks, counts)
