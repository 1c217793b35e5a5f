"""No bytes crash the reader: whatever a folder holds, the answer is a trace or a ``TraceError``."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.trace import segment_files as raw
from tests.trace.builders import everything
from traincheck.errors import TraceError
from traincheck.events import Clock
from traincheck.trace import Trace, open_trace, schema
from traincheck.trace.compact import compact
from traincheck.trace.diff import diff

DATA = Path(__file__).parent.parent / "data" / "trace"
quick = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def survives(root: Path) -> Trace | None:
    """Opens ``root`` and uses what comes of it; only TraceError may be raised."""
    try:
        trace = open_trace(root)
    except TraceError:
        return None
    for name, frame in trace.frames.items():
        assert frame.schema == schema.schema(name)
    trace.summary().to_json()
    diff(trace, trace).text()
    return trace


@pytest.fixture(scope="module", params=["mono", "tsc-open", "compact"])
def valid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("valid") / "run"
    clock, closed = (Clock.TSC, False) if request.param == "tsc-open" else (Clock.MONOTONIC_NS, True)
    everything(steps=2).write(root, segment_records=50, clock=clock, closed=closed)
    if request.param == "compact":
        compact(root, keep=True)
    return root


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[int, str, int, bytes]]:
    """(which file, what to do, where, with what)"""
    one = st.tuples(
        st.integers(0, 50),
        st.sampled_from(["flip", "cut", "insert", "replace", "remove", "empty"]),
        st.integers(0, 20_000),
        st.binary(min_size=1, max_size=40),
    )
    return draw(st.lists(one, min_size=1, max_size=4))


def apply(root: Path, damage: tuple[int, str, int, bytes]) -> None:
    which, what, where, content = damage
    files = sorted(path for path in root.rglob("*") if path.is_file())
    path = files[which % len(files)]
    data = bytearray(path.read_bytes())
    at = where % (len(data) + 1)
    if what == "remove":
        path.unlink()
        return
    if what == "flip" and at < len(data):
        data[at] ^= content[0] or 1
    elif what == "cut":
        del data[at:]
    elif what == "insert":
        data[at:at] = content
    elif what == "replace":
        data[at : at + len(content)] = content
    elif what == "empty":
        data.clear()
    path.write_bytes(data)


@quick
@given(damage=damages())
def test_damaged_files(valid: Path, damage: list[tuple[int, str, int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "run"
        shutil.copytree(valid, root)
        for one in damage:
            if any(path.is_file() for path in root.rglob("*")):
                apply(root, one)
        survives(root)


record = st.builds(
    lambda kind, b, h, i, x, y, z: (
        bytes([kind, b])
        + h.to_bytes(2, "little")
        + i.to_bytes(4, "little")
        + b"".join(n.to_bytes(8, "little") for n in (x, y, z))
    ),
    st.integers(0, 8),
    st.integers(0, 14),
    st.integers(0, 4) | st.integers(0, 2**16 - 1),
    st.integers(0, 12) | st.integers(0, 2**32 - 1),
    *[st.integers(0, 6) | st.integers(0, 2**64 - 1)] * 3,
)
json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
symbol = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["function", "capture", "value", "tensor", "variable", "attribute", "location", "thread"])
        | json_value,
        "id": st.integers(1, 12) | json_value,
    },
    optional={
        name: st.sampled_from(["in", "out", "args[0]", "kwargs.lr", "@location", "init"]) | json_value
        for name in (
            "name",
            "params",
            "moment",
            "path",
            "function",
            "v",
            "type",
            "shape",
            "dtype",
            "role",
            "owner",
            "line",
        )
    },
)


@quick
@given(
    records=st.lists(record, max_size=60),
    symbols=st.lists(symbol, max_size=14),
    heads=st.fixed_dictionaries(
        {},
        optional={
            "first": st.integers(0, 2**64 - 1),
            "clock": st.integers(0, 3),
            "opened": st.integers(0, 2**64 - 1),
            "count": st.integers(0, 80),
            "closed": st.integers(0, 2**64 - 1),
            "closed_monotonic": st.integers(0, 2**64 - 1),
        },
    ),
    facts=st.dictionaries(
        st.sampled_from(["rank", "pid", "started_ns", "records", "dropped", "faults", "end", "versions"]), json_value
    ),
)
def test_arbitrary_records(
    records: list[bytes], symbols: list[dict[str, object]], heads: dict[str, int], facts: dict[str, object]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        raw.write_process(root, [raw.header(**heads) + b"".join(records)], symbols, facts=facts)  # type: ignore[arg-type]
        survives(root)


@quick
@given(data=st.binary(max_size=400))
@example(data=raw.MAGIC)
@example(data=raw.header())
def test_arbitrary_segment(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        raw.write_process(Path(folder), [data])
        survives(Path(folder))


old_record = st.fixed_dictionaries(
    {"process_id": st.integers(1, 2) | json_value, "time": st.integers(0, 50) | json_value},
    optional={
        "type": st.sampled_from(
            ["function_call (pre)", "function_call (post)", "function_call (post) (exception)", "state_change"]
        )
        | json_value,
        **{
            name: st.sampled_from(["a", "b"]) | json_value
            for name in (
                "func_call_id",
                "function",
                "thread_id",
                "var_name",
                "var_type",
                "mode",
                "dump_loc",
                "exception",
            )
        },
        **{
            name: json_value
            | st.dictionaries(
                st.sampled_from(["0", "1", "step", "stage", "data", "_ML_DAIKON_data_ID", "shape"]), json_value
            )
            for name in ("meta_vars", "args", "kwargs", "return_values", "attributes", "proxy_obj_names", "obj_id")
        },
    },
)


@quick
@given(records=st.lists(old_record, max_size=12))
def test_arbitrary_old_records(records: list[dict[str, object]]) -> None:
    import json

    with tempfile.TemporaryDirectory() as folder:
        text = "".join(json.dumps(item) + "\n" for item in records)
        (Path(folder) / "trace_API_1_1.log").write_text(text)
        survives(Path(folder))


@quick
@given(cut=st.integers(0, 3000), flips=st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 255)), max_size=5))
def test_damaged_old_gzip(cut: int, flips: list[tuple[int, int]]) -> None:
    source = sorted((DATA / "old" / "older").iterdir())[0]
    data = bytearray(source.read_bytes())
    for at, mask in flips:
        data[at % len(data)] ^= mask
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / source.name).write_bytes(data[: len(data) - cut % len(data)])
        (Path(folder) / "proxy_log.json").write_bytes(gzip.decompress(source.read_bytes())[:cut])
        survives(Path(folder))
