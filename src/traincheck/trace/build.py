"""Making small traces by hand, for tests of relations, reports and readers.

    b = TraceBuilder(rank=0)
    b.step()
    with b.call("torch.optim.sgd.SGD.step", args=[Object("torch.optim.sgd.SGD", 1)]) as call:
        with b.observe("torch.optim.sgd.SGD.step", moment="before"):
            b.state("model.fc1.weight", data=digest("w0"), grad=None)
        call.returns(None)
    other = b.process(rank=1)      # the same methods, for another process
    trace = b.trace()              # frames, or b.write(folder): files as a run writes them

What is built goes through the records and symbols of docs/trace-format.md, so a built trace is what a reader makes of
one.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from traincheck.events import HEADER_SIZE, Clock, Kind, Mark, Moment, Outcome, Value
from traincheck.trace import schema
from traincheck.trace.decode import LOCATION_PATH, decode
from traincheck.trace.manifest import ProcessInfo
from traincheck.trace.segments import RECORD, Header, Stream
from traincheck.trace.symbols import Symbols
from traincheck.trace.trace import Trace
from traincheck.trace.values import Digest, Error, Identity, Missing, Object, Symbol, Tensor

_REALTIME: Final = 1_700_000_000_000_000_000
_OPENED: Final = 1_000_000_000
_TICK: Final = 1_000
_TICKS_PER_NS: Final = 3
_NONE_STEP: Final = 0


def digest(of: object) -> Digest:
    """A digest that depends on ``repr(of)`` only."""
    return Digest(hashlib.blake2b(repr(of).encode(), digest_size=16).hexdigest())


class Call:
    """A call that is being built: say what it returned, or capture more."""

    def __init__(self, process: ProcessBuilder, number: int, function: int) -> None:
        self._process = process
        self.number = number
        self._function = function

    def capture(self, path: str, value: object, moment: str = "in") -> None:
        """Record one captured value."""
        self._process._capture(self.number, self._function, path, value, moment)

    def returns(self, value: object) -> None:
        """Record the result; a tuple also gives ``ret[0]``, ``ret[1]``, …"""
        if isinstance(value, tuple):
            for index, item in enumerate(value):
                self.capture(f"ret[{index}]", item, "out")
        else:
            self.capture("ret", value, "out")


class ProcessBuilder:
    """Events of one process, in the order of the calls made here. Times advance by 1 µs a record over all processes."""

    def __init__(self, builder: TraceBuilder, index: int, rank: int | None, pid: int | None) -> None:
        self._builder = builder
        self.index = index
        self.rank = rank
        self.pid = 1000 + index if pid is None else pid
        self._records: list[tuple[int, int, int, int, int, int, int]] = []
        self._symbols: list[dict[str, Any]] = []
        self._ids: dict[str, int] = {}
        self._next = {"": 1, "thread": 1, "attribute": 1}
        self._thread = self._symbol("thread", name="MainThread", ident=1)
        self._stacks: dict[int, list[Call]] = {}
        self._calls = 0
        self._observations = 0
        self._observation = 0
        self._steps = _NONE_STEP

    # --- calls -------------------------------------------------------------------------------------------------------

    def function(self, name: str, params: Sequence[str] | None = None, kind: str = "function") -> int:
        """Name a function; only needed to give its parameters."""
        known = self._ids.get(f"function {name}")
        if known is None:
            known = self._ids[f"function {name}"] = self._symbol(
                "function", name=name, kind=kind, params=None if params is None else list(params)
            )
        return known

    def begin(
        self,
        function: str,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        captures: Mapping[str, object] | None = None,
        params: Sequence[str] | None = None,
        location: tuple[str, int, str] | None = None,
    ) -> Call:
        """Enter a call. ``args`` become ``args[i]``, ``kwargs`` ``kwargs.name``, ``captures`` any other paths."""
        number = self.function(function, params)
        stack = self._stacks.setdefault(self._thread, [])
        self._calls += 1
        parent = stack[-1].number if stack else 0
        call = Call(self, self._calls, number)
        self._record(Kind.BEGIN, 0, self._thread, number, self._builder._tick(), call.number, parent)
        stack.append(call)
        for index, value in enumerate(args):
            call.capture(f"args[{index}]", value)
        for name, value in (kwargs or {}).items():
            call.capture(f"kwargs.{name}", value)
        for path, value in (captures or {}).items():
            call.capture(path, value)
        if location is not None:
            file, line, where = location
            place = self._interned("location", file=file, line=line, function=where)
            capture = self._interned("capture", function=number, moment="in", path=LOCATION_PATH)
            self._record(Kind.CAPTURE, Value.LOCATION, self._thread, capture, call.number, place, 0)
        return call

    def end(self, raised: str | None = None) -> None:
        """Leave the innermost open call of this thread; ``raised`` is the full name of an exception's type."""
        call = self._stacks[self._thread].pop()
        outcome = Outcome.RETURNED if raised is None else Outcome.RAISED
        exception = 0 if raised is None else self._interned("value", type="type", v=raised)
        self._record(Kind.END, outcome, self._thread, call._function, self._builder._tick(), call.number, exception)

    @contextmanager
    def call(
        self,
        function: str,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        captures: Mapping[str, object] | None = None,
        params: Sequence[str] | None = None,
        location: tuple[str, int, str] | None = None,
        raises: str | None = None,
    ) -> Iterator[Call]:
        """A call around what is built inside: see ``begin`` and ``end``."""
        thread = self._thread
        call = self.begin(function, args, kwargs, captures, params, location)
        yield call
        self._thread = thread
        self.end(raises)

    @contextmanager
    def thread(self, name: str) -> Iterator[int]:
        """What is built inside happens on the thread of that name."""
        before = self._thread
        self._thread = self._interned("thread", name=name, ident=1 + len(name))
        yield self._thread
        self._thread = before

    # --- state -------------------------------------------------------------------------------------------------------

    @contextmanager
    def observe(self, reason: str, moment: str = "alone", call: Call | int | None = None) -> Iterator[int]:
        """States built inside belong to one look. ``call`` is the innermost open one unless given; 0 for none."""
        before = self._observation
        yield self._observe(reason, moment, call)
        self._observation = before

    def state(
        self,
        variable: str,
        attributes: Mapping[str, object] | None = None,
        *,
        role: str = "parameter",
        owner: str = "model",
        variable_type: str = "torch.nn.Parameter",
        facts: Mapping[str, object] | None = None,
        reason: str = "test",
        **more: object,
    ) -> None:
        """What ``variable`` was: ``state("model.w", data=digest(0), grad=None)``.

        Outside ``observe`` it is a look of its own.
        """
        before = self._observation
        if not before:
            self._observe(reason, "alone", None)
        number = self._interned("variable", name=variable, role=role, type=variable_type, owner=owner, **(facts or {}))
        for attribute, value in {**(attributes or {}), **more}.items():
            kind, low, high = self._encode(value)
            at = self._interned("attribute", name=attribute)
            self._record(Kind.STATE, kind, at, number, self._observation, low, high)
        self._observation = before

    # --- marks -------------------------------------------------------------------------------------------------------

    def step(self, number: int | None = None) -> int:
        """Begin the next training step (or the given one); returns its number."""
        self._steps = self._steps + 1 if number is None else number
        self.mark(Mark.STEP_BEGIN, self._steps)
        return self._steps

    def stage(self, name: str) -> None:
        """From here on the stage is ``name``."""
        self.mark(Mark.STAGE, text=name)

    def mark(self, kind: Mark | int, a: int = 0, b: int = 0, text: str | None = None) -> None:
        """Any mark."""
        symbol = 0 if text is None else self._interned("value", type="str", v=text)
        self._record(Kind.MARK, int(kind), self._thread, symbol, self._builder._tick(), _bits(a), _bits(b))

    # --- numbers -----------------------------------------------------------------------------------------------------

    def _observe(self, reason: str, moment: str, call: Call | int | None) -> int:
        stack = self._stacks.get(self._thread)
        if call is None:
            call = stack[-1] if stack else 0
        self._observations += 1
        self._observation = self._observations
        self._record(
            Kind.OBSERVE,
            Moment[moment.upper()],
            self._thread,
            self._interned("value", type="str", v=reason),
            self._builder._tick(),
            call if isinstance(call, int) else call.number,
            self._observation,
        )
        return self._observation

    def _capture(self, call: int, function: int, path: str, value: object, moment: str) -> None:
        kind, low, high = self._encode(value)
        capture = self._interned("capture", function=function, moment=moment, path=path)
        self._record(Kind.CAPTURE, kind, self._thread, capture, call, low, high)

    def _record(self, *fields: int) -> None:
        kind, b, h, i, x, y, z = (int(value) for value in fields)
        self._records.append((kind, b, h, i, x, y, z))

    def _symbol(self, kind: str, /, **fields: Any) -> int:
        space = kind if kind in self._next else ""
        number = self._next[space]
        self._next[space] = number + 1
        self._symbols.append({"k": kind, "id": number, **fields})
        return number

    def _interned(self, kind: str, /, **fields: Any) -> int:
        key = kind + json.dumps(fields, sort_keys=True)
        number = self._ids.get(key)
        if number is None:
            number = self._ids[key] = self._symbol(kind, **fields)
        return number

    def _encode(self, value: object) -> tuple[Value, int, int]:
        """(value kind, low, high)."""
        if value is None:
            return Value.NONE, 0, 0
        if isinstance(value, bool):
            return Value.BOOL, int(value), 0
        if isinstance(value, int):
            if -(2**63) <= value < 2**63:
                return Value.INT, _bits(value), 0
            return Value.SYMBOL, self._interned("value", type="int", v=str(value)), 0
        if isinstance(value, float):
            return Value.FLOAT, int(struct.unpack("<Q", struct.pack("<d", value))[0]), 0
        if isinstance(value, Symbol):
            return Value.SYMBOL, self._interned("value", type=value.type, v=value.v), 0
        if isinstance(value, Identity):
            return Value.IDENTITY, value.number, 0
        if isinstance(value, Digest):
            number = int(value.hex, 16)
            return Value.DIGEST, number & (2**64 - 1), number >> 64
        if isinstance(value, Missing):
            return Value.MISSING, 0, 0
        if isinstance(value, Error):
            return Value.ERROR, self._interned("value", type="type", v=value.type), 0
        if isinstance(value, Object):
            return Value.OBJECT, self._interned("value", type="type", v=value.type), value.identity
        if isinstance(value, Tensor):
            symbol = self._interned(
                "tensor",
                type=value.type,
                dtype=value.dtype,
                shape=list(value.shape),
                device=value.device,
                requires_grad=value.requires_grad,
                is_leaf=value.is_leaf,
                layout=value.layout,
                **value.extra,
            )
            return Value.TENSOR, symbol, value.identity
        if isinstance(value, (list, tuple)):
            return Value.SYMBOL, self._interned("value", type="tuple", v=list(value)), 0
        return Value.SYMBOL, self._interned("value", type=type(value).__name__, v=value), 0

    def records(self) -> Any:
        """All records so far as a numpy array of ``segments.RECORD``."""
        return np.array(self._records, dtype=RECORD)


