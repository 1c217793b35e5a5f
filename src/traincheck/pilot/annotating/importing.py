"""Taking in an annotator's answers: every field checked, every quote looked for, clocks and tokens joined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.pilot.annotating.milestones import Answer, Answers, Milestone
from traincheck.pilot.annotating.packets import Packet, Pilot
from traincheck.pilot.annotating.points import Points
from traincheck.pilot.annotating.records import Annotation, Reached, TrialAnnotation
from traincheck.pilot.annotating.transcripts import Shown, first_device_request_ns
from traincheck.pilot.layout import Layout
from traincheck.strictjson import dumps

_MOST = 8
"""Faults that a refusal names."""


def read_answers(path: Path) -> tuple[Answers, str]:
    """An annotator's file and its SHA-256. Raises TraincheckError naming the fields that are wrong, OSError."""
    content = path.read_bytes()
    try:
        answers = Answers.model_validate(json.loads(content))
    except ValidationError as error:
        told = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise TraincheckError(f"{path}: {_some(told)}", "see the README.md beside the packets") from error
    except ValueError as error:
        raise TraincheckError(f"{path} is not JSON: {error}", "see the README.md beside the packets") from error
    return answers, hashlib.sha256(content).hexdigest()


def joined(pilot: Pilot, answers: Answers, sha: str, made: Sequence[Packet]) -> Annotation:
    """Answers with clocks and token bounds. ``made`` are the annotator's packets.

    Raises TraincheckError naming what is wrong: another plan, packets missing or unknown, an event that is not there,
    a quote that is not in it, a first milestone after the first device request.
    """
    if answers.plan != pilot.plan.hash:
        raise TraincheckError(
            f"the answers are of plan {answers.plan[:12]}, the pilot is of plan {pilot.plan.hash[:12]}",
            "export the packets of this pilot",
        )
    faults = [f"{name}: there is no such packet" for name in answers.packets if name not in {p.name for p in made}]
    trials = {}
    for packet in made:
        given = answers.packets.get(packet.name)
        if given is None:
            faults.append(f"{packet.name}: not answered")
            continue
        first_ns = first_device_request_ns(pilot.device, packet.trial)
        points = Points(pilot.ledgers[packet.trial], pilot.device, packet.trial)
        found: dict[Milestone, Reached | None] = {}
        for name, answer in given.milestones.items():
            if not answer.reached:
                found[name] = None
                continue
            shown = _event(packet, answer)
            fault = _fault(name, answer, shown, first_ns)
            if fault is not None or shown is None:
                faults.append(f"{packet.name} {name}: {fault}")
            elif not faults:  # nothing is kept of a refused file
                found[name] = _reached(answer, shown, first_ns, points)
        if given.guess is not None and given.guess not in pilot.plan.draft.arms:
            faults.append(f"{packet.name}: the guess {given.guess!r} is none of {', '.join(pilot.plan.draft.arms)}")
        trials[packet.trial] = TrialAnnotation(milestones=found, guess=given.guess)
    if faults:
        raise TraincheckError(f"the answers of {answers.annotator}: {_some(faults)}", "correct them and import again")
    return Annotation(plan=pilot.plan.hash, annotator=answers.annotator, answers=sha, trials=trials)


def keep(layout: Layout, annotation: Annotation) -> Path:
    """Write an annotation; gives its file. An earlier one of other answers is kept beside it. Raises OSError."""
    path = layout.annotations / f"{annotation.annotator}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        earlier = Annotation.model_validate_json(path.read_bytes())
        if earlier.answers != annotation.answers:
            old = layout.annotations / "replaced" / f"{annotation.annotator}-{earlier.answers[:12]}.json"
            old.parent.mkdir(exist_ok=True)
            path.replace(old)
    write_whole({path: dumps(annotation.model_dump(mode="json", by_alias=True))})
    return path


def keep_rejected(layout: Layout, plan: str, path: Path, why: str) -> None:
    """Keep a refused file and the reason, by its hash. Raises OSError."""
    content = path.read_bytes()
    folder = layout.annotations / "rejected"
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(content).hexdigest()[:16]
    (folder / f"{name}.answers").write_bytes(content)
    write_whole({folder / f"{name}.json": dumps({"plan": plan, "file": path.name, "reason": why})})


def load(layout: Layout) -> dict[str, Annotation]:
    """All annotations by annotator, sorted. Raises TraincheckError for a file that is none, OSError."""
    found = {}
    for path in sorted(layout.annotations.glob("*.json")):
        try:
            annotation = Annotation.model_validate_json(path.read_bytes())
        except ValueError as error:
            raise TraincheckError(f"{path} is no annotation: {error}", "traincheck pilot annotate --import") from error
        found[annotation.annotator] = annotation
    return found


def _event(packet: Packet, answer: Answer) -> Shown | None:
    return next((one for one in packet.events if one.number == answer.event), None)


def _fault(name: Milestone, answer: Answer, shown: Shown | None, first_ns: int | None) -> str | None:
    if shown is None:
        return f"there is no event {answer.event}"
    if shown.kind in ("operator", "device_request"):
        return f"event {shown.number} is not the agent's own, and no result that it saw"
    if _plain(answer.quote or "") not in _plain(shown.text):
        return f"the quote is not in event {shown.number}"
    if name == "M1" and first_ns is not None and shown.at_ns >= first_ns:
        return f"event {shown.number} comes after the first device request"
    return None


def _reached(answer: Answer, shown: Shown, first_ns: int | None, points: Points) -> Reached:
    assert shown.entry is not None  # what is of another ledger was refused above
    return Reached(
        event=shown.number,
        quote=answer.quote or "",
        clocks=points.at(shown.entry).clocks,
        tokens=points.bounds(shown.entry, answer=shown.kind == "answer"),
        before_first_device_request=first_ns is None or shown.at_ns < first_ns,
    )


def _plain(text: str) -> str:
    """Line breaks and runs of spaces do not count: people copy from a rendered page."""
    return " ".join(text.split())


def _some(faults: Sequence[str]) -> str:
    more = len(faults) - _MOST
    return "; ".join(faults[:_MOST]) + (f"; and {more} more" if more > 0 else "")
