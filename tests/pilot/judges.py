"""A judge of a case, for tests that train it."""

from __future__ import annotations

import sys
from pathlib import Path

from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading.attempts import CaseJudge
from traincheck.pilot.grading.replaying import Setting
from traincheck.pilot.grading.running import LocalRunner
from traincheck.pilot.sources import Objects


def judge_of(case: CaseFolder, folder: Path) -> tuple[CaseFolder, Setting, CaseJudge]:
    runner = LocalRunner(folder / "device.jsonl", case.case.devices)
    setting = Setting(case, Objects(folder / "store"), runner, "qualification", sys.executable)
    return case, setting, CaseJudge(setting, folder / "oracles", 2, case.case.name)
