"""What relations see of a trace: its frames without what must not be judged, and windows cut from them.

Judged is what was observed whole. A call that a sampling gap cuts, and the unfinished step of a process that did not
end by itself, are taken out here, once, so that no relation has to know. Every row of ``calls`` and ``states`` gets a
``span``: the number of gaps before it; values are never carried from one span to the next. Every row of ``states`` gets
a ``look``: ``seq`` of the first row of its observation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from traincheck.collect.catalog import EXCLUDED_MODULES, EXCLUDED_NAMES
from traincheck.trace.manifest import Fields

_ALL: Final = 2**63 - 1


class TraceLike(Protocol):
    """What of a ``traincheck.trace.Trace`` is used here."""

    @property
    def calls(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def captures(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def states(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def marks(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def processes(self) -> Sequence[Any]: ...  # noqa: D102
    @property
    def functions(self) -> pl.DataFrame: ...  # noqa: D102
    @property
    def manifest(self) -> Any: ...  # noqa: D102
    @property
    def source(self) -> str: ...  # noqa: D102


@dataclass(frozen=True)
class Watch:
    """What of the program was watched: that a function was not called can only be said of one that was."""

    scope: str | None = None
    packages: frozenset[str] = frozenset()
    functions: frozenset[str] = frozenset()
    state: bool = True
    captures: Mapping[str, frozenset[str]] | None = None
    """Selective runs: function -> what was captured of it (``*``: everything)."""
    parts: Mapping[str, frozenset[str]] | None = None
    """Selective runs: what was observed of the state (``relations.state_needs``)."""
    missing: frozenset[str] = frozenset()
    """Functions that were to be observed and were not found."""
    unobservable: Mapping[str, str] = field(default_factory=dict)
    """Invariants (by ``key``) of which it was known beforehand that this run cannot observe them, and why."""

    @classmethod
    def of(cls, trace: TraceLike) -> Watch:
        """From the plan in the manifest. Without one everything counts as watched in imported and built traces.

        In a run of ours whose plan was lost only what is named in it does: the others may not have been probed.
        """
        plan = Fields(trace.manifest.plan if trace.manifest is not None else {})
        scope = plan.text("scope")
        recorded = frozenset(trace.functions["function"].drop_nulls().cast(pl.String).to_list())
        if scope is None:
            return cls("unknown", functions=recorded) if trace.source == "segments" else cls()
        chosen, parts = _names(plan.object("functions")), _names(plan.object("observe"))
        selective = scope == "selective"
        state = plan.flag("state")
        return cls(
            scope,
            frozenset(plan.texts("packages")),
            frozenset(chosen) if selective else recorded,
            state if state is not None else True,
            captures=chosen if selective else None,
            parts=parts if selective and parts else None,
            missing=frozenset(name for process in trace.processes for name in Fields(process.raw).texts("missing")),
            unobservable={str(one.get("id")): str(one.get("reason")) for one in plan.objects("unobservable")},
        )

    def captured(self, function: str, path: str) -> bool:
        """Whether an argument or result would have been captured."""
        if self.captures is None:
            return True
        paths = self.captures.get(function, frozenset())
        return "*" in paths or path in paths

    def watches(self, function: str) -> bool:
        """Whether calls of the function would have been recorded.

        In full scope also those of modules that were never imported; not private ones, nor those left out of a class or
        module of which others were taken.
        """
        if self.scope is None or function in self.functions:
            return True
        owner, _, name = function.rpartition(".")
        if self.scope != "full" or owner in self._owners or function in EXCLUDED_NAMES:
            return False
        if any(part.startswith("_") for part in (*owner.split("."), name)):
            return False
        if any(owner == module or owner.startswith(f"{module}.") for module in EXCLUDED_MODULES):
            return False
        return function.partition(".")[0] in self.packages

    @cached_property
    def _owners(self) -> frozenset[str]:
        return frozenset(function.rpartition(".")[0] for function in self.functions)


@dataclass(frozen=True)
class Window:
    """Events of a stretch of the run, of one process or of several.

    ``calls``: calls that began or ended in the stretch, with ``began`` and ``ended`` saying which (a call that began
    earlier and ends here comes again, whole). ``captures``, ``states``: what was recorded in it. ``processes``: those
    whose events may still come in later windows.
    """

    calls: pl.DataFrame
    captures: pl.DataFrame
    states: pl.DataFrame
    processes: tuple[int, ...] = ()
    source: str = "segments"
    """Where the trace came from, as ``Trace.source`` says."""


def concat(windows: Sequence[Window]) -> Window:
    """The window that holds the events of all of these (of different processes)."""
    return Window(
        pl.concat([window.calls for window in windows]),
        pl.concat([window.captures for window in windows]),
        pl.concat([window.states for window in windows]),
        tuple(sorted({process for window in windows for process in window.processes})),
        windows[0].source if windows else "segments",
    )


def _names(value: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Lists of names by name; what is no list is none."""
    return {name: frozenset(map(str, some)) for name, some in value.items() if isinstance(some, list)}


