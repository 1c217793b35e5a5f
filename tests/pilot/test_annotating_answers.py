"""Answers come back: checked against the transcripts, joined with clocks and token bounds."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.pilot.annotators import event_of, filled
from tests.pilot.synthetic_pilot import HYPOTHESIS, ORIGIN, RESULT, Synthetic
from traincheck.cli import app
from traincheck.pilot.annotating import importing
from traincheck.pilot.annotating.packets import Pilot, packets


@pytest.fixture
def pilot(tmp_path):
    """One block of two arms."""
    made = Synthetic(tmp_path, arms=["control", "optional"])
    for trial in made.plan.order:
        made.run(trial, slow=30.0 if trial.arm == "control" else 0.0)
    return Pilot(made.write(), made.plan)


def brought(pilot, answers):
    """``--import`` of answers; the result of the command."""
    path = pilot.layout.root.parent / "answers.json"
    path.write_text(json.dumps(answers))
    return CliRunner().invoke(app, ["pilot", "annotate", str(pilot.layout.root), "--import", str(path)])


def test_milestones_get_clocks_and_bounds_of_tokens(pilot):
    run = brought(pilot, filled(pilot, "ann"))
    assert run.exit_code == 0, run.output
    held = importing.load(pilot.layout)["ann"]
    (fast,) = [trial.id for trial in pilot.plan.order if trial.arm == "optional"]
    found = held.trials[fast].milestones
    assert found["M4"] is None
    one = found["M1"]  # in the first answer: between nothing and it; raw 10 s, before any device
    assert (one.clocks.raw_s, one.clocks.adjusted_s, one.tokens) == (10.0, 10.0, (0, 160))
    assert one.before_first_device_request
    three = found["M3"]  # the tool's result, at 38: raw 28, three seconds waited
    assert (three.clocks.raw_s, three.clocks.queue_adjusted_s, three.clocks.adjusted_s) == (28.0, 25.0, 25.0)
    assert three.tokens == (160, 380)  # between the answer before it and the next one
    assert not three.before_first_device_request
    two = found["M2"]  # in the second answer
    assert (two.clocks.raw_s, two.tokens) == (50.0, (160, 380))
    five = found["M5"]  # at 70: seven seconds suspended
    assert (five.clocks.raw_s, five.clocks.queue_adjusted_s, five.clocks.adjusted_s) == (60.0, 57.0, 50.0)
    assert five.tokens == (380, 710)


def test_times_are_the_trials_own(pilot):
    brought(pilot, filled(pilot, "ann"))
    held = importing.load(pilot.layout)["ann"]
    (slow,) = [trial.id for trial in pilot.plan.order if trial.arm == "control"]
    assert held.trials[slow].milestones["M5"].clocks.adjusted_s == 80.0


def changed(pilot, answer, name="M5", arm="optional"):
    """Answers with one of them changed, and the packet it is in."""
    (trial,) = [trial.id for trial in pilot.plan.order if trial.arm == arm]
    (packet,) = [packet for packet in packets(pilot, "ann", ()) if packet.trial == trial]
    return filled(pilot, "ann", {trial: {name: answer(packet)}}), packet


def said(event, quote):
    """A milestone that is reached."""
    return {"reached": True, "event": event, "quote": quote}


@pytest.mark.parametrize(
    ("name", "answer", "told"),
    [
        ("M5", lambda _: said(2, "words that nobody said"), "the quote is not in event 2"),
        ("M5", lambda _: said(999, ORIGIN), "there is no event 999"),
        ("M5", lambda packet: said(event_of(packet, HYPOTHESIS), ORIGIN), "is not in event"),
        ("M1", lambda packet: said(event_of(packet, RESULT), RESULT), "after the first device request"),
        ("M2", lambda _: said(1, "Prepare the training"), "not the agent's own"),
        ("M2", lambda _: said(4, "python train.py"), "not the agent's own"),
    ],
)
def test_answers_that_the_transcript_does_not_bear_out_are_refused_and_kept(pilot, name, answer, told):
    answers, packet = changed(pilot, answer, name)
    run = brought(pilot, answers)
    assert run.exit_code == 2
    assert f"{packet.name} {name}" in run.output
    assert told in run.output
    assert importing.load(pilot.layout) == {}
    (kept,) = (pilot.layout.annotations / "rejected").glob("*.answers")
    assert json.loads(kept.read_text()) == answers
    assert told in json.loads(kept.with_suffix(".json").read_text())["reason"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"reached": True}, "needs event and quote"),
        ({"reached": False, "event": 3, "quote": "a quote of it"}, "has no event and no quote"),
        ({"reached": None}, "reached"),
        ({"reached": True, "event": 3, "quote": "short"}, "quote"),
    ],
)
def test_answers_of_another_form_are_refused(pilot, answer, told):
    answers, _ = changed(pilot, lambda _: answer)
    run = brought(pilot, answers)
    assert run.exit_code == 2
    assert told in run.output


def test_every_packet_and_every_milestone_has_to_be_answered(pilot):
    answers = filled(pilot, "ann")
    name = next(iter(answers["packets"]))
    del answers["packets"][name]["milestones"]["M3"]
    assert "M3 not answered" in brought(pilot, answers).output
    del answers["packets"][name]
    assert f"{name}: not answered" in brought(pilot, answers).output
    assert importing.load(pilot.layout) == {}


def test_another_annotators_packets_and_another_plan_are_refused(pilot):
    answers = filled(pilot, "ann")
    answers["annotator"] = "bob"
    assert "there is no such packet" in brought(pilot, answers).output
    answers = filled(pilot, "ann")
    answers["plan"] = "0" * 64
    assert "are of plan 000000000000" in brought(pilot, answers).output


def test_a_guess_is_one_of_the_arms(pilot):
    answers = filled(pilot, "ann", guesses={trial.id: "the one with the tool" for trial in pilot.plan.order})
    assert "is none of control, optional" in brought(pilot, answers).output


def test_line_breaks_of_a_quote_do_not_count(pilot):
    answers, _ = changed(
        pilot,
        lambda packet: {"reached": True, "event": event_of(packet, ORIGIN), "quote": ORIGIN.replace(" ", "\n  ", 2)},
    )
    assert brought(pilot, answers).exit_code == 0


def test_the_template_is_refused_until_it_is_filled_in(pilot, tmp_path):
    folder = tmp_path / "packets"
    run = CliRunner().invoke(
        app, ["pilot", "annotate", str(pilot.layout.root), "--export", "-o", str(folder), "--annotator", "ann"]
    )
    assert run.exit_code == 0, run.output
    run = CliRunner().invoke(
        app, ["pilot", "annotate", str(pilot.layout.root), "--import", str(folder / "answers.json")]
    )
    assert run.exit_code == 2
    assert "reached" in run.output


def test_answers_that_are_replaced_are_kept(pilot):
    brought(pilot, filled(pilot, "ann"))
    first = importing.load(pilot.layout)["ann"]
    (trial,) = [trial.id for trial in pilot.plan.order if trial.arm == "optional"]
    brought(pilot, filled(pilot, "ann", {trial: {"M2": {"reached": False}}}))
    assert importing.load(pilot.layout)["ann"].trials[trial].milestones["M2"] is None
    (old,) = (pilot.layout.annotations / "replaced").glob("ann-*.json")
    assert json.loads(old.read_text())["answers"] == first.answers
