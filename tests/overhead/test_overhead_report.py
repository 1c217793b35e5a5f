"""The report of a study: what is in it, the same bytes each time, and no value that breaks it."""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from traincheck.cli.app import app
from traincheck.errors import TraincheckError
from traincheck.overhead import artifacts, report, statistics
from traincheck.overhead.report import budgets, html, limits, markdown, plots, tables, values, words
from traincheck.overhead.report.content import content

pytest_plugins = ["tests.overhead.small_study"]


@pytest.fixture(scope="module")
def told(finished_study: Path) -> dict[str, Any]:
    return values.readable(content(finished_study))


@pytest.fixture
def study(finished_study: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished_study, tmp_path / "elsewhere", symlinks=True))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


# --- what is in it ---------------------------------------------------------------------------------------------------


def test_it_says_what_was_measured_and_proved(told: dict[str, Any]) -> None:
    assert told["valid"] is True
    assert [(row["mode"], row["pairs"]) for row in told["modes"]] == [("plain", 0), ("full", 1), ("selective", 1)]
    full = told["modes"][1]
    assert full["slowdown"]["wall"]["median"] == pytest.approx(full["wall_ms"] / full["plain_wall_ms"])
    assert full["slowdown"]["cpu"]["no_interval"] == "one pair says nothing of its own spread"
    evidence = told["evidence"]
    assert (evidence["equal"], evidence["pairs"]) == (2, 2)
    assert evidence["facts_compared"] > 80
    by_trial = {row["trial"]: row for row in told["audits"]}
    assert set(by_trial) == {"reference.0", "main.1.full.watched", "main.1.selective.watched"}
    assert all(row["faults"] == [] and row["call_pairs"] > 10 and row["bytes"] > 1000 for row in by_trial.values())
    (row,) = told["agreement"]
    assert row["same"] == row["invariants"] == told["invariants"]["number"]
    assert [(row["mode"], row["counts"]["passed"]) for row in told["outcomes"]] == [
        ("full", row["invariants"]),
        ("selective", row["invariants"]),
    ]
    assert told["invariants"]["not_portable"] == []
    assert {row["mode"] for row in told["phases"]} == {"plain", "full", "selective"}
    assert set(told["phases"][1]["seconds"]) >= {"set_up", "drain", "shutdown"}


def test_it_says_where_it_comes_from(told: dict[str, Any], finished_study: Path) -> None:
    held = told["provenance"]
    assert held["hashes"]["invariants"] == artifacts.sha256_file(finished_study / "invariants" / "invariants.jsonl")
    assert held["hashes"]["hashes.json (all files of the study)"] == artifacts.sha256_file(
        finished_study / artifacts.HASHES
    )
    assert {"torch", "numpy", "traincheck"} <= set(held["versions"])
    assert len(held["commands"]) == 5
    (command,) = [row["command"] for row in held["commands"] if row["trial"] == "main.1.selective.watched"]
    assert command[:4] == ["PYTHON", "-m", "traincheck", "collect"]
    assert "DIR/invariants/invariants.jsonl" in command
    assert held["infer_command"][3] == "infer"
    assert all(set(row) == {"path", "sha256", "bytes"} for row in held["large_files"])
    assert any(row["path"].endswith(".tcev") or row["path"].endswith(".jsonl") for row in held["large_files"])


def test_no_path_of_the_machine_is_in_it(finished_study: Path) -> None:
    root = str(finished_study.parent)
    for name in report.FILES:
        text = (finished_study / name).read_text()
        assert root not in text
        assert str(Path(__file__).parent) not in text
        assert not re.findall(r"/(?:home|root|work|usr)/\S+", text)


def test_the_same_study_gives_the_same_bytes_wherever_it_lies(finished_study: Path, study: Path) -> None:
    report.write(study, study / "again")
    for name in report.FILES:
        assert (study / "again" / name).read_bytes() == (finished_study / name).read_bytes()


