"""What calls were given and gave back: captures as tables of tensors, and the attributes that can be told of them.

Shared by the relations about arguments and results. A call is judged in the window in which it ends; what was
captured at its begin travels in ``ValueCarry``. An attribute is what was recorded under its name (``ret.dtype``,
imported traces), else what follows from the tensor's descriptor (dtype, shape, device, requires_grad, is_leaf,
layout), else unknown: null, so that nothing is said about it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import polars as pl

from traincheck.relations import numbers
from traincheck.relations.call_arrays import call_keys
from traincheck.relations.calltree import located, parent_rows, slim
from traincheck.relations.numbers import KIND, OUTCOME, SIDE, Ints, Mask, Table, code, find, member
from traincheck.relations.tables import Tables, Window, key_text

PRE_EVENT: Final = "pre_event"
"""Precondition group of relations about one call."""

MODEL_CALL: Final = "torch.nn.modules.module.Module.__call__"
"""The outermost call of a model."""

_ABOVE: Final = ("process", "call", "parent", "location")
_TOP: Final = re.compile(r"^(args\[\d+\]|kwargs\.\w+|self)$")
_RETURNED: Final = re.compile(r"^ret(\[|$)")
_CALL_BITS: Final = 44
_PLAIN: Final = tuple(KIND[name] for name in ("none", "bool", "int", "float", "symbol"))

ITEM_SIZES: Final = {
    "torch.float64": 8,
    "torch.float32": 4,
    "torch.float16": 2,
    "torch.bfloat16": 2,
    "torch.float8_e4m3fn": 1,
    "torch.float8_e5m2": 1,
    "torch.float8_e4m3fnuz": 1,
    "torch.float8_e5m2fnuz": 1,
    "torch.int64": 8,
    "torch.int32": 4,
    "torch.int16": 2,
    "torch.int8": 1,
    "torch.uint8": 1,
    "torch.uint16": 2,
    "torch.uint32": 4,
    "torch.uint64": 8,
    "torch.bool": 1,
    "torch.complex32": 4,
    "torch.complex64": 8,
    "torch.complex128": 16,
}
"""Bytes of one element."""

_DEVICES: Final = ("cpu", "cuda", "hpu", "ipu", "maia", "meta", "mps", "mtia", "vulkan", "xla", "xpu")
_LAYOUTS: Final = {
    "is_sparse": "torch.sparse_coo",
    "is_sparse_csr": "torch.sparse_csr",
    "is_mkldnn": "torch._mkldnn",
}


@dataclass(frozen=True)
class ValueCarry:
    """What spans windows: ancestors that are still open, captures of watched calls that are still open."""

    above: pl.DataFrame
    captures: pl.DataFrame
    plan: Any = None
    """What the relation made of its invariants."""


@dataclass(frozen=True)
class Ended:
    """Watched calls that returned in a window, with all their captures, and what lies above them.

    ``calls`` has the columns of ``calltree.slim``, sorted by process and call.
    """

    calls: pl.DataFrame
    captures: pl.DataFrame
    above: pl.DataFrame

    @cached_property
    def captured(self) -> Table:
        """Columns of the captures as numbers, with ``row``: of the call, -1 if it is not among the calls."""
        found = numbers.table(self.captures, ("process", "call", "seq", "moment", "path", "kind"))
        calls = numbers.table(self.calls, ("process", "call"))
        # Processes of several references have high numbers.
        known, process = np.unique(calls["process"], return_inverse=True)
        mine = find(known, found["process"])
        row = find(process << _CALL_BITS | calls["call"], mine << _CALL_BITS | found["call"])
        return found.having(row=np.where(mine >= 0, row, -1))

    def of(self, function: str) -> Ended:
        """Those of one function."""
        return Ended(
            self.calls.filter(pl.col("function") == function),
            self.captures.filter(pl.col("function") == function),
            self.above,
        )

    def locations(self, calls: pl.DataFrame) -> list[str | None]:
        """Where in the user's code each of these calls was made: its own location or its nearest ancestor's."""
        known = calls.select("process", "call")
        table = pl.concat(
            [calls.select(_ABOVE), self.above.join(known, on=["process", "call"], how="anti", maintain_order="left")]
        )
        return located(table, parent_rows(table), np.arange(calls.height))


def ended(window: Window, functions: Sequence[str], carry: ValueCarry | None) -> tuple[Ended, ValueCarry]:
    """Calls of these functions that returned in the window, and what the next window needs."""
    watched = [code(name) for name in functions]
    called = numbers.table(window.calls, ("process", "call", "function", "ended", "outcome"))
    given = numbers.table(window.captures, ("process", "call", "function"))
    wanted = member(called["function"], watched) & (called["ended"] == 1) & (called["outcome"] == OUTCOME["returned"])
    key = call_keys(called)
    rows = np.flatnonzero(wanted)
    rows = rows[np.argsort(key[rows], kind="stable")]
    own = np.flatnonzero(member(given["function"], watched))
    captures, of_call = window.captures[own], call_keys(given)[own]
    above, still = window.calls.select(_ABOVE), called["ended"] != 1
    if carry is not None:
        if carry.captures.height:
            captures = pl.concat([carry.captures, captures])
            of_call = np.concatenate([_keys(carry.captures), of_call])
        if carry.above.height:
            known = _keys(carry.above)
            lost = ~np.isin(known, key)
            above = pl.concat([carry.above.filter(lost), above])
            still = np.concatenate([np.ones(int(lost.sum()), dtype=np.bool_), still])
            key = np.concatenate([known[lost], key])
    mine = _some(captures, find(_sorted(wanted, called), of_call) >= 0)
    later = _some(captures, np.isin(of_call, key[still]))
    table = _place_inside(slim(window.calls[rows]), mine)
    return Ended(table, mine, above), ValueCarry(_some(above, still), later)


def _some(frame: pl.DataFrame, rows: Mask) -> pl.DataFrame:
    return frame if rows.all() else frame[np.flatnonzero(rows)]


def _sorted(wanted: Mask, called: Table) -> Ints:
    return np.sort(call_keys(called)[wanted])


def _keys(frame: pl.DataFrame) -> Ints:
    return call_keys(numbers.table(frame, ("process", "call")))


def _place_inside(calls: pl.DataFrame, captures: pl.DataFrame) -> pl.DataFrame:
    """A model's call may begin the step, and tells the stage by its mode: both are known once it has begun.

    They are taken from its result instead of its entry.
    """
    if code(MODEL_CALL) not in numbers.table(captures, ("function",))["function"]:
        return calls
    given = numbers.table(captures, ("function", "moment", "process", "call", "stage", "step"))
    inside = given.take((given["function"] == code(MODEL_CALL)) & (given["moment"] == SIDE["out"]))
    key, first = np.unique(call_keys(inside), return_index=True)
    at = find(key, _keys(calls))
    stage, step = calls["stage"].to_list(), calls["step"].to_list()
    for row in np.flatnonzero(at >= 0).tolist():
        told = int(first[at[row]])
        stage[row] = numbers.text(int(inside["stage"][told])) or stage[row]
        step[row] = int(inside["step"][told]) if inside["step"][told] >= 0 else step[row]
    return calls.with_columns(
        pl.Series("stage", stage, dtype=pl.String), pl.Series("step", step, dtype=calls.schema["step"])
    )


def of_reference(reference: Tables, functions: Sequence[str]) -> Ended:
    """The same of a whole run."""
    return ended(reference.window(), functions, None)[0]


def inputs(found: Ended) -> pl.DataFrame:
    """Tensors among the arguments (lists are not opened), one row each.

    ``row``: of the call in ``found.calls``; ``index``: 0, 1, … in the order of arguments, positional ones first.
    """
    return _tensors(found, "in", _TOP)


def outputs(found: Ended) -> pl.DataFrame:
    """Tensors among the results, as ``inputs``: the result itself, or elements of a returned tuple, list or dict."""
    return _tensors(found, "out", _RETURNED)


def _tensors(found: Ended, moment: str, pattern: re.Pattern[str]) -> pl.DataFrame:
    given = found.captured
    at = np.flatnonzero((given["moment"] == SIDE[moment]) & (given["kind"] == KIND["tensor"]) & (given["row"] >= 0))
    paths, place = np.unique(given["path"][at], return_inverse=True)
    fitting = np.array([_fits(pattern, int(path)) for path in paths], dtype=np.bool_)
    at = at[fitting[place]] if len(at) else at
    at = at[np.lexsort((given["seq"][at], given["row"][at]))]
    row = given["row"][at]
    index = np.arange(len(row)) - np.searchsorted(row, row)
    return found.captures[at].with_columns(
        pl.col("path", "name").cast(pl.String),
        pl.Series("row", row, dtype=pl.UInt32),
        pl.Series("index", index, dtype=pl.Int64),
    )


@lru_cache(maxsize=65536)
def _fits(pattern: re.Pattern[str], path: int) -> bool:
    text = numbers.text(path)
    return text is not None and pattern.search(text) is not None


def without_tensor(found: Ended) -> np.ndarray:
    """Which calls certainly gave back no tensor: they returned None, a number or a text."""
    given = found.captured
    plain = (given["moment"] == SIDE["out"]) & (given["path"] == code("ret")) & member(given["kind"], _PLAIN)
    result = np.zeros(found.calls.height, dtype=bool)
    rows = given["row"][plain]
    result[rows[rows >= 0]] = True
    return result


def argument(found: Ended, name: str) -> pl.DataFrame:
    """Value of an argument (by parameter name or path) or of ``ret…`` per call: kind, int, float, value, key.

    One row a call, in the order of ``found.calls``; ``kind`` is null where it was not recorded.
    """
    moment = "out" if name.startswith("ret") else "in"
    mine = found.captures.filter(
        pl.col("moment") == moment,
        (pl.col("name").cast(pl.String) == name)
        | (pl.col("path").cast(pl.String) == name)
        | (pl.col("path").cast(pl.String) == f"kwargs.{name}"),
    ).unique(["process", "call"], keep="first", maintain_order=True)
    joined = found.calls.select("process", "call").join(mine, on=["process", "call"], how="left", maintain_order="left")
    return _value(joined)


def attribute(tensors: pl.DataFrame, captures: pl.DataFrame, path: Sequence[str | int]) -> pl.DataFrame:
    """An attribute (``["dtype"]``) or an element of one (``["shape", 0]``) of each tensor.

    One row a tensor: kind, int, float, value, key; ``kind`` is null where it is not known.
    """
    name = str(path[0])
    if len(path) == 2:
        return _ints(_element(tensors, name, path[1]))
    derived = _derived(tensors, name)
    recorded = _recorded(tensors, captures, name)
    if recorded is None:
        return derived
    if derived["kind"].null_count() < derived.height:
        both = pl.concat([recorded, derived.rename(lambda column: f"_{column}")], how="horizontal")
        known = pl.col("kind").is_not_null()
        return both.select(
            pl.when(known).then(column).otherwise(f"_{column}").alias(column) for column in recorded.columns
        )
    return recorded


def readable(path: Sequence[str | int] | None) -> str | None:
    """None, or why no attribute of a tensor is meant by the path."""
    if not path or not isinstance(path[0], str):
        return "it names no attribute of the tensor"
    if len(path) > 2 or (len(path) == 2 and not (path[0] == "shape" and isinstance(path[1], int))):
        return f"the path {list(path)} is none this version can follow"
    return None


def say_path(path: Sequence[str | int] | None) -> str:
    """``dtype``, ``shape[0]``."""
    first, *more = path or ["value"]
    return "".join([str(first), *(f"[{part}]" for part in more)])


def _value(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.col("kind").cast(pl.String), "int", "float", pl.col("value").cast(pl.String), key_text().alias("key")
    )


def _recorded(tensors: pl.DataFrame, captures: pl.DataFrame, name: str) -> pl.DataFrame | None:
    """Values recorded under ``<path of the tensor>.<name>``; None when there are none."""
    ends = {}
    for number in np.unique(numbers.table(captures, ("path",))["path"]):
        path = numbers.text(int(number))
        if path is not None and path.endswith(f".{name}"):
            ends[path] = path[: -len(name) - 1]
    if not ends:
        return None
    mine = captures.filter(pl.col("path").is_in(list(ends))).with_columns(
        pl.col("path").cast(pl.String).replace_strict(ends, return_dtype=pl.String).alias("path")
    )
    keys = ["process", "call", "moment", "path"]
    return _value(
        tensors.select(keys).join(
            mine.unique(keys, keep="first", maintain_order=True), on=keys, how="left", maintain_order="left"
        )
    )


def _element(tensors: pl.DataFrame, name: str, index: str | int) -> pl.Series:
    if name != "shape" or not isinstance(index, int):
        return pl.Series([None] * tensors.height, dtype=pl.Int64)
    return tensors.select(pl.col("shape").list.get(index, null_on_oob=True).alias("n"))["n"]


def _derived(tensors: pl.DataFrame, name: str) -> pl.DataFrame:
    if name in ("dtype", "device", "layout"):
        return _texts(tensors[name].cast(pl.String))
    if name in ("requires_grad", "is_leaf"):
        return _bools(tensors[name])
    device = pl.col("device").cast(pl.String).str.split(":").list.first()
    dtype = pl.col("dtype").cast(pl.String)
    layout = pl.col("layout").cast(pl.String)
    items = dtype.replace_strict(ITEM_SIZES, default=None, return_dtype=pl.Int64)
    count = pl.col("shape").list.eval(pl.element().product()).list.first().fill_null(1)
    strided = pl.when(layout.is_null() | (layout == "torch.strided")).then(True)
    if name == "shape":
        text = pl.concat_str(
            pl.lit("["), pl.col("shape").list.eval(pl.element().cast(pl.String)).list.join(", "), pl.lit("]")
        )
        return _texts(tensors.select(text.alias("t"))["t"])
    if name == "ndim":
        return _ints(tensors.select(pl.col("shape").list.len().cast(pl.Int64).alias("n"))["n"])
    if name == "itemsize":
        return _ints(tensors.select(items.alias("n"))["n"])
    if name == "nbytes":
        known = pl.when(pl.col("shape").is_not_null() & strided).then(count * items)
        return _ints(tensors.select(known.alias("n"))["n"])
    if name.startswith("is_") and name[3:] in _DEVICES:
        return _bools(tensors.select((device == name[3:]).alias("b"))["b"])
    if name in _LAYOUTS:
        return _bools(tensors.select((layout == _LAYOUTS[name]).alias("b"))["b"])
    if name == "is_quantized":
        return _bools(tensors.select(dtype.str.starts_with("torch.q").alias("b"))["b"])
    if name == "grad_fn":  # none on leaves and where no gradient is asked for; else an object we have no text for
        none = ~pl.col("requires_grad") | pl.col("is_leaf")
        kind = pl.when(none).then(pl.lit("none")).when(none.not_()).then(pl.lit("object"))
        text = pl.when(none).then(pl.lit("None"))
        return tensors.select(
            kind.alias("kind"),
            pl.lit(None, dtype=pl.Int64).alias("int"),
            pl.lit(None, dtype=pl.Float64).alias("float"),
            text.alias("value"),
            text.alias("key"),
        )
    return _texts(pl.Series([None] * tensors.height, dtype=pl.String))


def _texts(values: pl.Series) -> pl.DataFrame:
    return pl.DataFrame({"value": values}).select(
        pl.when(pl.col("value").is_not_null()).then(pl.lit("symbol")).alias("kind"),
        pl.lit(None, dtype=pl.Int64).alias("int"),
        pl.lit(None, dtype=pl.Float64).alias("float"),
        "value",
        pl.col("value").alias("key"),
    )


def _bools(values: pl.Series) -> pl.DataFrame:
    flag = pl.col("flag")
    text = pl.when(flag).then(pl.lit("True")).when(~flag).then(pl.lit("False"))
    return pl.DataFrame({"flag": values.cast(pl.Boolean)}).select(
        pl.when(flag.is_not_null()).then(pl.lit("bool")).alias("kind"),
        flag.cast(pl.Int64).alias("int"),
        pl.lit(None, dtype=pl.Float64).alias("float"),
        text.alias("value"),
        text.alias("key"),
    )


def _ints(values: pl.Series) -> pl.DataFrame:
    return pl.DataFrame({"int": values.cast(pl.Int64)}).select(
        pl.when(pl.col("int").is_not_null()).then(pl.lit("int")).alias("kind"),
        "int",
        pl.lit(None, dtype=pl.Float64).alias("float"),
        pl.col("int").cast(pl.String).alias("value"),
        pl.col("int").cast(pl.String).alias("key"),
    )
