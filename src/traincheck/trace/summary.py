"""What is in a trace, in numbers: the facts that ``traincheck trace show`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import polars as pl

from traincheck.trace.manifest import Fault, Lack, ProcessInfo
from traincheck.trace.trace import Trace

SCHEMA: Final = 1


@dataclass(frozen=True)
class ProcessSummary:
    """One process: who it was, how it ended, what it recorded. Times are realtime ns."""

    index: int
    name: str
    pid: int | None
    rank: int | None
    mesh: dict[str, int]
    end: str | None
    exit: int | None
    started_ns: int | None
    ended_ns: int | None
    threads: int
    records: int
    dropped: int
    calls: int
    open_calls: int
    captures: int
    states: int
    steps: int
    last_step: int
    faults: list[Fault] = field(default_factory=list)


@dataclass(frozen=True)
class FunctionCount:
    """How often a function was called over all processes, and from which to which step."""

    function: str
    calls: int
    raised: int
    open: int
    first_step: int
    last_step: int


@dataclass(frozen=True)
class StepCount:
    """What one step holds, over all processes. ``seconds`` is the longest time between its first and last call."""

    step: int
    stages: list[str]
    processes: int
    calls: int
    captures: int
    states: int
    seconds: float | None


@dataclass(frozen=True)
class StateCoverage:
    """Which state was looked at, and when: one row per attribute of a role and kind of observation."""

    role: str | None
    owner: str | None
    attribute: str | None
    reason: str | None
    moment: str | None
    variables: int
    observations: int
    records: int
    processes: int
    steps: str
    """Steps as ranges: ``1-10, 20``."""


@dataclass(frozen=True)
class Gap:
    """Where recording stopped for want of space: the step, and how many records were lost until then."""

    process: int
    step: int
    lost: int


@dataclass(frozen=True)
class Summary:
    """A trace in numbers. ``functions`` by number of calls, ``steps`` by number, ``states`` by role and attribute."""

    path: str | None
    source: str
    traincheck: str | None
    command: list[str]
    cwd: str | None
    host: str | None
    started_ns: int | None
    ended_ns: int | None
    exit_code: int | None
    plan: dict[str, Any]
    plan_hash: str | None
    calls: int
    captures: int
    states: int
    marks: int
    variables: int
    stages: dict[str, int]
    """Stage -> number of calls in it."""
    processes: list[ProcessSummary]
    functions: list[FunctionCount]
    steps: list[StepCount]
    coverage: list[StateCoverage]
    gaps: list[Gap]
    lacks: list[Lack]

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"schema": SCHEMA, **asdict(self)}


def ranges(steps: Iterable[int]) -> str:
    """``[1, 2, 3, 7]`` as ``1-3, 7``."""
    parts: list[list[int]] = []
    for step in sorted(set(steps)):
        if parts and step == parts[-1][1] + 1:
            parts[-1][1] = step
        else:
            parts.append([step, step])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def summarize(trace: Trace) -> Summary:
    """The summary of a trace."""
    manifest = trace.manifest
    return Summary(
        path=None if trace.path is None else str(trace.path),
        source=trace.source,
        traincheck=manifest.traincheck if manifest else None,
        command=list(manifest.command) if manifest else [],
        cwd=manifest.cwd if manifest else None,
        host=manifest.host if manifest else None,
        started_ns=manifest.started_ns if manifest else None,
        ended_ns=manifest.ended_ns if manifest else None,
        exit_code=manifest.exit_code if manifest else None,
        plan=dict(manifest.plan) if manifest else {},
        plan_hash=manifest.plan_hash if manifest else None,
        calls=len(trace.calls),
        captures=len(trace.captures),
        states=len(trace.states),
        marks=len(trace.marks),
        variables=trace.variables.select("variable", "owner", "role").unique().height,
        stages=dict(_rows(trace.calls.group_by(pl.col("stage").cast(pl.String)).len().drop_nulls().sort("stage"))),
        processes=_processes(trace),
        functions=_functions(trace),
        steps=_steps(trace),
        coverage=_coverage(trace),
        gaps=[
            Gap(process, step, max(lost, 0))
            for process, step, lost in trace.marks.filter(pl.col("kind") == "gap")
            .select("process", "step", "value")
            .rows()
        ],
        lacks=list(trace.lacks),
    )


def _rows(frame: pl.DataFrame) -> Sequence[tuple[Any, ...]]:
    return frame.rows()


def _processes(trace: Trace) -> list[ProcessSummary]:
    calls = {
        row["process"]: row
        for row in trace.calls.group_by("process")
        .agg(pl.len(), open=(pl.col("outcome") == "open").sum(), threads=pl.col("thread").n_unique())
        .to_dicts()
    }
    captures = dict(_rows(trace.captures.group_by("process").len()))
    states = dict(_rows(trace.states.group_by("process").len()))
    steps: dict[int, set[int]] = {}
    places = [frame.select("process", "step") for frame in (trace.calls, trace.states, trace.marks)]
    for process, step in _rows(pl.concat(places).unique().drop_nulls()):
        steps.setdefault(process, set()).add(step)
    return [_process(info, calls, captures, states, steps.get(info.index, set())) for info in trace.processes]


def _process(
    info: ProcessInfo,
    calls: dict[int, dict[str, Any]],
    captures: dict[int, int],
    states: dict[int, int],
    steps: set[int],
) -> ProcessSummary:
    called = calls.get(info.index, {"len": 0, "open": 0, "threads": 0})
    return ProcessSummary(
        index=info.index,
        name=info.name,
        pid=info.pid,
        rank=info.rank,
        mesh=dict(info.mesh),
        end=info.end,
        exit=info.exit,
        started_ns=info.started_ns,
        ended_ns=info.ended_ns,
        threads=called["threads"],
        records=info.records,
        dropped=info.dropped,
        calls=called["len"],
        open_calls=called["open"],
        captures=captures.get(info.index, 0),
        states=states.get(info.index, 0),
        steps=len(steps - {0}),
        last_step=max(steps, default=0),
        faults=list(info.faults),
    )


def _functions(trace: Trace) -> list[FunctionCount]:
    counted = (
        trace.calls.drop_nulls("function")
        .group_by(pl.col("function").cast(pl.String))
        .agg(
            calls=pl.len(),
            raised=(pl.col("outcome") == "raised").sum(),
            open=(pl.col("outcome") == "open").sum(),
            first_step=pl.col("step").min(),
            last_step=pl.col("step").max(),
        )
        .sort(["calls", "function"], descending=[True, False])
    )
    return [FunctionCount(*row) for row in _rows(counted)]


def _steps(trace: Trace) -> list[StepCount]:
    spans = (
        trace.calls.group_by("process", "step")
        .agg(
            pl.len(), ns=pl.max_horizontal(pl.col("end_ns").max(), pl.col("begin_ns").max()) - pl.col("begin_ns").min()
        )
        .group_by("step")
        .agg(calls=pl.col("len").sum(), ns=pl.col("ns").max())
    )
    places = [
        frame.select("process", "step", pl.col("stage").cast(pl.String))
        for frame in (trace.calls, trace.states, trace.marks)
    ]
    all_steps = (
        pl.concat(places)
        .drop_nulls("step")
        .group_by("step")
        .agg(stages=pl.col("stage").drop_nulls().unique().sort(), processes=pl.col("process").n_unique())
    )
    joined = (
        all_steps.join(spans, on="step", how="left")
        .join(trace.captures.group_by("step").agg(captures=pl.len()), on="step", how="left")
        .join(trace.states.group_by("step").agg(states=pl.len()), on="step", how="left")
        .sort("step")
    )
    return [
        StepCount(
            step=row["step"],
            stages=row["stages"],
            processes=row["processes"],
            calls=row["calls"] or 0,
            captures=row["captures"] or 0,
            states=row["states"] or 0,
            seconds=None if row["ns"] is None else row["ns"] / 1e9,
        )
        for row in joined.to_dicts()
    ]


def _coverage(trace: Trace) -> list[StateCoverage]:
    words = ["role", "owner", "attribute", "reason", "moment"]
    counted = (
        trace.states.group_by([pl.col(word).cast(pl.String) for word in words])
        .agg(
            variables=pl.col("variable").n_unique(),
            observations=pl.struct("process", "observation").n_unique(),
            records=pl.len(),
            processes=pl.col("process").n_unique(),
            steps=pl.col("step").unique(),
        )
        .sort(words)
    )
    found: list[StateCoverage] = []
    for *facts, steps in _rows(counted):
        found.append(StateCoverage(*facts, steps=ranges(steps)))  # type: ignore[misc]  # 9 facts, by position
    return found