def test_markdown_has_every_section_and_sound_tables(finished_study: Path) -> None:
    text = (finished_study / report.MARKDOWN).read_text()
    for title in ("Slowdown", "Budgets", "Training stayed the same", "What watching did", "Outcomes", "Invariants",
                  "Phases", "Flagged and left out", "Limitations", "Provenance"):  # fmt: skip
        assert f"\n## {title}\n" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "line", "rect", "br"):
            self.open.append(tag)
        assert not [value for name, value in attrs if name in ("src", "href", "onload", "onclick")]

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_small_file_of_its_own(finished_study: Path) -> None:
    text = (finished_study / report.HTML).read_text()
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert "script" not in page.tags
    assert "://" not in text
    assert len(text) < 200_000
    drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawn) == 5  # slowdowns, three groups of step times, bytes
    for svg in drawn:
        assert "nan" not in ElementTree.tostring(ElementTree.fromstring(svg)).decode()


def test_the_command_writes_and_prints(study: Path, tmp_path: Path) -> None:
    run = CliRunner()
    for name in report.FILES:
        (study / name).unlink()
    good = run.invoke(app, ["overhead", "report", str(study)])
    assert good.exit_code == 0
    assert "Training was the same, bit by bit, in 2 of 2 pairs" in good.stdout
    assert all((study / name).exists() for name in report.FILES)
    other = tmp_path / "other"
    as_json = run.invoke(app, ["overhead", "report", str(study), "-o", str(other), "--json"])
    assert as_json.stdout == (other / report.JSON).read_text()
    again = run.invoke(app, ["overhead", "report", str(study), "-o", str(other)])
    assert again.exit_code == 2
    assert run.invoke(app, ["overhead", "report", str(study), "-o", str(other), "--force"]).exit_code == 0
    assert run.invoke(app, ["overhead", "report", str(tmp_path / "nothing")]).exit_code == 2


# --- studies that went wrong -----------------------------------------------------------------------------------------


def test_a_study_that_runs_or_is_damaged_is_told(study: Path) -> None:
    edit(study / "study.json", lambda value: value.update(state="running"))
    with pytest.raises(TraincheckError, match="has not ended"):
        report.texts(study)
    edit(study / "study.json", lambda value: value.update(state="finished"))
    edit(study / "pairs.json", lambda value: value["pairs"][0].pop("valid"))
    with pytest.raises(TraincheckError, match="not as this TrainCheck writes it: KeyError: 'valid'") as caught:
        report.texts(study)
    assert "overhead verify" in str(caught.value.hint)
    (study / "pairs.json").unlink()
    with pytest.raises(TraincheckError, match=r"expected .*pairs\.json"):
        report.texts(study)


def test_an_interrupted_study_with_a_pair_that_does_not_count_is_told(study: Path) -> None:
    edit(study / "study.json", lambda value: value.update(state="interrupted"))
    edit(study / "summary.json", lambda value: value.update(state="interrupted", valid=False))

    def spoil(value: Any) -> None:
        value["pairs"][0].update(evidence_equal=False, first_difference="step 2: generator torch differs")
        value["pairs"][0].update(valid=False, slowdown=None, reasons=["step 2: the loss is nan | <b>"])

    edit(study / "pairs.json", spoil)
    told, files = report.texts(study)
    full = next(row for row in told["modes"] if row["mode"] == "full")
    assert full["slowdown"] == {"wall": None, "cpu": None}
    said = files[report.MARKDOWN].splitlines()[2]
    assert ", and differed in full, main pair 1: step 2: generator torch differs; 1 pair does not count." in said
    assert said.endswith("The study was interrupted.")
    assert "step 2: the loss is nan \\| &lt;b>" in files[report.MARKDOWN]
    assert "step 2: the loss is nan | &lt;b&gt;" in files[report.HTML]
    assert re.search(r"\| \(\d+\.\d+x\) \|", files[report.MARKDOWN])


