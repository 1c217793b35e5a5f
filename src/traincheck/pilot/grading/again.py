"""A published source run again: any source map of a pilot's store, in any scenario of its case.

Nothing in the pilot's folder changes: verdicts, ledger and what the replays left are in a folder of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from traincheck.errors import TraincheckError
from traincheck.pilot import events, planning
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading.attempts import CaseJudge
from traincheck.pilot.grading.replaying import Setting
from traincheck.pilot.grading.running import LocalRunner, asked
from traincheck.pilot.layout import Layout
from traincheck.pilot.ledger import read
from traincheck.pilot.plan import Plan
from traincheck.pilot.sources import Objects
from traincheck.pilot.verdicts import CaseGrade, Replay


@dataclass(frozen=True)
class Again:
    """Replays of one source; ``before`` is what grading said, by scenario, where the case is graded."""

    case: str
    source: str
    replays: dict[str, Replay]
    before: dict[str, str]


def replay_again(
    root: Path, source: str, out: Path, *, case: str | None = None, scenarios: tuple[str, ...] = (),
    python: str = sys.executable, say: Callable[[str], None] | None = None,
) -> Again:  # fmt: skip
    """Replay ``source`` (a hash, or its beginning) of the pilot in ``root``; what it leaves is in ``out``.

    ``case`` is only needed for a source that no trial of one case alone submitted. Raises TraincheckError when there
    is no such source, case or scenario; SourceError when the stored source was changed.
    """
    layout = Layout(root)
    if not layout.plan.exists():
        raise TraincheckError(f"there is no pilot in {root}: it has no plan.json", "the folder of `pilot run -o DIR`")
    plan = planning.load(layout.plan)
    name = _whole(layout, source)
    folder = _case(layout, plan, name, case)
    known = [one.name for one in folder.case.scenarios]
    for one in scenarios:
        if one not in known:
            raise TraincheckError(f"case {folder.case.name} has no scenario {one!r}", f"it has {', '.join(known)}")
    objects = Objects(layout.store)
    found = {}
    with LocalRunner(out / "device.jsonl", max(folder.case.devices, plan.draft.devices.count)) as runner:
        # Objects of oracles go to the folder of this replay: the pilot's store stays as it was published.
        own = Objects(out / "store")
        own_source = objects.get_map(name)
        for entry in own_source.entries.values():
            if entry.sha256 is not None:
                own.put(objects.get(entry.sha256))
        judge = CaseJudge(
            Setting(folder, own, runner, "grading", python), out / "oracles", plan.draft.grading.attempts,
            folder.case.name, used=asked(out / "device.jsonl"), say=say,
        )  # fmt: skip
        for one in scenarios or known:
            found[one] = judge.judged(own_source, folder.case.scenario(one), out / name / one)
        judge.drop_contents()
    return Again(folder.case.name, name, found, _before(layout, folder.case.name, name))


def _whole(layout: Layout, source: str) -> str:
    names = [path.stem for path in sorted((layout.store / "maps").glob("*.json")) if path.stem.startswith(source)]
    if len(names) == 1:
        return names[0]
    if not names:
        raise TraincheckError(f"{layout.store} has no source {source}", "a hash of grading/<case>.json, or its start")
    raise TraincheckError(f"{len(names)} sources begin with {source}", "give more of the hash")


def _case(layout: Layout, plan: Plan, source: str, wanted: str | None) -> CaseFolder:
    folders = planning.case_folders(plan, layout.root)
    if wanted is None:
        cases = sorted({trial.case for trial in plan.order if source in _sources(layout.ledger(trial.id))})
        if len(cases) != 1:
            told = f"belongs to {', '.join(cases)}" if cases else "was submitted in no trial"
            raise TraincheckError(f"source {source[:12]} {told}", f"--case with one of {', '.join(folders)}")
        wanted = cases[0]
    if wanted not in folders:
        raise TraincheckError(f"the plan has no case {wanted!r}", f"it has {', '.join(folders)}")
    return folders[wanted]


def _sources(ledger: Path) -> set[str]:
    if not ledger.exists():
        return set()
    found = (events.parsed(entry) for entry in read(ledger))
    return {event.source for event in found if isinstance(event, events.Submitted)}


def _before(layout: Layout, case: str, source: str) -> dict[str, str]:
    path = layout.grades(case)
    if not path.exists():
        return {}
    replays = CaseGrade.model_validate_json(path.read_bytes()).sources.get(source, {})
    return {name: replay.verdict for name, replay in replays.items()}