@dataclass(frozen=True)
class Tables:
    """The judged part of one run. Frames have the columns of ``traincheck.trace.schema`` and ``span``."""

    calls: pl.DataFrame
    captures: pl.DataFrame
    states: pl.DataFrame
    marks: pl.DataFrame
    name: str = "run"
    watch: Watch = Watch()
    source: str = "segments"

    @classmethod
    def of(cls, trace: TraceLike, name: str = "run") -> Tables:
        """From a trace (anything with frames ``calls``, ``captures``, ``states``, ``marks``)."""
        marks = trace.marks
        horizon = _horizon(marks, _finished(trace))
        gaps = _gaps(marks)
        calls = _spans(_before(trace.calls, horizon, "begin_seq"), gaps, "begin_seq")
        calls = _spans(calls, gaps, "end_seq", into="end_span")
        # A call that a gap cuts, or that was entered with observation off, was not observed whole.
        calls = calls.filter(
            pl.col("end_span").is_null() | (pl.col("span") == pl.col("end_span")), ~pl.col("span_off")
        ).drop("end_span", "end_span_off", "span_off")
        states = _spans(_before(trace.states, horizon, "seq"), gaps, "seq").filter(~pl.col("span_off")).drop("span_off")
        states = states.with_columns(pl.col("seq").min().over("process", "observation").alias("look"))
        return cls(calls, _before(trace.captures, horizon, "seq"), states, marks, name, Watch.of(trace), trace.source)

    @property
    def processes(self) -> tuple[int, ...]:
        """Processes with events, in order."""
        return tuple(
            sorted({int(p) for frame in (self.calls, self.states) for p in frame["process"].unique().to_list()})
        )

    def window(self) -> Window:
        """The whole run as one window."""
        return self.cut([])[0]

    def cut(self, cuts: Sequence[Mapping[int, int]]) -> list[Window]:
        """Windows between cuts; a cut maps process -> first ``seq`` of the next window (missing: all that is left).

        ``cut([])`` is the whole run.
        """
        windows = []
        low: dict[int, int] = {}
        for cut in [*cuts, {}]:
            high = {process: cut.get(process, _ALL) for process in self.processes}
            windows.append(self._between(low, high))
            low = high
        return windows

    def steps(self) -> list[Window]:
        """One window per training step: what came before the first step, then each step of all processes together."""
        begins = self.marks.filter(pl.col("kind") == "step_begin").select("process", "seq", "value")
        numbers = sorted(set(begins["value"].to_list()))
        cuts = []
        for number in numbers:
            at = begins.filter(pl.col("value") >= number).group_by("process").agg(pl.col("seq").min())
            cuts.append({int(row[0]): int(row[1]) for row in at.iter_rows()})
        return self.cut(cuts)

    def only(self, process: int) -> Tables:
        """The part of one process."""
        mine = pl.col("process") == process
        return Tables(
            self.calls.filter(mine),
            self.captures.filter(mine),
            self.states.filter(mine),
            self.marks.filter(mine),
            self.name,
            self.watch,
            self.source,
        )

    @cached_property
    def _index(self) -> _Index:
        return _Index(self.calls, self.captures, self.states)

    def _between(self, low: Mapping[int, int], high: Mapping[int, int]) -> Window:
        index = self._index
        stretches = [(process, low.get(process, 0), high[process]) for process in sorted(high)]
        later = tuple(process for process, _, end in stretches if end < _ALL)
        if len(stretches) == 0 or (not low and not later):  # the whole run
            calls = self.calls.with_columns(began=pl.lit(True), ended=pl.col("end_seq").is_not_null())
            return Window(calls, self.captures, self.states, later, self.source)
        rows = [index.calls.between(*stretch) for stretch in stretches]
        ends = [index.ends.between(*stretch) for stretch in stretches]
        every = np.unique(np.concatenate([*rows, *ends]))
        flags = [np.isin(every, np.concatenate(some)) for some in (rows, ends)]
        calls = self.calls[every].with_columns(
            pl.Series("began", flags[0], dtype=pl.Boolean), pl.Series("ended", flags[1], dtype=pl.Boolean)
        )
        captures = _rows(self.captures, [index.captures.between(*stretch) for stretch in stretches])
        # By the first row of the look: an observation is never cut in two.
        states = _rows(self.states, [index.looks.between(*stretch) for stretch in stretches])
        return Window(calls, captures, states, later, self.source)


class _Index:
    """For finding the rows of a stretch of the run without reading the others."""

    def __init__(self, calls: pl.DataFrame, captures: pl.DataFrame, states: pl.DataFrame) -> None:
        self.calls = _Order(calls, "begin_seq")
        self.ends = _Order(calls, "end_seq")
        self.captures = _Order(captures, "seq")
        self.looks = _Order(states, "look")


