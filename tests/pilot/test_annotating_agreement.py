"""Agreement: Krippendorff's alpha against figures computed by hand, and every disagreement by name."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.pilot.annotators import filled
from tests.pilot.synthetic_pilot import Synthetic
from traincheck.cli import app
from traincheck.pilot.annotating import importing
from traincheck.pilot.annotating.agreement import agreement, alpha, blinding, consensus
from traincheck.pilot.annotating.packets import Pilot, packets

NONE = None
KRIPPENDORFF = [
    [NONE, NONE, NONE, NONE, NONE, 3, 4, 1, 2, 1, 1, 3, 3, NONE, 3],
    [1, NONE, 2, 1, 3, 3, 4, 3, NONE, NONE, NONE, NONE, NONE, NONE, NONE],
    [NONE, NONE, 2, 1, 3, 4, 4, NONE, 2, 1, 1, 3, 3, NONE, 4],
]
"""Krippendorff's own example with missing codes."""


@pytest.mark.parametrize(("level", "value"), [("nominal", 0.691), ("interval", 0.811), ("ordinal", 0.807)])
def test_the_published_example(level, value):
    found, why = alpha(KRIPPENDORFF, level)
    assert why is None
    assert found == pytest.approx(value, abs=0.001)


def test_two_annotators_by_hand():
    # Ten units, one disagreement. Observed: 2 of 20 values are in unequal pairs, 0.1. Expected: 9 ones and 11 zeros of
    # 20 values, 2 * 9 * 11 / (20 * 19) = 0.521053. Alpha = 1 - 0.1 / 0.521053.
    one = [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    other = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert alpha([one, other], "nominal")[0] == pytest.approx(1 - 0.1 / (2 * 9 * 11 / (20 * 19)))


def test_it_is_undefined_without_overlap_and_without_variety():
    assert alpha([[1, None], [None, 1]], "nominal") == (None, "no two annotators coded the same")
    assert alpha([[1, 1], [1, 1]], "nominal") == (None, "all codes are the same value")
    assert alpha([], "nominal")[0] is None


@pytest.fixture
def annotated(tmp_path):
    """Two annotators, who differ in one milestone of one trial."""
    made = Synthetic(tmp_path, arms=["control", "optional"], trials=2)
    for trial in made.plan.order:
        made.run(trial)
    pilot = Pilot(made.write(), made.plan)
    odd = made.plan.order[0].id
    guesses = {trial.id: "optional" for trial in made.plan.order}
    for name, changed in (("ann", {}), ("bob", {odd: {"M2": {"reached": False}}})):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(filled(pilot, name, changed, guesses)))
        run = CliRunner().invoke(app, ["pilot", "annotate", str(pilot.layout.root), "--import", str(path)])
        assert run.exit_code == 0, run.output
    return pilot, odd


def test_disagreements_are_listed_and_alpha_is_that_of_the_codes(annotated):
    pilot, odd = annotated
    held = agreement(importing.load(pilot.layout))
    assert held["annotators"] == ["ann", "bob"]
    event = next(
        event.number for packet in packets(pilot, "ann", ()) if packet.trial == odd for event in packet.events
        if "divides by the number of batches" in event.text
    )  # fmt: skip
    assert held["disagreements"] == [
        {"trial": odd, "milestone": "M2", "said": {"ann": f"event {event}", "bob": "not reached"}}
    ]
    by_name = {(row["what"], row["of"]): row for row in held["alpha"]}
    # 4 trials x 5 milestones: 16 and 15 reached of 20, one unit unequal. Expected: 31 ones, 9 zeros of 40.
    assert by_name["reached", "all"]["alpha"] == pytest.approx(1 - (2 / 40) / (2 * 31 * 9 / (40 * 39)), abs=1e-6)
    assert by_name["reached", "M4"]["why_not"] == "all codes are the same value"
    assert by_name["adjusted_time", "all"]["alpha"] == 1.0
    assert by_name["event", "all"]["level"] == "ordinal"
    shown = CliRunner().invoke(app, ["pilot", "annotate", str(pilot.layout.root)])
    assert f"{odd} M2: ann: event {event}; bob: not reached" in shown.output


def test_consensus_says_reached_only_when_all_do(annotated):
    pilot, odd = annotated
    held = importing.load(pilot.layout)
    assert consensus(held, odd, "M2") == {"state": "disputed"}
    assert consensus(held, odd, "M4") == {"state": "not reached"}
    assert consensus({}, odd, "M2") == {"state": "not annotated"}
    found = consensus(held, odd, "M1")
    assert (found["state"], found["adjusted_s"], found["tokens"]) == ("reached", 10.0, [0, 160])
    assert found["before_first_device_request"]


def test_guesses_are_counted_against_chance(annotated):
    pilot, _ = annotated
    arms = {trial.id: trial.arm for trial in pilot.plan.order}
    assert blinding(importing.load(pilot.layout), arms) == {"guesses": 8, "right": 4, "by_chance": 0.5}


def test_one_annotator_has_no_agreement(annotated):
    pilot, _ = annotated
    held = importing.load(pilot.layout)
    alone = agreement({"ann": held["ann"]})
    assert alone["why_not"] == "agreement needs two annotators"
    assert alone["alpha"] == []
