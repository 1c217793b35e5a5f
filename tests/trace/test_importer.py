"""Traces of TrainCheck 0.x of every tracker style, from small pieces of real ones."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from traincheck.errors import TraceError
from traincheck.trace import Trace, open_trace
from traincheck.trace.importer import import_trace, read

OLD = Path(__file__).parent.parent / "data" / "trace" / "old"
FIXTURES = Path(os.environ.get("TRAINCHECK_FIXTURES", "/nonexistent"))


def lines(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in text.splitlines()]


def call(kind: str, number: str, time: int, thread: int = 1, pid: int = 7, **fields: Any) -> dict[str, Any]:
    given = {"func_call_id": number, "thread_id": thread, "process_id": pid, "meta_vars": {"step": 0}, "time": time}
    return {**given, "type": f"function_call ({kind})", "function": f"f.{number}", **fields}


def write(folder: Path, records: list[Any], name: str = "trace_API_7_1.log") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def captured(trace: Trace) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in trace.captures.to_dicts()}


@pytest.mark.parametrize("style", ["proxy", "subclass", "sampler", "older", "ddp"])
def test_every_value_of_every_style_arrives(style: str) -> None:
    """Counts are taken from the files themselves."""
    trace = open_trace(OLD / style)
    records = [record for path in sorted((OLD / style).iterdir()) for record in lines(path)]
    states = [record for record in records if record["type"] == "state_change"]
    begins = [record for record in records if record["type"] == "function_call (pre)"]
    assert len(trace.calls) == len(begins)
    assert len(trace.states) == sum(len(record["attributes"]) for record in states)
    assert {p.pid for p in trace.processes} == {record["process_id"] for record in records}
    assert sorted(set(trace.states["step"]) | set(trace.calls["step"])) == sorted(
        {r["meta_vars"]["step"] for r in records}
    )
    hashes = {r["attributes"]["data"] for r in states}
    wanted = {f"{number % 2**64:016x}" for number in hashes}
    assert set(trace.states.filter(pl.col("attribute") == "data")["digest"]) == wanted
    assert trace.source == "traincheck-0.x"
    trace.summary().to_json()


def test_moments_and_reasons() -> None:
    trace = open_trace(OLD / "proxy")
    seen = set(trace.states.select(pl.col("reason").cast(pl.String), pl.col("moment").cast(pl.String)).rows())
    assert ("initing", "alone") in seen
    modes = {json.loads(meta)["mode"] for meta in trace.states["meta"]}
    assert "update" in modes


def test_context_that_is_not_step_or_stage_is_kept() -> None:
    trace = open_trace(OLD / "older")
    assert json.loads(trace.states["meta"][0])["_PIPELINE_MODEL_PARALLEL_GROUP"] == 0
    assert {p.pid: p.mesh for p in trace.processes} == {
        27720: {"dp": 0, "tp": 0, "pp": 0},
        27721: {"dp": 0, "tp": 1, "pp": 0},
    }
    assert trace.ranks == []  # nothing says which global rank they are


def test_rank_when_only_data_parallel() -> None:
    trace = open_trace(OLD / "ddp")
    assert {p.pid: p.rank for p in trace.processes} == {14067: 0, 14068: 1}


def test_old_prefix_reads_like_the_new_one() -> None:
    trace = open_trace(OLD / "older")
    identities = trace.states.filter(pl.col("attribute") == "_TRAINCHECK_data_ID")
    assert len(identities)
    assert identities["kind"].unique().to_list() == ["identity"]
    assert identities["value"].null_count() == len(identities)


def test_nesting_gives_parents(tmp_path: Path) -> None:
    records = [
        call("pre", "a", 1),
        call("pre", "b", 2),
        call("pre", "t", 3, thread=2),
        call("post) (exception", "b", 4, exception="builtins.ValueError", exception_msg="no"),
        call("pre", "c", 5),
        call("post", "t", 6, thread=2),
        call("post", "c", 7),
        call("post", "a", 8),
        call("pre", "d", 9),
    ]
    trace = read(write(tmp_path, records))
    rows = {row["function"]: row for row in trace.calls.to_dicts()}
    assert {name: row["parent"] for name, row in rows.items()} == {"f.a": 0, "f.b": 1, "f.t": 0, "f.c": 1, "f.d": 0}
    assert (rows["f.b"]["outcome"], rows["f.b"]["exception"]) == ("raised", "builtins.ValueError")
    assert json.loads(rows["f.b"]["meta"]) == {"exception_msg": "no"}
    assert (rows["f.d"]["outcome"], rows["f.d"]["end_ns"]) == ("open", None)
    assert [lack.code for lack in trace.lacks] == ["open-calls"]


def test_value_objects(tmp_path: Path) -> None:
    tensor = {
        "_TRAINCHECK_data_ID": 5,
        "dtype": "torch.float32",
        "shape": [2, 3],
        "is_cpu": True,
        "requires_grad": False,
    }
    args = {
        "0": {"torch.FloatTensor": tensor},
        "1": {"int": 10**40},
        "2": {"tuple": [1, [2.5, None]]},
        "3": {"torch.dtype": "torch.bfloat16"},
        "4": {"list": {}},
        "5": {"m.Net": None},
        "6": {"NoneType": None},
        "7": {"Size": [4]},
    }
    kwargs = {"lr": {"float": float("nan")}, "flag": {"bool": True}, "name": {"str": "3"}}
    result = [{"str": "x"}, {"float": float("-inf")}]
    records = [
        call(
            "pre",
            "a",
            1,
            args=args,
            kwargs=kwargs,
            obj_id=77,
            is_bound_method=True,
            proxy_obj_names=[["m.w", "Parameter"]],
        ),
        call("post", "a", 2, return_values=result),
    ]
    found = captured(read(write(tmp_path, records)))
    assert {path: row["value"] for path, row in found.items()} == {
        "self": None,
        "args[0]": None,
        "args[0]._TRAINCHECK_data_ID": None,
        "args[0].dtype": "torch.float32",
        "args[0].shape": "[2, 3]",
        "args[0].is_cpu": "True",
        "args[0].requires_grad": "False",
        "args[1]": str(10**40),
        "args[2]": "[1, [2.5, null]]",
        "args[3]": "torch.bfloat16",
        "args[4]": None,
        "args[5]": None,
        "args[6]": "None",
        "args[7]": "[4]",
        "kwargs.lr": "nan",
        "kwargs.flag": "True",
        "kwargs.name": '"3"',
        "@variables[0]": "m.w",
        "ret[0]": "x",
        "ret[1]": "-inf",
    }
    assert (found["args[0]"]["kind"], found["args[0]"]["shape"], found["args[0]"]["device"]) == (
        "tensor",
        [2, 3],
        "cpu",
    )
    assert (found["args[1]"]["kind"], found["args[1]"]["int"], found["args[1]"]["type"]) == ("symbol", None, "int")
    assert (found["args[3]"]["type"], found["args[7]"]["type"]) == ("torch.dtype", "torch.Size")
    assert (found["args[5]"]["kind"], found["args[5]"]["type"]) == ("object", "m.Net")
    assert (found["self"]["identity"], found["self"]["type"]) == (77, "torch.FloatTensor")
    assert found["kwargs.lr"]["name"] == "lr"


@pytest.mark.parametrize(
    ("data", "kind"), [(-1, "digest"), ({"min": 0.0, "max": 1.5}, "symbol"), ([1.0, 2.0], "symbol"), (None, "none")]
)
def test_all_tensor_dump_formats(tmp_path: Path, data: Any, kind: str) -> None:
    record = {
        "process_id": 7,
        "thread_id": 1,
        "time": 5,
        "type": "state_change",
        "var_name": "m.w",
        "var_type": "torch.nn.Parameter",
        "meta_vars": {"step": 2},
        "attributes": {"_ML_DAIKON_data_ID": 4, "data": data},
    }
    trace = read(write(tmp_path, [record], "trace_VAR_7_1.log"))
    [row] = trace.states.filter(pl.col("attribute") == "data").to_dicts()
    assert row["kind"] == kind
    assert (row["value"] is not None, row["step"], row["role"]) == (True, 2, "parameter")


def test_torn_and_damaged_files(tmp_path: Path) -> None:
    shutil.copytree(OLD / "proxy", tmp_path / "t")
    log = tmp_path / "t" / "proxy_log.json"
    whole = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*whole[:3], b"not json\n", b"[1]\n", *whole[4:-1], whole[-1][:50]]))
    api = next((tmp_path / "t").glob("trace_API*"))
    api.write_bytes(api.read_bytes()[:-200])
    trace = open_trace(tmp_path / "t")
    assert sorted(lack.code for lack in trace.lacks if lack.process is None) == [
        "damaged-lines",
        "torn-file",
        "torn-file",
    ]
    assert "2 lines of proxy_log.json" in " ".join(lack.text for lack in trace.lacks)
    assert len(trace.calls)
    whole_trace = open_trace(OLD / "proxy")
    observed = whole_trace.states["observation"].n_unique()
    assert trace.states["observation"].n_unique() == observed - 2


def test_no_steps_is_said(tmp_path: Path) -> None:
    records = [call("pre", "a", 1, meta_vars={"main.py:train": 5}), call("post", "a", 2, meta_vars={})]
    trace = read(write(tmp_path, records))
    assert [lack.code for lack in trace.lacks] == ["no-steps"]
    assert json.loads(trace.calls["meta"][0]) == {"main.py:train": 5}
    assert trace.calls["stage"].to_list() == [None]


def test_import_writes_a_trace(tmp_path: Path) -> None:
    made = import_trace(OLD / "proxy", tmp_path / "run")
    again = open_trace(tmp_path / "run")
    for name, frame in made.frames.items():
        assert frame.equals(again.frames[name]), name
    assert again.source == "traincheck-0.x"
    assert again.lacks == made.lacks
    assert [(p.pid, p.mesh) for p in again.processes] == [(p.pid, p.mesh) for p in made.processes]
    assert again.manifest is not None
    assert again.manifest.raw["imported_from"] == "proxy"
    with pytest.raises(TraceError, match="not empty"):
        import_trace(OLD / "sampler", tmp_path / "run")
    import_trace(OLD / "sampler", tmp_path / "run", force=True)
    assert open_trace(tmp_path / "run").calls.is_empty()


@pytest.mark.parametrize("content", ["", "nothing here\n", "{}\n", '{"type": 5, "process_id": 1, "time": 2}\n'])
def test_nothing_to_read(tmp_path: Path, content: str) -> None:
    (tmp_path / "trace_API_1_1.log").write_text(content)
    with pytest.raises(TraceError, match="no readable record"):
        read(tmp_path)


def test_not_an_old_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no 0\.x trace"):
        read(tmp_path)
    with pytest.raises(TraceError, match="found nothing"):
        read(tmp_path / "no")


@pytest.mark.parametrize("folder", sorted(FIXTURES.glob("*/*/trace")) + sorted(FIXTURES.glob("*/ddp2")), ids=str)
def test_whole_real_traces(folder: Path) -> None:
    """Set TRAINCHECK_FIXTURES to a folder of 0.x traces to read them whole."""
    trace = open_trace(folder)
    assert not trace.lacks
    assert len(trace.calls) + len(trace.states)
