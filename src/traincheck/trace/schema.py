"""The frames of a trace: columns, types and what they mean. Frozen: relations, reports and commands are written to it.

Every frame of every source (segments, compact Parquet, the 0.x importer, ``TraceBuilder``) has exactly these columns,
in this order. Columns with few different texts are ``pl.Categorical``: compare them with a string
(``pl.col("function") == "torch.relu"``, ``is_in([...])``), use ``.cat`` or ``cast(pl.String)`` for text functions, and
cast a String key to Categorical before a join. ``null`` means "does not apply or was not recorded", never a recorded
``None``.

Rows: ``calls`` by (process, call); ``captures``, ``states`` and ``marks`` by (process, seq).

Canonical text (``value`` columns): two values of the same trace, or of two traces, are equal when their texts are.
None, True, False and numbers are written as Python writes them (``None``, ``True``, ``3``, ``0.1``, ``nan``), a shape
as ``[2, 3]``, a dtype as ``torch.float32``, a digest as 32 hex digits. A ``str`` is itself, or is JSON-quoted when it
could be taken for one of those (``"3"``, ``"None"``). Identities, objects, tensors, locations, missing and unreadable
values have none (null), so that they cannot become a constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import polars as pl

from traincheck.events import Mark, Moment, Outcome, Value


class Column(NamedTuple):
    """One column of a frame: its name, Polars type and meaning."""

    name: str
    dtype: pl.DataType
    doc: str


def _names(kinds: Iterable[Any]) -> list[str]:
    return [kind.name.lower() for kind in kinds]


OUTCOME: Final = pl.Enum(_names(Outcome))
"""How a call ended: returned, raised, open (no end was recorded)."""

MOMENT: Final = pl.Enum(_names(Moment))
"""When an observation was made relative to its call: before, after, alone."""

SIDE: Final = pl.Enum(["in", "out"])
"""Which side of a call a capture was read on: in (arguments, before), out (result, after)."""

VALUE_KIND: Final = pl.Enum(_names(Value))
"""What kind of value was recorded: see ``traincheck.events.Value``."""

MARK_KIND: Final = pl.Enum(_names(Mark))
"""Kinds of marks: see ``traincheck.events.Mark``."""

_U32 = pl.UInt32()
_I32 = pl.Int32()
_U64 = pl.UInt64()
_I64 = pl.Int64()
_F64 = pl.Float64()
_TEXT = pl.String()
_WORD = pl.Categorical()
_BOOL = pl.Boolean()

_PROCESS = Column("process", _U32, "Index of the process in ``Trace.processes`` (ordered by start).")
_RANK = Column("rank", _I32, "Global rank of the process; null when it is not part of a process group.")
_SEQ = Column(
    "seq", _U64, "Position of the record in its process's stream, from 0: the order of everything in a process."
)
_TIME = Column("time_ns", _I64, "``CLOCK_MONOTONIC`` in nanoseconds: comparable between the processes of one host.")
_THREAD = Column("thread", _U32, "Number of the thread within its process, from 1 (0: unknown).")
_STEP = Column("step", _I32, "Training step the record lies in; 0 before the first step.")
_STAGE = Column("stage", _WORD, "Stage the record lies in (``init``, ``training``, ``evaluation``, …).")
_META = Column("meta", _TEXT, "Other context of imported traces (JSON object of 0.x ``meta_vars``); null otherwise.")

CALLS: Final = (
    _PROCESS,
    _RANK,
    _THREAD,
    Column("call", _U64, "Number of the call in its process, from 1, in order of entry."),
    Column("parent", _U64, "Innermost recorded call of the same thread that was open at entry; 0 when none."),
    Column("function", _WORD, "Full name: module and qualified name of the original function."),
    Column(
        "begin_seq",
        _U64,
        "``seq`` of the entry. A call contains what lies between begin_seq and end_seq on its thread.",
    ),
    Column("end_seq", _U64, "``seq`` of the exit; null while open."),
    Column("begin_ns", _I64, "Time of entry, ``CLOCK_MONOTONIC`` ns."),
    Column("end_ns", _I64, "Time of exit; null while open."),
    Column("outcome", OUTCOME, "returned, raised or open."),
    Column("exception", _WORD, "Full name of the exception's type when it raised."),
    Column("step", _I32, "Training step at entry; 0 before the first step."),
    Column("end_step", _I32, "Training step at exit; null while open."),
    Column("stage", _WORD, "Stage at entry."),
    Column(
        "location", _TEXT, "Innermost frame of user code at entry: ``file:line in function``; null when not recorded."
    ),
    _META,
)

CAPTURES: Final = (
    _PROCESS,
    _RANK,
    _SEQ,
    Column("call", _U64, "The call it was read at."),
    Column("function", _WORD, "Function of that call."),
    Column("moment", SIDE, "in or out."),
    Column("path", _WORD, "What was read, as recorded: ``args[0].dtype``, ``kwargs.lr``, ``self``, ``ret[1]``."),
    Column(
        "name",
        _WORD,
        "``path`` by parameter: ``args[0].dtype`` and ``kwargs.input.dtype`` are both ``input.dtype``; ``self`` and "
        "``ret`` stay. Null when the parameters of the function are not known.",
    ),
    Column("kind", VALUE_KIND, "Kind of value."),
    Column(
        "type",
        _WORD,
        "Python type of the value: ``int``, ``str``, ``torch.dtype``, ``torch.Tensor``; of errors the exception's.",
    ),
    Column("int", _I64, "Value of an int or bool (0, 1) that fits 64 bits."),
    Column("float", _F64, "Value of a float."),
    Column(
        "text",
        _TEXT,
        "Raw text of interned values (str, dtype, shape, big int, …), type name of objects and errors, digest.",
    ),
    Column(
        "identity", _U64, "``id()`` or pointer of identities, objects and tensors: comparable within the process only."
    ),
    Column("dtype", _WORD, "Tensors: ``torch.float32``."),
    Column("shape", pl.List(pl.Int64), "Tensors: sizes."),
    Column("device", _WORD, "Tensors: ``cpu``, ``cuda:0``."),
    Column("requires_grad", _BOOL, "Tensors."),
    Column("is_leaf", _BOOL, "Tensors."),
    Column("layout", _WORD, "Tensors: ``torch.strided``, …"),
    Column(
        "value",
        _TEXT,
        "Canonical text (see above); null for identities, objects, tensors, missing, errors and locations.",
    ),
    _STEP,
    _STAGE,
)

STATES: Final = (
    _PROCESS,
    _RANK,
    _SEQ,
    _TIME,
    Column(
        "observation", _U64, "Number of the observation in its process; all rows of one look at the state share it."
    ),
    Column("reason", _WORD, "Why it was made: full name of the function around which it was made, or a word."),
    Column("moment", MOMENT, "before or after that call, or alone."),
    Column("call", _U64, "The call it belongs to; 0 when none."),
    Column("function", _WORD, "Function of that call; null when none or not recorded."),
    Column("variable", _WORD, "Qualified name: ``model.fc1.weight``."),
    Column("owner", _WORD, "Which model or optimizer it belongs to: ``model``, ``model.1``, ``optimizer``."),
    Column("role", _WORD, "parameter, buffer, gradient, optimizer_state, … (``traincheck.events.ROLES``)."),
    Column("variable_type", _WORD, "Python type of the variable: ``torch.nn.Parameter``."),
    Column("attribute", _WORD, "What was looked at: ``data``, ``grad``, ``requires_grad``, ``dtype``, …"),
    Column("kind", VALUE_KIND, "Kind of value."),
    Column("type", _WORD, "Python type of the value, as in captures."),
    Column("int", _I64, "Value of an int or bool (0, 1)."),
    Column("float", _F64, "Value of a float."),
    Column("text", _TEXT, "Raw text of interned values, type name of objects and errors."),
    Column("identity", _U64, "``id()`` or pointer: comparable within the process only."),
    Column("digest", _TEXT, "Content digest, 32 hex digits (16 for imported 0.x hashes)."),
    Column(
        "value", _TEXT, "Canonical text: digest, number, text, ``None``; null for missing, errors, identities, objects."
    ),
    _STEP,
    _STAGE,
    _META,
)

MARKS: Final = (
    _PROCESS,
    _RANK,
    _SEQ,
    _TIME,
    _THREAD,
    Column("kind", MARK_KIND, "Kind of mark."),
    Column("value", _I64, "First number of the mark (``a``): the step, 0 or 1, …"),
    Column("text", _TEXT, "Its text: the stage's name, the note; null when none."),
    Column("b", _I64, "Second number of the mark."),
    _STEP,
    _STAGE,
)

VARIABLES: Final = (
    _PROCESS,
    _RANK,
    Column("variable", _WORD, "Qualified name."),
    Column("owner", _WORD, "Which model or optimizer."),
    Column("role", _WORD, "See ``traincheck.events.ROLES``."),
    Column("variable_type", _WORD, "Python type."),
    Column("facts", _TEXT, "JSON object of static facts (``tied_to``, ``group``, …); ``{}`` when none."),
)

FUNCTIONS: Final = (
    Column("function", _WORD, "Full name."),
    Column(
        "kind",
        _WORD,
        "function, method, classmethod, staticmethod, builtin, c_method, autograd_apply; null when not known.",
    ),
    Column(
        "params",
        pl.List(pl.String),
        "Parameter names in order, ``*args`` and ``**kwargs`` with their stars; null when not known.",
    ),
)

FRAMES: Final[Mapping[str, tuple[Column, ...]]] = {
    "calls": CALLS,
    "captures": CAPTURES,
    "states": STATES,
    "marks": MARKS,
    "variables": VARIABLES,
    "functions": FUNCTIONS,
}
"""Frame name -> its columns."""


def schema(frame: str) -> pl.Schema:
    """Polars schema of a frame (``calls``, ``captures``, ``states``, ``marks``, ``variables``, ``functions``)."""
    return pl.Schema({column.name: column.dtype for column in FRAMES[frame]})


def empty(frame: str) -> pl.DataFrame:
    """The frame without rows."""
    return pl.DataFrame(schema=schema(frame))


def conform(frame: str, data: pl.DataFrame) -> pl.DataFrame:
    """``data`` with exactly the columns of the frame: missing ones are null, types are cast, others dropped.

    Raises ``polars.exceptions.PolarsError`` when a column cannot be cast.
    """
    return data.select(
        pl.col(column.name).cast(column.dtype)
        if column.name in data.columns
        else pl.lit(None, dtype=column.dtype).alias(column.name)
        for column in FRAMES[frame]
    )