class TraceBuilder(ProcessBuilder):
    """Builds a trace. It is its own first process; ``process`` adds others."""

    def __init__(self, rank: int | None = None, pid: int | None = None) -> None:
        self._now = _OPENED
        self._others: list[ProcessBuilder] = []
        super().__init__(self, 0, rank, pid)

    def process(self, rank: int | None = None, pid: int | None = None) -> ProcessBuilder:
        """Another process."""
        other = ProcessBuilder(self, 1 + len(self._others), rank, pid)
        self._others.append(other)
        return other

    @property
    def processes(self) -> list[ProcessBuilder]:
        """All processes, this one first."""
        return [self, *self._others]

    def trace(self) -> Trace:
        """The trace built so far, in memory. Nothing is missing from it."""
        parts: dict[str, list[pl.DataFrame]] = {name: [] for name in schema.FRAMES}
        for process in self.processes:
            records = process.records()
            stream = Stream(
                records, np.arange(len(records), dtype=np.int64), records["x"].astype(np.int64), closed=True
            )
            decoded = decode(stream, Symbols(process._symbols), process.index, process.rank)
            for name, frame in decoded.frames.items():
                parts[name].append(frame)
        return Trace.of_parts(parts, processes=[self._info(process) for process in self.processes])

    def write(
        self, folder: Path, segment_records: int = 1 << 20, clock: Clock = Clock.MONOTONIC_NS, closed: bool = True
    ) -> Path:
        """Write the trace as files, as a run does, and return ``folder``.

        ``closed=False`` leaves it as a killed run would.
        """
        (folder / "processes").mkdir(parents=True)
        manifest = {
            "schema": 1,
            "traincheck": "test",
            "command": ["python", "train.py"],
            "cwd": ".",
            "started_ns": _REALTIME,
            "ended_ns": self._wall(self._now) if closed else None,
            "exit_code": 0 if closed else None,
            "plan": {},
            "plan_hash": "0",
            "host": "localhost",
            "launcher_pid": 1,
            "complete": closed,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        for process in self.processes:
            info = self._info(process)
            home = folder / "processes" / info.name
            home.mkdir()
            lines = [json.dumps(symbol, separators=(",", ":")) for symbol in process._symbols]
            (home / "symbols.jsonl").write_text("".join(line + "\n" for line in lines))
            facts = {
                "schema": 1,
                "name": info.name,
                "pid": process.pid,
                "started_ns": info.started_ns,
                "ended_ns": self._wall(self._now) if closed else None,
                "end": "exit" if closed else "running",
                "exit": 0 if closed else None,
                "rank": None if process.rank is None else {"rank": process.rank, "world_size": len(self.processes)},
                "records": len(process._records),
                "dropped": 0,
                "faults": [],
            }
            (home / "process.json").write_text(json.dumps(facts))
            self._write_segments(home, process, segment_records, clock, closed)
        return folder

    def _write_segments(self, home: Path, process: ProcessBuilder, size: int, clock: Clock, closed: bool) -> None:
        records = process.records()
        rate = _TICKS_PER_NS if clock is Clock.TSC else 1
        timed = np.isin(records["kind"], [Kind.BEGIN, Kind.END, Kind.OBSERVE, Kind.MARK])
        records["x"][timed] *= rate
        for number, first in enumerate(range(0, max(len(records), 1), size)):
            piece = records[first : first + size]
            done = closed or first + size < len(records)
            header = Header(
                pid=process.pid,
                number=number,
                first_seq=first,
                clock=int(clock),
                opened=_OPENED * rate,
                opened_monotonic=_OPENED,
                opened_realtime=_REALTIME,
                count=len(piece) if done else 0,
                closed=self._now * rate if done else 0,
                closed_monotonic=self._now if done else 0,
            )
            space = b"" if done else bytes(64 * RECORD.itemsize)
            data = header.pack() + piece.tobytes() + space
            assert len(data) >= HEADER_SIZE
            (home / f"events-{number:05}.tcev").write_bytes(data)

    def _info(self, process: ProcessBuilder) -> ProcessInfo:
        started = _REALTIME + process.index
        return ProcessInfo(
            index=process.index,
            name=f"{started}-{process.pid}",
            pid=process.pid,
            started_ns=started,
            end="exit",
            exit=0,
            rank=process.rank,
            world_size=None if process.rank is None else len(self.processes),
            records=len(process._records),
        )

    def _tick(self) -> int:
        self._now += _TICK
        return self._now

    @staticmethod
    def _wall(monotonic: int) -> int:
        return _REALTIME + monotonic - _OPENED


def _bits(number: int) -> int:
    """Two's complement in 64 bits."""
    return number & (2**64 - 1)