def test_losses_and_times_that_are_no_numbers_break_nothing(study: Path) -> None:
    rank = study / "trials" / "main.1.full.plain" / "rank-0.json"
    text = rank.read_text()
    rank.write_text(text.replace('"value": ', '"value": NaN, "old": ', 1))
    edit(study / "summary.json", lambda value: value["cohorts"]["main"]["full"].update(mb_per_10_steps="inf"))

    def odd(trial: Any) -> None:
        trial["times"]["wall_ms"][2:] = ["nan", None]
        trial["foreign"].update(flagged=True, cpus="inf")
        trial["peak_mb"] = 2**80

    edit(study / "trials" / "main.1.full.watched" / "trial.json", odd)
    edit(study / "pairs.json", lambda value: value["pairs"][0]["slowdown"].update(wall_median="nan"))
    told, files = report.texts(study)
    json.loads(files[report.JSON], parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    full = next(row for row in told["modes"] if row["mode"] == "full")
    assert full["slowdown"]["wall"] is None
    assert full["slowdown"]["cpu"]["pairs"] == 1
    row = next(row for row in told["budgets"] if row["mode"] == "full" and row["unit"] == "MB")
    assert budgets.verdict(row) == "not measured"
    assert told["flagged"][-1]["foreign_cpus"] == "inf" or any(x["foreign_cpus"] == "inf" for x in told["flagged"])


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (2**64 - 1, 2**64 - 1),
        (2**64, "18446744073709551616"),
        (-(2**63) - 1, "-9223372036854775809"),
        (np.float32("inf"), "inf"),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (True, True),
        ((1, None), [1, None]),
        ("\ud800", "\\ud800"),
        ({1: "a", "1": "b", None: "c"}, {"1": "a", "1 (str)": "b", "None": "c"}),
        ({(1, 2): math.inf}, {"[1, 2]": "inf"}),
        (Path("a"), "a"),
    ],
)
def test_values_become_strict_json(value: Any, wanted: Any) -> None:
    found = values.readable(value)
    assert found == wanted
    assert type(found) is type(wanted)
    assert json.loads(values.dumps(value)) == wanted


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.builds(lambda: 10**4400)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.integers() | st.text() | st.floats(), inner, max_size=4)
    ),
    max_leaves=12,
)


def test_an_integer_too_long_for_decimal_digits_is_written_in_hexadecimal() -> None:
    assert values.readable(10**5000) == hex(10**5000)


@given(ODD)
def test_whatever_it_is_it_is_json_that_others_read(value: Any) -> None:
    text = values.dumps(value)
    found = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert values.readable(found) == found
    text.encode("utf-8")


@given(st.lists(st.floats() | st.none() | st.integers() | st.text(max_size=3), max_size=12))
def test_plots_take_any_series(series: list[Any]) -> None:
    one = {"cohort": "main", "of": "<x>", "mode": "<x>", "pair": 1, "trial": "<t>", "valid": True}
    held = {
        "series": [{**one, "wall_ms": series, "cpu_ms": series, "bytes_per_step": series}],
        "modes": [{"mode": "<x>", "cohort": "main", "slowdown": {"wall": statistics.paired(series), "cpu": None}}],
    }
    for drawn in (plots.slowdowns(held), plots.bytes_per_step(held), *(svg for _, svg in plots.step_times(held))):
        assert "nan" not in drawn
        assert "<x>" not in drawn
        ElementTree.fromstring(f"<p>{drawn}</p>")


# --- budgets, limits, words ------------------------------------------------------------------------------------------


def mode(kind: str, every: int = 1, **more: Any) -> dict[str, Any]:
    row = {"mode": kind, "kind": kind, "cohort": "main", "sampling_interval": every, "flagged_pairs": 0, "steps": [10],
           "slowdown": {"wall": None, "cpu": None}, "mb_per_10_steps": None, "check": None}  # fmt: skip
    return {**row, **more}


