"""A report as sections of text and tables, the same for Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from traincheck.pilot.planning import power
from traincheck.pilot.report import tables
from traincheck.pilot.report.tables import Table

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Section:
    """A heading, words, tables, a list."""

    title: str
    words: Sequence[str] = ()
    tables: Sequence[Table] = ()
    lines: Sequence[str] = ()
    plot: str | None = None
    """Name of a plot, for the page."""


def sections(report: Report) -> list[Section]:
    """All sections in their order."""
    return [
        Section("What cannot be concluded", lines=report["cannot_conclude"]),
        Section(
            "Times, tokens and device time of each trial",
            (
                "Clocks start at the first model request that carries the task. Adjusted: without waits for devices "
                "and suspensions. M1 to M5 are adjusted seconds; what is in brackets does not count.",
            ),
            tuple(table for case in report["cases"] for table in (tables.trials(report, case["case"]),)),
        ),
        Section(
            "Milestones",
            (
                "M1 hypothesis before the first device request, M2 diagnosis supported by source, M3 diagnosis "
                "supported by a run, M4 wrong explanation rejected by a run, M5 true origin identified. "
                "Tokens are bounds.",
                tables.blinding(report),
            ),
            (tables.milestones(report), tables.alphas(report), tables.disagreements(report)),
        ),
        Section(
            "Comparisons of arms",
            (
                "Ratios are of the arm's figure over the reference's within blocks, through the first valid "
                "submission; below 1 the arm needed less. Intention to treat: every trial that counts, "
                "whether it used the tool or not. The restricted mean of adjusted time holds censored trials too.",
            ),
            (tables.comparisons(report), tables.restricted(report)),
        ),
        Section("Repairs over time", (), (tables.survival(report),), plot="survival"),
        Section("Power", (*power.sentences(report["detectable"]), tables.observed_spread(report))),
        Section("Use of TrainCheck", (), (tables.activation(report),)),
        Section("Validation that each agent chose", (), (tables.validation(report),)),
        Section("Changed files of the final source", (), (tables.changed(report),)),
        Section("Transport and recovery", (), (tables.transport(report),)),
        Section(
            "Device time by ledger",
            ("Seconds, devices x worker lifetime. The three ledgers are never added up.",),
            (tables.ledgers(report), tables.per_repair(report), tables.grading_per_repair(report)),
        ),
        Section("False alarms on bug-free tasks", (), (tables.false_alarms(report),)),
        Section("Knowledge of the public issue", (), (tables.contamination(report),)),
        Section("Qualification before any trial", (), (tables.qualification(report), tables.failed_checks(report))),
        Section("Grading", (), (tables.grading(report),)),
        Section(
            "Trials that do not count, and what was kept",
            (),
            (tables.invalid(report), tables.remarks(report), tables.kept(report)),
        ),
        Section("Deviations from the plan", (), (tables.deviations(report),)),
        Section("Provenance", (), (tables.provenance(report),)),
    ]
