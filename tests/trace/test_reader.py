"""What a reader makes of event files: whole, live, torn, foreign."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.trace import segment_files as raw
from tests.trace.builders import RELU, STEP, everything
from traincheck.errors import TraceError
from traincheck.events import Clock
from traincheck.trace import Trace, open_trace, schema
from traincheck.trace.build import TraceBuilder, digest

SYMBOLS: list[dict[str, object]] = [
    {"k": "thread", "id": 1, "name": "MainThread", "ident": 5},
    {"k": "function", "id": 1, "name": "f", "kind": "function", "params": ["x", "y"]},
    {"k": "capture", "id": 2, "function": 1, "moment": "in", "path": "args[1]"},
    {"k": "capture", "id": 3, "function": 1, "moment": "in", "path": "@location"},
    {"k": "location", "id": 4, "file": "train.py", "line": 12, "function": "main"},
    {"k": "value", "id": 5, "type": "str", "v": "training"},
    {"k": "value", "id": 6, "type": "type", "v": "builtins.KeyError"},
    {"k": "variable", "id": 7, "name": "m.w", "role": "parameter", "type": "T", "owner": "m", "tied_to": "m.v"},
    {"k": "attribute", "id": 1, "name": "data"},
]


def codes(trace: Trace) -> set[str]:
    return {lack.code for lack in trace.lacks}


def home(run: Path, index: int = 0) -> Path:
    return sorted((run / "processes").iterdir())[index]


def records() -> bytes:
    return b"".join(
        [
            raw.begin(1, 1, 100, 1, 0),
            raw.capture(9, 1, 3, 1, 4),
            raw.capture(2, 1, 2, 1, 2**64 - 5),
            raw.mark(1, 1, 0, 110, 1),
            raw.mark(3, 1, 5, 120, 0),
            raw.observe(1, 1, 5, 130, 1, 1),
            raw.state(6, 1, 7, 1, 0x1234, 0xABCD),
            raw.end(1, 1, 1, 200, 1, 6),
        ]
    )


class TestFormat:
    """Files made from the documentation alone."""

    def test_every_record_kind(self, tmp_path: Path) -> None:
        raw.write_process(tmp_path, [raw.header(count=8, closed=300, closed_monotonic=300) + records()], SYMBOLS)
        trace = open_trace(tmp_path)
        [call] = trace.calls.to_dicts()
        assert call == {
            **call,
            "process": 0,
            "rank": 3,
            "call": 1,
            "parent": 0,
            "function": "f",
            "begin_seq": 0,
            "end_seq": 7,
            "begin_ns": 100,
            "end_ns": 200,
            "outcome": "raised",
            "exception": "builtins.KeyError",
            "step": 0,
            "end_step": 1,
            "stage": "init",
            "location": "train.py:12 in main",
        }
        [capture] = trace.captures.to_dicts()
        assert (capture["path"], capture["name"], capture["int"], capture["value"]) == ("args[1]", "y", -5, "-5")
        [state] = trace.states.to_dicts()
        assert state["digest"] == state["value"] == "000000000000abcd0000000000001234"
        assert (state["variable"], state["attribute"], state["moment"]) == ("m.w", "data", "after")
        assert (state["function"], state["step"], state["stage"]) == ("f", 1, "training")
        assert trace.marks["kind"].to_list() == ["step_begin", "stage"]
        assert json.loads(trace.variables["facts"][0]) == {"tied_to": "m.v"}
        assert codes(trace) == {"no-manifest"}

    def test_ticks_become_nanoseconds(self, tmp_path: Path) -> None:
        # 3 ticks a ns; the clock mark says so in the middle, the close at the end
        ticks = [raw.begin(1, 1, raw.OPENED + 300, 1, 0), raw.end(0, 1, 1, raw.OPENED + 600, 1)]
        body = ticks[0] + raw.mark(5, 1, 0, raw.OPENED + 450, raw.MONOTONIC + 150) + ticks[1]
        head = raw.header(clock=1, count=3, closed=raw.OPENED + 3000, closed_monotonic=raw.MONOTONIC + 1000)
        raw.write_process(tmp_path, [head + body], SYMBOLS)
        [call] = open_trace(tmp_path).calls.to_dicts()
        assert (call["begin_ns"], call["end_ns"]) == (raw.MONOTONIC + 100, raw.MONOTONIC + 200)

    def test_times_after_the_last_known_moment(self, tmp_path: Path) -> None:
        body = raw.mark(5, 1, 0, raw.OPENED + 300, raw.MONOTONIC + 100) + raw.begin(1, 1, raw.OPENED + 3000, 1, 0)
        raw.write_process(tmp_path, [raw.header(clock=1) + body + bytes(64)], SYMBOLS)
        assert open_trace(tmp_path).calls["begin_ns"].to_list() == [raw.MONOTONIC + 1000]

    def test_a_clock_without_a_rate_is_said(self, tmp_path: Path) -> None:
        raw.write_process(tmp_path, [raw.header(clock=1) + raw.begin(1, 1, raw.OPENED + 9, 1, 0) + bytes(32)], SYMBOLS)
        trace = open_trace(tmp_path)
        assert "clock" in codes(trace)
        assert trace.calls["begin_ns"].to_list() == [raw.MONOTONIC + 9]


class TestFrames:
    """What the frames say of a trace with one of everything."""

    @pytest.mark.parametrize("clock", list(Clock))
    @pytest.mark.parametrize("size", [7, 10_000])
    def test_files_read_as_they_were_built(self, tmp_path: Path, clock: Clock, size: int) -> None:
        builder = everything()
        built, read = builder.trace(), open_trace(builder.write(tmp_path / "run", size, clock))
        for name, frame in built.frames.items():
            assert frame.equals(read.frames[name]), name
        assert read.complete
        assert read.ranks == [0, 1]
        assert read.steps == [1, 2, 3]

    def test_contract(self) -> None:
        trace = everything().trace()
        for name, frame in trace.frames.items():
            assert frame.schema == schema.schema(name)
            assert len(frame), name
            assert all(column.doc for column in schema.FRAMES[name])
        for frame, keys in (
            (trace.calls, "call"),
            (trace.captures, "seq"),
            (trace.states, "seq"),
            (trace.marks, "seq"),
        ):
            assert frame.equals(frame.sort("process", keys))

    def test_values(self) -> None:
        trace = everything(ranks=1, steps=1).trace()
        found = {row["path"]: row for row in trace.captures.filter(pl.col("function") == RELU).to_dicts()}
        assert {path: row["value"] for path, row in found.items()} == {
            "args[0]": None,
            "args[1]": "1.5",
            "args[2]": "True",
            "args[3]": "None",
            "args[4]": "x",
            "args[5]": str(10**30),
            "args[6]": digest("batch").hex,
            "kwargs.lr": "nan",
            "args[0].dtype": "torch.float32",
            "args[0].shape": "[2, 3]",
            "self": None,
            "self.grad": None,
            "self.bad": None,
            "self.id": None,
            "ret[0]": "1",
            "ret[1]": '"2"',
        }
        assert {path: row["name"] for path, row in found.items() if row["name"] != path} == {
            "args[0]": "input",
            "args[1]": "rest[0]",
            "args[2]": "rest[1]",
            "args[3]": "rest[2]",
            "args[4]": "rest[3]",
            "args[5]": "rest[4]",
            "args[6]": "rest[5]",
            "kwargs.lr": "lr",
            "args[0].dtype": "input.dtype",
            "args[0].shape": "input.shape",
        }
        tensor = found["args[0]"]
        assert (tensor["kind"], tensor["type"], tensor["dtype"], tensor["shape"]) == (
            "tensor",
            "torch.Tensor",
            "torch.float32",
            [2, 3],
        )
        assert (tensor["device"], tensor["requires_grad"], tensor["identity"]) == ("cpu", True, 11)
        assert (found["args[5]"]["int"], found["args[5]"]["type"], found["args[2]"]["int"]) == (None, "int", 1)
        assert (found["self"]["type"], found["self"]["identity"]) == ("torch.nn.modules.linear.Linear", 12)
        assert (found["self.bad"]["kind"], found["self.bad"]["type"]) == ("error", "RuntimeError")
        assert found["args[0].dtype"]["type"] == "torch.dtype"

    def test_parents_threads_outcomes(self) -> None:
        trace = everything(ranks=1, steps=1).trace()
        rows = {row["function"]: row for row in trace.calls.to_dicts()}
        assert rows["inner"]["parent"] == rows[RELU]["call"]
        assert (rows["other"]["parent"], rows["other"]["thread"]) == (0, 2)
        assert (rows["inner"]["outcome"], rows["inner"]["exception"]) == ("raised", "builtins.ValueError")
        assert (rows["torch.add"]["outcome"], rows["torch.add"]["end_seq"]) == ("open", None)
        assert rows[RELU]["begin_seq"] < rows["inner"]["begin_seq"] < rows[RELU]["end_seq"]

    def test_states(self) -> None:
        trace = everything(ranks=1, steps=2).trace()
        data = trace.states.filter((pl.col("variable") == "model.w") & (pl.col("attribute") == "data"))
        assert data.select("step", "moment", "value").rows() == [
            (step + 1, moment, digest((step, moment)).hex) for step in range(2) for moment in ("before", "after")
        ]
        assert data["function"].unique().to_list() == [STEP]
        assert data["observation"].n_unique() == 4
        assert trace.states.filter(pl.col("attribute") == "gone")["value"].null_count() == 4

    def test_steps_and_stages_begin_at_their_mark(self) -> None:
        trace = everything(ranks=1).trace()
        assert trace.calls.filter(pl.col("function") == STEP).select("step", "stage").rows() == [
            (1, "init"),
            (2, "training"),
            (3, "training"),
        ]

    def test_an_empty_trace(self) -> None:
        trace = TraceBuilder().trace()
        assert {name: len(frame) for name, frame in trace.frames.items()} == dict.fromkeys(schema.FRAMES, 0)
        assert trace.summary().calls == 0

    def test_from_frames(self) -> None:
        built = everything().trace()
        made = Trace.from_frames(calls=built.calls.reverse().drop("meta"), states=built.states)
        assert made.calls.equals(built.calls)
        assert made.captures.is_empty()
        assert [(p.index, p.rank) for p in made.processes] == [(0, 0), (1, 1)]


class TestTorn:
    """Whatever a killed, broken or hostile program leaves is read as far as it goes, and what is missing is said."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        return everything(ranks=1).write(tmp_path / "run", segment_records=40)

    def test_killed(self, tmp_path: Path) -> None:
        builder = everything(ranks=1)
        trace = open_trace(builder.write(tmp_path / "run", segment_records=40, closed=False))
        assert trace.calls.equals(builder.trace().calls)
        assert codes(trace) == {"unfinished-run", "unfinished-process"}

    @pytest.mark.parametrize("cut", [1, 31, 32, 33, 1000])
    def test_truncated_segment(self, run: Path, cut: int) -> None:
        path = sorted(home(run).glob("*.tcev"))[-1]
        path.write_bytes(path.read_bytes()[:-cut])
        assert "truncated-segment" in codes(open_trace(run)) or cut == 1000

    def test_cut_while_open(self, tmp_path: Path) -> None:
        raw.write_process(tmp_path, [raw.header() + records()[:-20]], SYMBOLS, facts={"end": "running"})
        trace = open_trace(tmp_path)
        assert trace.calls["outcome"].to_list() == ["open"]
        assert {"truncated-segment", "unfinished-process"} <= codes(trace)

    def test_nothing_follows_an_uncommitted_record(self, tmp_path: Path) -> None:
        body = raw.begin(1, 1, 1, 1, 0) + bytes(32) + raw.begin(1, 1, 2, 2, 0)
        raw.write_process(tmp_path, [raw.header() + body], SYMBOLS)
        assert open_trace(tmp_path).calls["call"].to_list() == [1]

    def test_reserved_but_not_begun(self, tmp_path: Path) -> None:
        raw.write_process(tmp_path, [bytes(4096)], SYMBOLS)
        trace = open_trace(tmp_path)
        assert "torn-segment" in codes(trace)
        assert trace.calls.is_empty()

    def test_missing_segment(self, run: Path) -> None:
        whole = open_trace(run).calls
        sorted(home(run).glob("*.tcev"))[1].unlink()
        trace = open_trace(run)
        assert {"missing-segment", "lost-records"} <= codes(trace)
        assert 0 < len(trace.calls) < len(whole)
        kept = whole.join(trace.calls, on=["process", "call"], how="semi")
        assert trace.calls["begin_seq"].equals(kept["begin_seq"])  # positions do not move

    def test_torn_symbols(self, run: Path) -> None:
        path = home(run) / "symbols.jsonl"
        path.write_bytes(path.read_bytes()[:-9])
        trace = open_trace(run)
        assert {"torn-symbols", "unresolved-symbols"} <= codes(trace)

    def test_damaged_symbols(self, run: Path) -> None:
        path = home(run) / "symbols.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        lines[1] = b'{"k": \xff\xfe}\n'
        lines.insert(3, b"[" * 100_000 + b"\n")
        lines.insert(4, b'{"k": "function", "id": -1}\n')
        path.write_bytes(b"".join(lines))
        trace = open_trace(run)
        assert {"damaged-symbols", "unresolved-symbols"} <= codes(trace)
        assert trace.calls["function"].null_count() > 0

    def test_no_symbols(self, run: Path) -> None:
        (home(run) / "symbols.jsonl").unlink()
        trace = open_trace(run)
        assert "no-symbols" in codes(trace)
        assert trace.calls["function"].null_count() == len(trace.calls)

    @pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"\xff", b'{"schema": 1, "pid": "x", "rank": 5}'])
    def test_process_file(self, run: Path, content: bytes | None) -> None:
        path = home(run) / "process.json"
        path.unlink() if content is None else path.write_bytes(content)
        trace = open_trace(run)
        assert codes(trace) & {"no-process-file", "damaged-process-file"}
        assert len(trace.calls)

    @pytest.mark.parametrize("content", [None, b"nonsense", b'{"schema": 1, "command": 5, "ended_ns": 1}'])
    def test_manifest(self, run: Path, content: bytes | None) -> None:
        path = run / "manifest.json"
        path.unlink() if content is None else path.write_bytes(content)
        assert codes(open_trace(run)) == (
            {"damaged-manifest"} if content and content[0] == ord("{") else {"no-manifest"}
        )

    def test_losses_the_process_tells(self, tmp_path: Path) -> None:
        builder = TraceBuilder(rank=0)
        builder.step()
        builder.mark(6, 12)
        run = builder.write(tmp_path / "run")
        path = home(run) / "process.json"
        facts = json.loads(path.read_text())
        facts |= {"dropped": 12, "records": 14, "faults": [{"where": "capture", "error": "E: x", "count": 3}]}
        path.write_text(json.dumps(facts))
        assert codes(open_trace(run)) == {"gaps", "dropped-records", "faults", "lost-records"}

    def test_unknown_kinds_are_skipped_and_counted(self, tmp_path: Path) -> None:
        odd = [
            raw.mark(99, 1, 0, 1, 1),
            b"\xc8" + bytes(31),
            raw.capture(77, 1, 2, 1, 0),
            raw.state(78, 1, 7, 1, 0),
            raw.end(9, 1, 1, 250, 1),
        ]
        head = raw.header(count=12, closed=1, closed_monotonic=1)
        raw.write_process(tmp_path, [head + records()[:-32] + b"".join(odd)], SYMBOLS)
        trace = open_trace(tmp_path)
        assert {"unknown-records", "unknown-values"} <= codes(trace)
        assert [len(trace.calls), len(trace.captures), len(trace.states)] == [1, 1, 1]
        assert trace.calls["outcome"].to_list() == [None]

    def test_ends_without_begin_and_repeated_calls(self, tmp_path: Path) -> None:
        body = [
            raw.end(0, 1, 1, 5, 40),
            raw.begin(1, 1, 6, 2, 0),
            raw.begin(1, 1, 7, 1, 0),
            raw.begin(1, 1, 8, 2, 0),
            raw.end(0, 1, 1, 9, 2),
            raw.end(0, 1, 1, 9, 2),
        ]
        raw.write_process(tmp_path, [raw.header(count=6, closed=1) + b"".join(body)], SYMBOLS)
        trace = open_trace(tmp_path)
        assert trace.calls["call"].to_list() == [1, 2]
        assert {"ends-without-begin", "damaged-records"} <= codes(trace)

    def test_states_whose_observation_is_lost(self, tmp_path: Path) -> None:
        raw.write_process(tmp_path, [raw.header(count=1, closed=1) + raw.state(2, 1, 7, 5, 1)], SYMBOLS)
        trace = open_trace(tmp_path)
        assert "states-without-observation" in codes(trace)
        assert trace.states.select("moment", "variable").rows() == [(None, "m.w")]

    def test_foreign_things_in_the_folder(self, run: Path) -> None:
        whole = open_trace(run)
        (run / "notes.txt").write_text("mine")
        (home(run) / "core.1").write_bytes(b"x")
        (home(run) / "events-00099.tcev.tmp").write_bytes(b"x")
        (run / "processes" / "lost+found").mkdir()
        trace = open_trace(run)
        assert codes(trace) == {"foreign-folder"}
        assert trace.calls.equals(whole.calls)

    def test_one_foreign_segment(self, run: Path) -> None:
        sorted(home(run).glob("*.tcev"))[1].write_bytes(b"GIF89a" * 40)
        trace = open_trace(run)
        assert "foreign-segment" in codes(trace)
        assert len(trace.calls)

    def test_two_segments_that_claim_the_same_place(self, tmp_path: Path) -> None:
        one = raw.header(count=1, closed=1) + raw.begin(1, 1, 1, 1, 0)
        two = raw.header(count=1, closed=1, first=0, number=1) + raw.end(0, 1, 1, 2, 1)
        raw.write_process(tmp_path, [one, two], SYMBOLS)
        trace = open_trace(tmp_path)
        assert "damaged-segment" in codes(trace)
        assert trace.calls["end_seq"].to_list() == [1]