def slow(*ratios: float, cpu: tuple[float, ...] = ()) -> dict[str, Any]:
    return {"wall": statistics.paired(ratios), "cpu": statistics.paired(cpu or ratios)}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (mode("selective", slowdown=slow(1.03, 1.04, 1.05)), "met"),
        (mode("selective", slowdown=slow(1.03, 1.04, 1.08)), "met, though not in every pair"),
        (mode("selective", slowdown=slow(1.06, 1.07, 1.08)), "missed"),
        (mode("selective", slowdown=slow(1.2, cpu=(1.01,)), flagged_pairs=1),
         "missed by wall time, met by CPU time, under foreign load"),
        (mode("selective", slowdown=slow(1.01, cpu=(1.2,))), "missed by CPU time, met by wall time"),
        (mode("selective"), "not measured"),
    ],
)  # fmt: skip
def test_a_budget_is_met_or_missed_in_so_many_words(row: dict[str, Any], said: str) -> None:
    found = next(one for one in budgets.judged([row]) if one["budget"] == "selective, every step")
    assert budgets.verdict(found) == said
    assert found["published"] == "22.64x"


def test_each_budget_takes_its_own_modes() -> None:
    rows = budgets.judged([
        mode("selective", slowdown=slow(1.04), check={"wall_s": 0.8, "cpu_s": 0.7}, mb_per_10_steps=3.0),
        mode("selective", 10, slowdown=slow(1.02)),
        mode("api", slowdown=slow(1.4), mb_per_10_steps=11.0, flagged_pairs=1),
        mode("peer-api", slowdown=slow(90.0)),
    ])  # fmt: skip
    said = [(row["budget"], row["mode"], budgets.verdict(row)) for row in rows]
    assert said == [
        ("selective, every step", "selective", "met"),
        ("selective, every 10th step", "selective", "missed"),
        ("full API", "api", "met, under foreign load"),
        ("trace of 10 steps, selective", "selective", "met"),
        ("trace of 10 steps, full", "api", "missed"),
        ("check of a trace", "selective", "met"),
    ]


def test_limits_are_of_the_study_at_hand(told: dict[str, Any]) -> None:
    said = " ".join(limits.sentences(told))
    assert "fewer than 6 pairs" in said
    assert "another workload" in said
    assert "quick form" not in said
    other = copy.deepcopy(told)
    other.update(quick=True, state="interrupted", flagged=[{"trial": "a", "foreign_cpus": 1.0}])
    other["provenance"]["source"] = {"commit": None, "dirty": None}
    other["modes"][2].update(sampling_interval=10, mode="every-10th", kind="peer-selective")
    said = " ".join(limits.sentences(other))
    for expected in ("quick form", "was interrupted", "Trials under foreign load (named, not dropped): 1.",
                     "its commit is not known",
                     "every-10th observes every 10th step, but a trial has 3 steady steps", "0.x tool"):  # fmt: skip
        assert expected in said


def test_a_set_that_is_not_portable_is_told(told: dict[str, Any]) -> None:
    other = copy.deepcopy(told)
    fault = {"index": 3, "where": "params[0].const_value", "value": "0xdeadbeef", "why": "an address"}
    other["invariants"]["not_portable"] = [fault] * 12
    said = words.portability(other)
    assert "12 found: invariant 3, params[0].const_value = 0xdeadbeef: an address" in said
    assert said.endswith("and 2 more.")
    assert words.portability({"invariants": None}) == "Nothing was learned."


def test_many_pairs_give_an_interval_in_the_table(told: dict[str, Any]) -> None:
    other = copy.deepcopy(told)
    other["modes"][1]["slowdown"]["wall"] = statistics.paired([1.1, 1.2, 1.3, 1.15, 1.25, 1.18, 1.22])
    assert ">95 % interval" not in tables.slowdowns(told).headers
    held = tables.slowdowns(other)
    assert held.headers.count(">95 % interval") == 2
    assert {len(row) for row in held.rows} == {len(held.headers)}
    row = held.rows[1]
    assert row[5] == "1.200x (1.100–1.300)"
    assert re.fullmatch(r"1\.\d{3}–1\.\d{3}", row[6])
    assert "1.200x (1.100–1.300)" in markdown.render(other)
    assert "1.200x (1.100–1.300)" in html.render(other)
