"""Records of one process of a TrainCheck 0.x trace as frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import polars as pl

from traincheck.trace import schema
from traincheck.trace.manifest import ProcessInfo
from traincheck.trace.old_values import Value, attributes, meta_text, plain, value_rows
from traincheck.trace.symbols import parameter_path

_PRE: Final = "function_call (pre)"
_POST: Final = "function_call (post)"
_RAISED: Final = "function_call (post) (exception)"
_STATE: Final = "state_change"
_MOMENTS: Final = {"pre_observe": "before", "post_observe": "after"}
_MESH: Final = {
    "_DATA_PARALLEL": "dp",
    "_TENSOR_MODEL_PARALLEL": "tp",
    "_PIPELINE_MODEL_PARALLEL": "pp",
    "_EXPERT_MODEL_PARALLEL": "ep",
    "_CONTEXT_PARALLEL": "cp",
}
"""Prefix of a ``meta_vars`` name (it ends in ``_RANK`` or ``_GROUP``) -> mesh dimension."""

Record = dict[str, Any]


def mesh_of(records: Iterable[Record]) -> dict[str, int]:
    """Mesh coordinates that the context of a process states, if they never change."""
    seen: dict[str, set[int]] = {}
    last: object = None
    for record in records:
        meta = record.get("meta_vars")
        if not isinstance(meta, dict) or meta == last:
            continue
        last = meta
        for prefix, dimension in _MESH.items():
            for name in (f"{prefix}_RANK", f"{prefix}_GROUP"):
                number = _whole(meta.get(name))
                if number is not None:
                    seen.setdefault(dimension, set()).add(number)
    return {dimension: numbers.pop() for dimension, numbers in seen.items() if len(numbers) == 1}


class _Table:
    """Columns of a frame while it grows."""

    def __init__(self, frame: str) -> None:
        self._frame = frame
        self._columns: dict[str, list[Any]] = {column.name: [] for column in schema.FRAMES[frame]}
        self.height = 0

    def add(self, **values: Any) -> None:
        """Append a row; what is not given is null."""
        for name, column in self._columns.items():
            column.append(values.get(name))
        self.height += 1

    def set(self, row: int, **values: Any) -> None:
        """Change a row."""
        for name, value in values.items():
            self._columns[name][row] = value

    def get(self, row: int, name: str) -> Any:
        """One cell."""
        return self._columns[name][row]

    def frame(self) -> pl.DataFrame:
        """The frame."""
        return pl.DataFrame(self._columns, schema=schema.schema(self._frame))


class _Long:
    """Rows of values: what a row shares with others (context, path, value) is held once."""

    def __init__(self, frame: str) -> None:
        self._frame = frame
        self._seqs: list[int] = []
        self._context: list[int] = []
        self._path: list[int] = []
        self._value: list[int] = []
        self._contexts: list[dict[str, Any]] = []
        self._paths: dict[str, int] = {}
        self._values: dict[int, int] = {}  # by id(): equal small values are the same object
        self._held: list[Value] = []

    def extend(self, seq: int, context: dict[str, Any], values: Iterable[tuple[str, Value]]) -> int:
        """Append a row for each (path, value), numbered from ``seq``; returns the next number."""
        number = len(self._contexts)
        self._contexts.append(context)
        for path, value in values:
            self._seqs.append(seq)
            self._context.append(number)
            self._path.append(self._paths.setdefault(path, len(self._paths)))
            at = self._values.get(id(value))
            if at is None:
                at = self._values[id(value)] = len(self._held)
                self._held.append(value)
            self._value.append(at)
            seq += 1
        return seq

    def frame(self, path: str, **by_path: list[Any]) -> pl.DataFrame:
        """The frame; ``path`` names the column of paths, ``by_path`` gives further columns for each path."""
        wanted = schema.schema(self._frame)
        paths = pl.DataFrame({path: list(self._paths), **by_path}, schema={n: wanted[n] for n in (path, *by_path)})
        value_columns = [name for name in Value.__dataclass_fields__ if name in wanted]
        columns = {name: [getattr(value, name) for value in self._held] for name in value_columns}
        values = pl.DataFrame(columns, schema={name: wanted[name] for name in value_columns})
        rest = [name for name in wanted if name not in (path, "seq", *by_path, *value_columns)]
        contexts = pl.DataFrame(
            {name: [context.get(name) for context in self._contexts] for name in rest},
            schema={name: wanted[name] for name in rest},
        )
        rows = pl.concat(
            [
                pl.DataFrame({"seq": self._seqs}, schema={"seq": pl.UInt64}),
                contexts[pl.Series(self._context, dtype=pl.UInt32)],
                paths[pl.Series(self._path, dtype=pl.UInt32)],
                values[pl.Series(self._value, dtype=pl.UInt32)],
            ],
            how="horizontal",
        )
        return schema.conform(self._frame, rows)

    @property
    def paths(self) -> list[str]:
        """All paths seen, in the order of ``by_path``."""
        return list(self._paths)


class ProcessFrames:
    """Frames of one process, filled by ``add``. ``lacks`` are (code, sentence)."""

    def __init__(self, index: int, pid: int, rank: int | None, mesh: dict[str, int]) -> None:
        self.index = index
        self.pid = pid
        self.rank = rank
        self.mesh = mesh
        self.lacks: list[tuple[str, str]] = []
        self.has_steps = False
        self._has_stages = False
        self._tables = {name: _Table(name) for name in ("calls", "marks", "variables", "functions")}
        self._captured = _Long("captures")
        self._observed = _Long("states")
        self._seq = 0
        self._records = 0
        self._threads: dict[Any, int] = {}
        self._stacks: dict[int, list[tuple[str, int]]] = {}
        self._open: dict[str, tuple[int, int]] = {}  # id of an open call -> (row, thread)
        self._observation = 0
        self._look: object = None
        self._step = 0
        self._stage: str | None = None
        self._variables: set[tuple[str, Any]] = set()
        self._functions: set[str] = set()
        self._ends_without_begin = 0
        self._twice = 0
        self._unknown = 0

    def info(self) -> ProcessInfo:
        """What is known of the process."""
        return ProcessInfo(
            index=self.index,
            name=f"{self.pid}",
            pid=self.pid,
            rank=self.rank,
            mesh=dict(self.mesh),
            records=self._records,
        )

    def frames(self) -> dict[str, pl.DataFrame]:
        """The frames, in the order of the contract."""
        frames = {name: table.frame() for name, table in self._tables.items()}
        names = [parameter_path(path, None) for path in self._captured.paths]
        frames["captures"] = self._captured.frame("path", name=names)
        frames["states"] = self._observed.frame("attribute")
        if self._has_stages:  # 0.x leaves the stage out until it is first said
            for name in ("calls", "captures", "states", "marks"):
                filled = pl.col("stage").fill_null(pl.lit("init", dtype=pl.Categorical()))
                frames[name] = frames[name].with_columns(filled)
        return frames

    def add(self, records: list[Record]) -> None:
        """Take all records of the process."""
        records.sort(key=_time)  # stable: files are in order each
        self._records = len(records)
        for record in records:
            kind = record["type"]
            context = self._context(record)
            if kind == _PRE:
                self._pre(record, context)
            elif kind in (_POST, _RAISED):
                self._post(record, context, raised=kind == _RAISED)
            elif kind == _STATE:
                self._state(record, context)
            else:
                self._unknown += 1
        still_open = len(self._open)
        if still_open:
            self.lacks.append(("open-calls", f"{still_open} calls have no end: they were running, or raised past 0.x."))
        if self._ends_without_begin:
            self.lacks.append(
                ("ends-without-begin", f"{self._ends_without_begin} calls have an end but no begin; they are left out.")
            )
        if self._twice:
            self.lacks.append(
                ("damaged-records", f"{self._twice} begins repeat the id of an open call; they are left out.")
            )
        if self._unknown:
            self.lacks.append(("unknown-records", f"{self._unknown} records are of an unknown type and were left out."))

    # --- context -----------------------------------------------------------------------------------------------------

    def _context(self, record: Record) -> dict[str, Any]:
        """step, stage and the rest of the context; marks where step and stage change."""
        meta = record.get("meta_vars")
        rest = dict(meta) if isinstance(meta, dict) else {}
        step = _whole(rest.pop("step", None))
        stage = rest.pop("stage", None)
        stage = stage if isinstance(stage, str) else None
        context = {
            "process": self.index,
            "rank": self.rank,
            "step": step or 0,
            "stage": stage,
        }
        if step is not None:
            self.has_steps = True
            if step > self._step:
                self._step = step
                self._mark(record, context, "step_begin", value=step)
        if stage is not None and stage != self._stage:
            self._has_stages = True
            self._stage = stage
            self._mark(record, context, "stage", text=stage)
        self._rest = rest
        return context

    def _mark(
        self, record: Record, context: dict[str, Any], kind: str, value: int = 0, text: str | None = None
    ) -> None:
        self._tables["marks"].add(
            **context,
            seq=self._next(),
            time_ns=record["time"],
            thread=self._thread(record),
            kind=kind,
            value=value,
            text=text,
            b=0,
        )

    def _next(self) -> int:
        self._seq += 1
        return self._seq - 1

    def _thread(self, record: Record) -> int:
        return self._threads.setdefault(str(record.get("thread_id")), len(self._threads) + 1)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _pre(self, record: Record, context: dict[str, Any]) -> None:
        number = record.get("func_call_id")
        function = record.get("function")
        if not isinstance(number, str) or not isinstance(function, str):
            self._unknown += 1
            return
        if number in self._open:
            self._twice += 1
            return
        thread = self._thread(record)
        stack = self._stacks.setdefault(thread, [])
        calls = self._tables["calls"]
        row = calls.height
        extra = {"stack_trace": record["stack_trace"]} if record.get("stack_trace") else {}
        calls.add(
            **context,
            thread=thread,
            call=row + 1,
            parent=stack[-1][1] + 1 if stack else 0,
            function=function,
            begin_seq=self._next(),
            begin_ns=record["time"],
            outcome="open",
            meta=meta_text({**self._rest, **extra}),
        )
        stack.append((number, row))
        self._open[number] = (row, thread)
        if function not in self._functions:
            self._functions.add(function)
            kind = "method" if record.get("is_bound_method") is True else None
            self._tables["functions"].add(function=function, kind=kind, params=None)
        self._captures(context, row, function, "in", _arguments(record))

    def _post(self, record: Record, context: dict[str, Any], raised: bool) -> None:
        number = record.get("func_call_id")
        row, thread = self._open.pop(number, (-1, 0)) if isinstance(number, str) else (-1, 0)
        if row < 0:
            self._ends_without_begin += 1
            return
        stack = self._stacks[thread]
        at = next(i for i in range(len(stack) - 1, -1, -1) if stack[i][1] == row)
        del stack[at:]  # what lies above was never ended
        calls = self._tables["calls"]
        exception = record.get("exception")
        calls.set(
            row,
            end_ns=record["time"],
            end_step=context["step"],
            outcome="raised" if raised else "returned",
            exception=exception if raised and isinstance(exception, str) else None,
        )
        if raised and record.get("exception_msg") is not None:
            calls.set(row, meta=meta_text({**self._rest, "exception_msg": record["exception_msg"]}))
        self._captures(context, row, calls.get(row, "function"), "out", _results(record))
        calls.set(row, end_seq=self._next())

    def _captures(
        self, context: dict[str, Any], row: int, function: str, moment: str, values: Iterator[tuple[str, Value]]
    ) -> None:
        context = {**context, "call": row + 1, "function": function, "moment": moment}
        self._seq = self._captured.extend(self._seq, context, values)

    # --- state -------------------------------------------------------------------------------------------------------

    def _state(self, record: Record, context: dict[str, Any]) -> None:
        variable = record.get("var_name")
        values = record.get("attributes")
        if not isinstance(variable, str) or not isinstance(values, dict):
            self._unknown += 1
            return
        mode, where = record.get("mode"), record.get("dump_loc")
        thread = self._thread(record)
        moment = _MOMENTS.get(mode, "alone") if isinstance(mode, str) else "alone"
        reason = where if isinstance(where, str) else mode if isinstance(mode, str) else "sample"
        look = (thread, record["time"], mode, where)
        if look != self._look:
            self._look = look
            self._observation += 1
            self._next()
        call = self._call_at(thread, reason if moment != "alone" else None)
        variable_type = record.get("var_type")
        variable_type = variable_type if isinstance(variable_type, str) else None
        about = {
            "variable": variable,
            "owner": variable.split(".", 1)[0],
            "role": "parameter" if variable_type and variable_type.endswith("Parameter") else None,
            "variable_type": variable_type,
        }
        if (variable, variable_type) not in self._variables:
            self._variables.add((variable, variable_type))
            self._tables["variables"].add(process=self.index, rank=self.rank, facts="{}", **about)
        meta = meta_text({**self._rest, **({"mode": mode} if mode is not None else {})})
        context = {
            **context,
            **about,
            "time_ns": record["time"],
            "observation": self._observation,
            "reason": reason,
            "moment": moment,
            "call": 0 if call is None else call + 1,
            "function": None if call is None else self._tables["calls"].get(call, "function"),
            "meta": meta,
        }
        self._seq = self._observed.extend(self._seq, context, attributes(values, contents=True))

    def _call_at(self, thread: int, function: str | None) -> int | None:
        """Row of the innermost open call of a thread (of that function, if given)."""
        for _, row in reversed(self._stacks.get(thread, [])):
            if function is None or self._tables["calls"].get(row, "function") == function:
                return row
        return None


def _arguments(record: Record) -> Iterator[tuple[str, Value]]:
    arguments = record.get("args")
    positional: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    identity = record.get("obj_id")
    if type(identity) is int and 0 <= identity < 2**64:
        owner = positional.get("0")
        name = next(iter(owner)) if isinstance(owner, dict) and len(owner) == 1 else None
        yield "self", Value("object", name, text=name, identity=identity)
    for index, value in positional.items():
        yield from value_rows(f"args[{index}]", value)
    keywords = record.get("kwargs")
    if isinstance(keywords, dict):
        for keyword, value in keywords.items():
            yield from value_rows(f"kwargs.{keyword}", value)
    names = record.get("proxy_obj_names")
    if isinstance(names, list):
        for number, item in enumerate(names):
            variable = item[0] if isinstance(item, list) and item else item
            yield f"@variables[{number}]", plain(variable if isinstance(variable, str) else str(variable), "variable")


def _results(record: Record) -> Iterator[tuple[str, Value]]:
    result = record.get("return_values")
    if result is None:
        return
    if isinstance(result, list):
        for index, value in enumerate(result):
            yield from value_rows(f"ret[{index}]", value)
    else:
        yield from value_rows("ret", result)


def _time(record: Record) -> int:
    time: int = record["time"]
    return time


def _whole(value: Any) -> int | None:
    """A small non-negative whole number, however 0.x wrote it."""
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value) if abs(value) < 2**31 else None
    return value if type(value) is int and 0 <= value < 2**31 else None
