"""Blinded packets: opaque names, an order of one's own, nothing that shows the arm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.pilot.synthetic_pilot import Synthetic
from traincheck.cli import app
from traincheck.errors import TraincheckError
from traincheck.pilot import events, guard
from traincheck.pilot.annotating.packets import Pilot, arm_texts, exported, packets
from traincheck.pilot.annotating.redaction import MARK, Redactor, Start, revealing
from traincheck.pilot.annotating.transcripts import said_by_agent
from traincheck.pilot.sources import Objects, capture


@pytest.fixture
def made(tmp_path):
    """Two blocks of two arms; the treated agent names the tool and reads its manual."""
    pilot = Synthetic(tmp_path, arms=["control", "optional"], trials=2)
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        if trial.arm == "optional":
            manual = pilot.text("line of the manual that only one arm has\nshort\n")
            story[7:7] = [
                (20.5, "trial", events.ToolCalled(call="c0", tool="bash", turn=1, arguments={
                    "command": "cat /trial/manual/manual.md && /opt/bin/traincheck collect -- python train.py"})),
                (20.7, "trial", events.ToolAnswered(call="c0", text=manual)),
            ]  # fmt: skip
        pilot.run(trial, story)
    return pilot, Pilot(pilot.write(), pilot.plan)


def test_packets_are_in_another_order_under_other_names_for_each_annotator(made):
    _, pilot = made
    one, other = packets(pilot, "ann", ()), packets(pilot, "bob", ())
    assert [packet.name for packet in one] == [packet.name for packet in packets(pilot, "ann", ())]
    assert {packet.trial for packet in one} == {packet.trial for packet in other} == set(pilot.ledgers)
    assert {packet.name for packet in one}.isdisjoint(packet.name for packet in other)
    orders = {tuple(packet.trial for packet in packets(pilot, f"a{each}", ())) for each in range(20)}
    assert len(orders) > 5


def test_what_shows_the_arm_is_taken_out_and_counted(made):
    pilot, read = made
    texts = ("line of the manual that only one arm has\nshort\n",)
    files, record = exported(read, "ann", packets(read, "ann", texts))
    whole = "\n".join(files.values()).lower()
    for word in ("traincheck", "manual.md", "line of the manual", "docs/tool.md"):
        assert word not in whole.replace("manual of an optional", "")
    for trial in pilot.plan.order:
        assert trial.id not in whole
    for arm in ("control", "optional"):
        assert f'"{arm}"' not in whole
    by_arm = {}
    for row in record["packets"]:
        by_arm.setdefault(pilot.plan.trial(row["trial"]).arm, []).append(row["redactions"])
    # The operator's line, two of the manual; the tool's path; the manual's path.
    assert by_arm["optional"] == [{"line": 3, "name": 1, "file": 1}] * 2
    assert by_arm["control"] == [{"line": 0, "name": 0, "file": 0}] * 2
    assert "redactions" not in whole  # a count would tell the arm


def test_events_are_numbered_from_one_and_nothing_of_the_harness_is_among_them(made):
    _, read = made
    for packet in packets(read, "ann", ()):
        assert [event.number for event in packet.events] == list(range(1, len(packet.events) + 1))
        kinds = [event.kind for event in packet.events]
        assert kinds[0] == "operator"
        assert kinds.count("device_request") == 1
        assert kinds.count("submission") == 2
        assert {"answer", "call", "result", "final"} <= set(kinds)
        times = [event.at_ns for event in packet.events]
        assert times == sorted(times)
        assert not [event for event in said_by_agent(packet.events) if event.kind in ("operator", "result")]


def test_no_clock_is_in_a_packet(made):
    _, read = made
    made_packets = packets(read, "ann", ())
    files, _ = exported(read, "ann", made_packets)
    for packet in made_packets:
        held = json.loads(files[f"{packet.name}.json"])
        assert held["plan"] == read.plan.hash
        assert {key for event in held["events"] for key in event} == {"number", "kind", "title", "text"}
        assert str(packet.events[0].at_ns) not in files[f"{packet.name}.md"]


def test_files_that_only_one_arm_has_are_revealing_and_shared_lines_are_not(tmp_path):
    objects = Objects(tmp_path / "store")
    starts = []
    for name, more in (
        ("one", {}),
        ("two", {"TOOL.md": "a line that both sources have\nonly the tool's page says it\n"}),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text("a line that both sources have\n")
        for file, text in more.items():
            (folder / file).write_text(text)
        starts.append(Start("case", capture(folder, objects), ("the same task for both",)))
    known = revealing(starts, objects)
    assert known.lines == ("only the tool's page says it",)
    assert known.files == ("TOOL.md",)
    redact = known.redactor()
    assert redact("see ./docs/TOOL.md:\n  > only the tool's page says it!\nTOOL.mdx stays") == (
        f"see {MARK}:\n{MARK}\nTOOL.mdx stays"
    )
    assert redact.counts == {"line": 1, "name": 0, "file": 1}


def test_the_arms_own_texts_are_known():
    texts = arm_texts()
    assert any("traincheck" in text.lower() for text in texts)
    assert len([text for text in texts if text.count("\n") > 5]) == 2  # the manual and the placebo's
    refusals = [text for text in texts if text.startswith("raise ")]
    assert refusals
    assert all(any(text in line for line in guard.content().splitlines()) for text in refusals)


def test_short_lines_are_taken_out_only_beside_revealing_ones():
    manual = "## When\nUse it when a training run went wrong.\n"
    redact = revealing([], Objects(Path("nowhere")), [manual]).redactor()
    assert redact(f"exit code 0\n{manual}") == f"exit code 0\n{MARK}\n{MARK}\n"
    assert redact("## When\nto stop") == "## When\nto stop"


def test_that_the_tool_is_missing_shows_the_arm_and_is_taken_out():
    redact = Redactor()
    for line in (
        "ModuleNotFoundError: No module named 'traincheck'",
        "bash: traincheck: command not found",
        "ImportError: cannot import name x from traincheck",
    ):
        assert redact(line) == MARK
    assert redact("No module named 'transformers'") == "No module named 'transformers'"
    assert redact.counts == {"line": 3, "name": 0, "file": 0}


def test_a_pilot_without_transcripts_has_no_packets(tmp_path):
    pilot = Synthetic(tmp_path, arms=["control"])
    with pytest.raises(TraincheckError, match="has a transcript"):
        packets(Pilot(pilot.write(), pilot.plan), "ann", ())


def test_the_command_exports_and_keeps_the_record_apart(made, tmp_path):
    pilot, read = made
    run = CliRunner().invoke(
        app, ["pilot", "annotate", str(pilot.layout.root), "--export", "-o", str(tmp_path / "p"), "--annotator", "ann"]
    )
    assert run.exit_code == 0, run.output
    names = {path.name for path in (tmp_path / "p").iterdir()}
    assert {"README.md", "answers.json"} <= names
    assert len(names) == 2 + 2 * 4
    record = json.loads((pilot.layout.annotations / "exports" / "ann.json").read_text())
    assert {row["trial"] for row in record["packets"]} == set(read.ledgers)
    assert record["plan"] == pilot.plan.hash
    again = CliRunner().invoke(
        app, ["pilot", "annotate", str(pilot.layout.root), "--export", "-o", str(tmp_path / "p"), "--annotator", "ann"]
    )
    assert again.exit_code == 2