class TestRefused:
    """What is no trace, or not ours to read, is refused with a sentence and a next step."""

    def check(self, path: Path, *words: str) -> TraceError:
        with pytest.raises(TraceError) as caught:
            open_trace(path)
        for word in words:
            assert word in str(caught.value)
        assert caught.value.exit_code == 2
        return caught.value

    def test_nothing_there(self, tmp_path: Path) -> None:
        self.check(tmp_path / "no", "found nothing")

    def test_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        self.check(tmp_path / "f", "found a file")

    def test_empty_folder(self, tmp_path: Path) -> None:
        assert "traincheck collect" in (self.check(tmp_path, "is not a trace").hint or "")

    def test_folder_of_traces(self, tmp_path: Path) -> None:
        everything(ranks=1).write(tmp_path / "good")
        assert str(tmp_path / "good") in (self.check(tmp_path, "is not a trace").hint or "")

    def test_no_process(self, tmp_path: Path) -> None:
        (tmp_path / "processes").mkdir()
        self.check(tmp_path, "holds no process")
        (tmp_path / "manifest.json").write_text('{"schema": 1, "ended_ns": 5}')
        assert codes(open_trace(tmp_path)) == {"no-process"}

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"version": 2}, "format version 2"),
            ({"version": 0}, "format version 0"),
            ({"record_size": 64}, "records of 64 bytes"),
            ({"magic": b"TCEVENX\0"}, "does not begin with the mark"),
        ],
    )
    def test_segment_of_another_kind(self, tmp_path: Path, change: dict[str, int], words: str) -> None:
        raw.write_process(tmp_path, [raw.header(count=8, closed=1, **change) + records()], SYMBOLS)  # type: ignore[arg-type]
        self.check(tmp_path, words)

    @pytest.mark.parametrize("name", ["manifest.json", "processes/1800000000000000000-7/process.json"])
    def test_newer_json(self, tmp_path: Path, name: str) -> None:
        raw.write_process(tmp_path, [raw.header(count=8, closed=1) + records()], SYMBOLS)
        (tmp_path / name).write_text('{"schema": 2}')
        self.check(tmp_path, "newer TrainCheck")

    @pytest.mark.parametrize("name", ["manifest.json", "processes/1800000000000000000-7/process.json"])
    @pytest.mark.parametrize("schema", ['"1"', "1.0", "true", "null", "[1]", "0", "-1", "{}"])
    def test_a_schema_that_is_no_version(self, tmp_path: Path, name: str, schema: str) -> None:
        raw.write_process(tmp_path, [raw.header(count=8, closed=1) + records()], SYMBOLS)
        (tmp_path / name).write_text(f'{{"schema": {schema}}}')
        self.check(tmp_path, "expected schema 1")

    @pytest.mark.parametrize(
        "name", ["manifest.json", "processes/1800000000000000000-7/symbols.jsonl", "processes/1800000000000000000-7/x"]
    )
    @pytest.mark.timeout(20)
    def test_a_pipe_is_not_waited_for(self, tmp_path: Path, name: str) -> None:
        raw.write_process(tmp_path, [raw.header(count=8, closed=1) + records()], SYMBOLS)
        (tmp_path / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / name)
        self.check(tmp_path, "is a pipe")


