"""``traincheck pilot annotate``: blinded transcripts go out, checked milestones come back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from traincheck.cli import _output
from traincheck.cli._help import examples
from traincheck.cli._options import Force, Json

if TYPE_CHECKING:
    from traincheck.pilot.layout import Layout


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        name="annotate",
        epilog=examples(
            "traincheck pilot annotate out/tiny --export -o packets-ann --annotator ann",
            "traincheck pilot annotate out/tiny --import packets-ann/answers.json",
            "traincheck pilot annotate out/tiny",
        ),
    )(annotate)


def annotate(
    pilot: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a pilot.", show_default=False)],
    export: Annotated[bool, typer.Option("--export", help="Write blinded packets for an annotator.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PACKETS", help="Folder for them.", show_default=False)
    ] = None,
    annotator: Annotated[
        str | None,
        typer.Option("--annotator", metavar="NAME", help="Who annotates: a short name.", show_default=False),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option("--import", metavar="FILE", help="Answers to check and take in.", show_default=False),
    ] = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Export transcripts for annotators who do not know the arm, take in their answers, or show how far they agree.

    Packets have names and an order of their own for each annotator; what shows an arm is taken out.
    Answers are refused as a whole when a quote is not in its event; a refused file is kept, with the reason.
    """
    from traincheck.errors import TraincheckError
    from traincheck.pilot.annotating.agreement import agreement
    from traincheck.pilot.annotating.importing import load
    from traincheck.pilot.layout import Layout

    layout = Layout(pilot)
    if export and answers is not None:
        raise TraincheckError("expected --export or --import, found both", "one of them")
    if export:
        if output is None or annotator is None:
            raise TraincheckError("--export needs a folder and a name", "-o PACKETS --annotator NAME")
        told = _export(layout, output, annotator, force)
    elif answers is not None:
        told = _import(layout, answers)
    else:
        told = agreement(load(layout))
    if as_json:
        _output.print_json(told)
    elif export:
        _output.say(f"packets: {told['packets']} in {output}, {told['redactions']} places taken out")
    elif answers is not None:
        _output.say(f"annotation: {told['file']}, {told['trials']} trials, {told['reached']} milestones reached")
    else:
        _show(told)


def _export(layout: Layout, output: Path, annotator: str, force: bool) -> dict[str, Any]:
    import re

    from traincheck.cli._paths import fresh_folder, input_file
    from traincheck.errors import TraincheckError
    from traincheck.files import write_whole
    from traincheck.pilot import planning
    from traincheck.pilot.annotating.packets import Pilot, arm_texts, exported, packets, record_path
    from traincheck.strictjson import dumps

    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", annotator):
        raise TraincheckError(f"{annotator!r} is no short name", "letters a to z, digits, dots and dashes")
    pilot = Pilot(layout, planning.load(input_file(layout.plan, "the plan of a pilot")))
    made = packets(pilot, annotator, arm_texts())
    files, record = exported(pilot, annotator, made)
    fresh_folder(output, force, ("README.md", "answers.json", "p-*.md", "p-*.json"))
    output.mkdir(parents=True, exist_ok=True)
    kept = record_path(layout, annotator)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole({**{output / name: text for name, text in files.items()}, kept: dumps(record)})
    redactions = sum(sum(packet.redactions.values()) for packet in made)
    return {"plan": pilot.plan.hash, "packets": len(made), "redactions": redactions, "record": str(kept)}


def _import(layout: Layout, answers: Path) -> dict[str, Any]:
    from traincheck.cli._paths import input_file
    from traincheck.errors import TraincheckError
    from traincheck.pilot import planning
    from traincheck.pilot.annotating import importing
    from traincheck.pilot.annotating.packets import Pilot, arm_texts, packets

    pilot = Pilot(layout, planning.load(input_file(layout.plan, "the plan of a pilot")))
    input_file(answers, "an annotator's answers")
    try:
        given, sha = importing.read_answers(answers)
        annotation = importing.joined(pilot, given, sha, packets(pilot, given.annotator, arm_texts()))
    except TraincheckError as error:
        importing.keep_rejected(layout, pilot.plan.hash, answers, error.message)
        raise
    path = importing.keep(layout, annotation)
    reached = sum(one is not None for trial in annotation.trials.values() for one in trial.milestones.values())
    return {"plan": pilot.plan.hash, "file": str(path), "trials": len(annotation.trials), "reached": reached}


def _show(held: dict[str, Any]) -> None:
    if held["why_not"]:
        _output.say(f"{len(held['annotators'])} annotators: {held['why_not']}")
        return
    _output.table(
        ("of", "milestone", "level", ">Krippendorff's alpha"),
        [
            (row["what"], row["of"], row["level"], row["why_not"] if row["alpha"] is None else row["alpha"])
            for row in held["alpha"]
        ],
    )
    for row in held["disagreements"]:
        said = "; ".join(f"{name}: {text}" for name, text in row["said"].items())
        _output.say(f"{row['trial']} {row['milestone']}: {said}")
