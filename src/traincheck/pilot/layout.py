"""Where a pilot's results lie: ``traincheck pilot run -o DIR``.

DIR/plan.json                    the frozen plan
DIR/deviations.jsonl             what was done otherwise than planned, and why (a ledger)
DIR/store/                       objects and source maps (``sources.Objects``)
DIR/device.jsonl                 the device service's ledger
DIR/device/<request>/            output of each job
DIR/heads.json                   last hash of every ledger that is closed
DIR/trials/<id>/ledger.jsonl     a trial's ledger
DIR/trials/<id>/trial.eval       Inspect's log
DIR/grading/device.jsonl         device time of grading
DIR/grading/<case>/<source>/<scenario>/attempt-<n>/   one replay: verdict.json, output
DIR/grading/<case>.json          verdicts of all sources, first valid submissions
DIR/qualification/device.jsonl   device time of qualification, when it was done for this pilot
DIR/annotations/<annotator>.json
DIR/report/
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Paths of one pilot."""

    root: Path

    @property
    def plan(self) -> Path:
        """The frozen plan."""
        return self.root / "plan.json"

    @property
    def deviations(self) -> Path:
        """What was done otherwise than planned."""
        return self.root / "deviations.jsonl"

    @property
    def store(self) -> Path:
        """Objects and source maps."""
        return self.root / "store"

    @property
    def device(self) -> Path:
        """The device service's ledger."""
        return self.root / "device.jsonl"

    @property
    def jobs(self) -> Path:
        """Output of device jobs."""
        return self.root / "device"

    @property
    def heads(self) -> Path:
        """Last hashes of closed ledgers."""
        return self.root / "heads.json"

    @property
    def trials(self) -> Path:
        """All trials."""
        return self.root / "trials"

    def trial(self, name: str) -> Path:
        """One trial's folder."""
        return self.trials / name

    def ledger(self, name: str) -> Path:
        """One trial's ledger."""
        return self.trial(name) / "ledger.jsonl"

    @property
    def grading(self) -> Path:
        """Everything of grading."""
        return self.root / "grading"

    @property
    def grading_device(self) -> Path:
        """Device time of grading."""
        return self.grading / "device.jsonl"

    def grades(self, case: str) -> Path:
        """Verdicts of one case."""
        return self.grading / f"{case}.json"

    @property
    def qualification_device(self) -> Path:
        """Device time of qualification."""
        return self.root / "qualification" / "device.jsonl"

    @property
    def annotations(self) -> Path:
        """Milestones, by annotator."""
        return self.root / "annotations"

    @property
    def report(self) -> Path:
        """Tables and pages."""
        return self.root / "report"
