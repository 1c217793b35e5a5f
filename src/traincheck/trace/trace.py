"""``Trace``: a run's events as frames, with what is known of the run and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from traincheck.trace import schema
from traincheck.trace.manifest import Lack, Manifest, ProcessInfo

if TYPE_CHECKING:
    from traincheck.trace.summary import Summary

_ORDER: Final[Mapping[str, list[str]]] = {
    "calls": ["process", "call"],
    "captures": ["process", "seq"],
    "states": ["process", "seq"],
    "marks": ["process", "seq"],
    "variables": [],
    "functions": [],
}


@dataclass
class Trace:
    """The events of a run. ``schema.py`` says what each column of the frames means.

    ``lacks`` lists everything the trace is missing; an empty list means that all that was recorded is here.
    """

    path: Path | None
    manifest: Manifest | None
    processes: list[ProcessInfo]
    calls: pl.DataFrame
    captures: pl.DataFrame
    states: pl.DataFrame
    marks: pl.DataFrame
    variables: pl.DataFrame
    functions: pl.DataFrame
    lacks: list[Lack] = field(default_factory=list)
    source: str = "frames"
    """Where the frames came from: segments, compact, traincheck-0.x, frames."""

    @classmethod
    def from_frames(
        cls,
        *,
        calls: pl.DataFrame | None = None,
        captures: pl.DataFrame | None = None,
        states: pl.DataFrame | None = None,
        marks: pl.DataFrame | None = None,
        variables: pl.DataFrame | None = None,
        functions: pl.DataFrame | None = None,
        processes: Sequence[ProcessInfo] | None = None,
        manifest: Manifest | None = None,
        lacks: Sequence[Lack] = (),
        path: Path | None = None,
        source: str = "frames",
    ) -> Trace:
        """A trace of given frames. Missing frames are empty, missing columns null, rows are put in order.

        Without ``processes`` they are taken from the frames' process and rank columns.
        """
        given = {
            "calls": calls,
            "captures": captures,
            "states": states,
            "marks": marks,
            "variables": variables,
            "functions": functions,
        }
        frames = {name: _frame(name, data) for name, data in given.items()}
        return cls(
            path=path,
            manifest=manifest,
            processes=list(processes) if processes is not None else _processes(frames),
            lacks=list(lacks),
            source=source,
            **frames,
        )

    @classmethod
    def of_parts(
        cls,
        parts: Mapping[str, Sequence[pl.DataFrame]],
        *,
        processes: list[ProcessInfo],
        manifest: Manifest | None = None,
        lacks: Sequence[Lack] = (),
        path: Path | None = None,
        source: str = "frames",
    ) -> Trace:
        """A trace of the frames of each process, in their order. For readers: the frames are taken as they are."""
        whole = {
            name: found[0] if len(found) == 1 else pl.concat(found) if found else schema.empty(name)
            for name, found in parts.items()
        }
        if len(parts["functions"]) > 1:
            whole["functions"] = whole["functions"].unique("function", keep="first", maintain_order=True)
        return cls(
            path=path,
            manifest=manifest,
            processes=processes,
            calls=whole["calls"],
            captures=whole["captures"],
            states=whole["states"],
            marks=whole["marks"],
            variables=whole["variables"],
            functions=whole["functions"],
            lacks=list(lacks),
            source=source,
        )

    @property
    def frames(self) -> dict[str, pl.DataFrame]:
        """All frames by name."""
        return {name: getattr(self, name) for name in schema.FRAMES}

    @property
    def ranks(self) -> list[int]:
        """Global ranks of the processes that have one, sorted."""
        return sorted({p.rank for p in self.processes if p.rank is not None})

    @property
    def steps(self) -> list[int]:
        """Numbers of the training steps that were begun, sorted; without the time before the first."""
        begun: list[int] = self.marks.filter(pl.col("kind") == "step_begin")["value"].unique().sort().to_list()
        if begun:
            return begun
        seen = pl.concat([self.calls["step"], self.states["step"]]).drop_nulls().unique().sort().to_list()
        return [step for step in seen if step > 0]

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.lacks

    def summary(self) -> Summary:
        """Counts, coverage and gaps: what ``traincheck trace show`` prints."""
        from traincheck.trace.summary import summarize

        return summarize(self)


def _frame(name: str, data: pl.DataFrame | None) -> pl.DataFrame:
    if data is None:
        return schema.empty(name)
    frame = schema.conform(name, data)
    order = _ORDER[name]
    return frame.sort(order, maintain_order=True) if order else frame


def _processes(frames: Mapping[str, pl.DataFrame]) -> list[ProcessInfo]:
    seen: dict[int, int | None] = {}
    for name in ("calls", "captures", "states", "marks", "variables"):
        for process, rank in frames[name].select("process", "rank").unique().rows():
            if process is not None and seen.get(process) is None:
                seen[process] = rank
    last = max(seen, default=-1)
    return [ProcessInfo(index=n, name=f"process-{n}", rank=seen.get(n)) for n in range(last + 1)]
