"""Files of a report: the same bytes for the same pilot, nothing that breaks a page, a site without private material."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from tests.pilot.synthetic_pilot import CANARY, HYPOTHESIS, Synthetic
from traincheck.cli import app
from traincheck.pilot import events, report
from traincheck.pilot.planning import deviations


@pytest.fixture
def pilot(tmp_path):
    """Two blocks of two arms."""
    made = Synthetic(tmp_path, arms=["control", "optional"], trials=2)
    for trial in made.plan.order:
        made.run(trial, slow=30.0 if trial.arm == "control" else 0.0)
    made.write()
    return made


class Balanced(HTMLParser):
    """Every tag that is opened is closed, and there is no script."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        assert tag != "script"
        assert not [name for name, value in attrs if name.startswith("on") or (value or "").startswith("http")]
        if tag not in ("meta", "br", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in ("line", "meta", "br")

    def handle_endtag(self, tag):
        if tag not in ("meta", "br", "line"):
            assert self.open.pop() == tag


def check_page(text):
    page = Balanced()
    page.feed(text)
    assert page.open == []


def test_the_same_pilot_gives_the_same_bytes(pilot, tmp_path):
    runs = []
    for name in ("one", "two"):
        run = CliRunner().invoke(app, ["pilot", "report", str(pilot.layout.root), "-o", str(tmp_path / name)])
        assert run.exit_code == 0, run.output
        runs.append({file: (tmp_path / name / file).read_bytes() for file in report.FILES})
    assert runs[0] == runs[1]


def test_every_file_carries_the_plan_hash_and_the_same_trials(pilot):
    held, files = report.texts(pilot.layout)
    for text in files.values():
        assert pilot.plan.hash in text
        assert all(trial.id in text for trial in pilot.plan.order)
        assert str(pilot.layout.root.parent) not in text  # no path of this machine
    assert json.loads(files[report.JSON]) == held
    check_page(files[report.HTML])
    assert "<svg" in files[report.HTML]


def test_every_markdown_table_is_rectangular(pilot):
    _, files = report.texts(pilot.layout)
    block: list[int] = []
    tables = 0
    for line in [*files[report.MARKDOWN].split("\n"), ""]:
        if line.startswith("|"):
            block.append(len(re.findall(r"(?<!\\)\|", line)))
        elif block:
            assert len(set(block)) == 1
            tables += 1
            block = []
    assert tables >= 12


def test_what_agents_and_operators_write_cannot_break_a_page(pilot):
    nasty = "</pre><script>alert(1)</script> | a table\n# no heading"
    deviations.record(pilot.layout.deviations, deviations.Deviation(what="note", why=nasty))
    _, files = report.texts(pilot.layout)
    check_page(files[report.HTML])
    assert "<script" not in files[report.MARKDOWN]
    assert "\n# no heading" not in files[report.MARKDOWN]


def test_the_command_prints_what_cannot_be_concluded_first(pilot):
    run = CliRunner().invoke(app, ["pilot", "report", str(pilot.layout.root)])
    assert run.exit_code == 0, run.output
    first = run.output.splitlines()[0]
    assert first == (
        "- None of the 2 trials of arm optional activated TrainCheck: whatever differs between optional and another "
        "arm is no effect of its use, and no benefit of it is shown."
    )
    assert (pilot.layout.report / report.HTML).exists()
    printed = CliRunner().invoke(app, ["pilot", "report", str(pilot.layout.root), "--json"])
    assert json.loads(printed.stdout)["plan"] == pilot.plan.hash


def test_an_existing_report_elsewhere_is_not_replaced_unasked(pilot, tmp_path):
    words = ["pilot", "report", str(pilot.layout.root), "-o", str(tmp_path / "r")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, words).exit_code == 2
    assert CliRunner().invoke(app, [*words, "--force"]).exit_code == 0


def test_the_site_shows_transcripts_and_no_verdict(pilot, tmp_path):
    site = tmp_path / "site"
    run = CliRunner().invoke(app, ["pilot", "report", str(pilot.layout.root), "--bundle", str(site)])
    assert run.exit_code == 0, run.output
    pages = {path.name: path.read_text() for path in site.iterdir()}
    assert set(pages) == {"index.html", *(f"{trial.id}.html" for trial in pilot.plan.order)}
    for name, text in pages.items():
        check_page(text)
        assert pilot.plan.hash in text
        assert CANARY not in text
        assert not re.search(r"\b(incorrect|expected_failure|proven)\b", text)
        if name != "index.html":
            assert HYPOTHESIS in text
            assert "+loss = total / tokens" in text
    for trial in pilot.plan.order:
        assert f'href="{trial.id}.html"' in pages["index.html"]


def test_a_site_that_would_hold_a_canary_is_not_written(tmp_path):
    pilot = Synthetic(tmp_path, arms=["control"], trials=1)
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        story[12:12] = [
            (39, "trial", events.ToolCalled(call="c9", tool="bash", arguments={"command": "cat x"}, turn=1)),
            (39, "trial", events.ToolAnswered(call="c9", text=pilot.text(f"# {CANARY}\nloss = total / tokens"))),
        ]
        pilot.run(trial, story)
    pilot.write()
    site = tmp_path / "site"
    run = CliRunner().invoke(app, ["pilot", "report", str(pilot.layout.root), "--bundle", str(site)])
    assert run.exit_code == 2
    assert "the canary of case broken" in run.output
    assert not site.exists()


def test_a_folder_that_is_no_pilot_is_left_alone(tmp_path):
    run = CliRunner().invoke(app, ["pilot", "report", str(tmp_path)])
    assert run.exit_code == 2
    assert list(tmp_path.iterdir()) == []