def test_live_trace_grows(tmp_path: Path) -> None:
    """A trace that is being written reads as what is there so far."""
    builder = everything(ranks=1)
    whole = builder.records().tobytes()
    folder = raw.write_process(
        tmp_path, [raw.header()], builder._symbols, facts={"end": "running", "rank": {"rank": 0}}
    )
    seen = -1
    for end in range(0, len(whole) // 32 + 1, 20):
        (folder / "events-00000.tcev").write_bytes(raw.header() + whole[: end * 32] + bytes(10_000))
        trace = open_trace(tmp_path)
        assert trace.processes[0].records == end
        assert len(trace.calls) >= seen
        seen = len(trace.calls)


def test_many_symbols_with_sparse_numbers(tmp_path: Path) -> None:
    """Ids far apart take the other way of looking up; the result is the same."""
    far = [{"k": "function", "id": 4_000_000_000 + n, "name": f"f{n}"} for n in range(5)]
    body = b"".join(raw.begin(1, 4_000_000_000 + n, n, n + 1, 0) for n in range(6))
    raw.write_process(tmp_path, [raw.header(count=6, closed=1) + body], far)
    assert open_trace(tmp_path).calls["function"].to_list() == [*(f"f{n}" for n in range(5)), None]


def test_processes_are_ordered_by_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = raw.header(count=8, closed=1) + records()
    raw.write_process(tmp_path, [segment], SYMBOLS, "1800000000000000009-1", {"started_ns": 1, "rank": {"rank": 5}})
    raw.write_process(tmp_path, [segment], SYMBOLS, "1800000000000000001-2", {"started_ns": 2, "rank": None})
    trace = open_trace(tmp_path)
    assert [(p.index, p.rank) for p in trace.processes] == [(0, 5), (1, None)]
    assert trace.processes[0].monotonic_offset_ns == raw.REALTIME - raw.MONOTONIC


@pytest.mark.skipif(os.geteuid() == 0, reason="a superuser reads everything")
def test_an_unreadable_folder_is_a_sentence(tmp_path: Path) -> None:
    run = everything(ranks=1).write(tmp_path / "run")
    (run / "processes").chmod(0)
    try:
        with pytest.raises(TraceError, match="cannot be read"):
            open_trace(run)
    finally:
        (run / "processes").chmod(0o755)


def test_float_values_keep_their_bits(tmp_path: Path) -> None:
    numbers = [0.1, -0.0, 1e-300, float("inf"), float("-inf"), float("nan"), float(np.nextafter(1.0, 2.0))]
    builder = TraceBuilder()
    with builder.call("f", numbers):
        pass
    got = open_trace(builder.write(tmp_path / "run")).captures
    assert got["value"].to_list() == ["0.1", "-0.0", "1e-300", "inf", "-inf", "nan", "1.0000000000000002"]
    assert [repr(x) for x in got["float"].to_list()] == [repr(x) for x in numbers]
