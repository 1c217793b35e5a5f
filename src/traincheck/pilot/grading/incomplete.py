"""Does the grader keep its word that incomplete evidence is no pass? A right training with one record taken away."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from traincheck.pilot.cases import Scenario
from traincheck.pilot.grading.comparison import Comparison
from traincheck.pilot.grading.judging import Judgement, judge
from traincheck.pilot.grading.records import Records, load
from traincheck.pilot.grading.running import Done


def verdicts(
    whole: Records, scenario: Scenario, compared: Callable[[Records], list[Comparison]]
) -> dict[str, Judgement]:
    """Verdicts on ``whole`` with each of its records missing in turn, and with nothing missing (``whole``).

    Records are those of processes that trained: that a launcher ended in order is noted too, and proves nothing.
    """
    with tempfile.TemporaryDirectory(prefix="traincheck-incomplete-") as scratch:
        copy = Path(scratch) / "records"
        shutil.copytree(whole.folder, copy, ignore=shutil.ignore_patterns("*.pt"))
        found = {"whole": _verdict(copy, scenario, compared)}
        trained = [header.parent for header in sorted(copy.glob("*/header.json"))]
        for path in [path for folder in trained for path in sorted(folder.glob("*.json"))]:
            away = path.with_suffix(".away")
            path.rename(away)
            found[path.relative_to(copy).as_posix()] = _verdict(copy, scenario, compared)
            away.rename(path)
        return found


def _verdict(folder: Path, scenario: Scenario, compared: Callable[[Records], list[Comparison]]) -> Judgement:
    records = load(folder)
    return judge(Done(0, "exit", 0.0), records, compared(records), scenario.ranks)
