"""Before agents: does TrainCheck, as it is, preserve this case's training and see all of it? No overhead benchmark."""

from __future__ import annotations

from pathlib import Path

from traincheck.pilot.cases import Scenario, Tolerance
from traincheck.pilot.grading.comparison import compare
from traincheck.pilot.grading.qualification import Preflight
from traincheck.pilot.grading.replaying import Setting, replay
from traincheck.pilot.sources import SourceMap


def preflight(setting: Setting, source: SourceMap, scenario: Scenario, folder: Path, prefix: str) -> Preflight:
    """Run ``source`` plain and under ``traincheck collect`` (full), and hold observed state and trace to account.

    Raises TraincheckError, OSError.
    """
    from traincheck.overhead.audit import audit

    trace = folder / "trace"
    plain = replay(setting, source, scenario, folder / "plain", f"{prefix}.preflight.plain")
    watched = replay(
        setting, source, scenario, folder / "watched", f"{prefix}.preflight.watched",
        prefix=(setting.python, "-m", "traincheck", "collect", "--force", "-o", str(trace.resolve()), "--"),
    )  # fmt: skip
    compared = compare(
        watched.records, plain.records, name="the plain run", ranks=scenario.ranks, steps=scenario.steps,
        tolerance=Tolerance(),
    )  # fmt: skip
    faults: tuple[str, ...] = ("there is no trace",)
    described = {"processes": [], "calls": 0, "records": 0}
    if (trace / "processes").is_dir():
        described = audit(trace)
        faults = tuple(described["faults"])  # type: ignore[arg-type]
    wrong = [*(str(one) for one in compared.differences[:1]), *compared.missing[:1], *watched.records.faults[:1]]
    processes = described["processes"]
    return Preflight(
        scenario=scenario.name,
        records_equal=compared.matches and not watched.records.faults,
        records=sum(len(process.steps) for process in watched.records.ranks.values()),
        difference="; ".join(wrong),
        trace_faults=faults,
        trace_processes=len(processes) if isinstance(processes, list) else 0,
        trace_calls=int(str(described["calls"])),
        trace_records=int(str(described["records"])),
    )