class _Order:
    """Rows of a frame by process and a sequence number."""

    def __init__(self, frame: pl.DataFrame, column: str) -> None:
        process = frame["process"].cast(pl.Int64).to_numpy()
        number = frame[column].cast(pl.Int64).fill_null(-1).to_numpy()
        order = np.lexsort((number, process))
        self._order = order
        self._process, self._number = process[order], number[order]

    def between(self, process: int, low: int, high: int) -> npt.NDArray[np.int64]:
        """Numbers of the rows of a process with ``low <= number < high``, in the order of the frame."""
        first, last = np.searchsorted(self._process, [process, process + 1])
        start, stop = first + np.searchsorted(self._number[first:last], [low, high])
        return np.sort(self._order[start:stop])


def _rows(frame: pl.DataFrame, rows: Sequence[npt.NDArray[np.int64]]) -> pl.DataFrame:
    wanted = np.concatenate(rows)
    if len(wanted) and wanted[-1] - wanted[0] == len(wanted) - 1 and (np.diff(wanted) == 1).all():
        return frame.slice(int(wanted[0]), len(wanted))
    return frame[wanted]


def _finished(trace: TraceLike) -> set[int]:
    """Processes that ended by themselves. 0.x did not write how one ended: where no call was left open, well enough."""
    ended = {info.index for info in trace.processes if info.end == "exit"}
    if trace.source == "traincheck-0.x":
        open_calls = set(trace.calls.filter(pl.col("end_seq").is_null())["process"].to_list())
        ended |= {info.index for info in trace.processes} - open_calls
    return ended


def _horizon(marks: pl.DataFrame, finished: set[int]) -> dict[int, int]:
    """Process -> first ``seq`` not judged: the last step, if not completed and the process did not end normally."""
    result: dict[int, int] = {}
    for (process,), mine in marks.group_by(["process"], maintain_order=True):
        ended = process in finished or not mine.filter(pl.col("kind") == "process_end", pl.col("value") == 0).is_empty()
        begins = mine.filter(pl.col("kind") == "step_begin")
        if ended or begins.is_empty():
            continue
        last = begins.sort("seq").row(-1, named=True)
        done = mine.filter((pl.col("kind") == "step_end") & (pl.col("seq") > last["seq"])).height > 0
        if not done:
            result[int(str(process))] = int(last["seq"])
    return result


def _before(frame: pl.DataFrame, horizon: Mapping[int, int], column: str) -> pl.DataFrame:
    for process, seq in horizon.items():
        frame = frame.filter((pl.col("process") != process) | (pl.col(column) < seq))
        if "end_seq" in frame.columns:  # what ends behind the horizon is open
            late = (pl.col("process") == process) & (pl.col("end_seq") >= seq)
            frame = frame.with_columns(
                pl.when(late).then(None).otherwise(pl.col("end_seq")).alias("end_seq"),
                pl.when(late)
                .then(pl.lit("open"))
                .otherwise(pl.col("outcome"))
                .cast(frame.schema["outcome"])
                .alias("outcome"),
            )
    return frame


def _gaps(marks: pl.DataFrame) -> pl.DataFrame:
    """Columns process, seq, gaps (so far), off: state of observation from ``seq`` on."""
    return (
        marks.filter(pl.col("kind") == "observing")
        .sort("process", "seq")
        .select(
            "process",
            "seq",
            (pl.col("value") == 0).cast(pl.Int64).cum_sum().over("process").alias("gaps"),
            (pl.col("value") == 0).alias("off"),
        )
        .sort("seq")
    )


def _spans(frame: pl.DataFrame, gaps: pl.DataFrame, column: str, into: str = "span") -> pl.DataFrame:
    if gaps.is_empty():
        missing = pl.col(column).is_null() if column == "end_seq" else pl.lit(False)
        return frame.with_columns(
            pl.when(missing).then(None).otherwise(pl.lit(0, dtype=pl.Int64)).alias(into),
            pl.lit(False).alias(f"{into}_off"),
        )
    keyed = frame.with_row_index("_row")
    known = keyed.filter(pl.col(column).is_not_null()).sort(column)
    found = known.join_asof(
        gaps.rename({"seq": "_gap"}),
        left_on=column,
        right_on="_gap",
        by="process",
        strategy="backward",
        check_sortedness=False,
    ).select("_row", pl.col("gaps").fill_null(0).alias(into), pl.col("off").fill_null(False).alias(f"{into}_off"))
    return (
        keyed.join(found, on="_row", how="left", maintain_order="left")
        .drop("_row")
        .with_columns(pl.col(f"{into}_off").fill_null(False))
    )


def key_text(prefix: str = "") -> pl.Expr:
    """What two values are compared by: the canonical text, or for identities ``id:<n>`` (the same process only)."""
    identity = pl.when(pl.col(f"{prefix}identity").is_not_null()).then(
        pl.concat_str(pl.lit("id:"), pl.col(f"{prefix}identity").cast(pl.String))
    )
    return pl.coalesce(pl.col(f"{prefix}value").cast(pl.String), identity)
