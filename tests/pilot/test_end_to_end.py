"""The whole study, offline: plan, run, grade, report with scripted solvers; every figure is counted again."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from traincheck.pilot import jail

from .recounting import Line, Recount, device_seconds, judged, lines, requests

pytestmark = [
    pytest.mark.slow,
    # Without one every audit tells leaks, rightly, and no trial counts.
    pytest.mark.skipif(not jail.available().ok, reason=f"no jail here: {jail.available().reason}"),
]

DRAFTS = Path(__file__).parents[2] / "pilots"
NO_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")

# Script -> submissions, distinct sources with the initial one, first valid submission, final source, by case.
FAILURE = {
    "repairs-second": (2, 2, 2, "correct"),
    "wrong-then-right": (3, 3, 2, "correct"),
    "breaks-a-control": (1, 2, None, "incorrect"),
    "never-submits": (0, 1, None, "incorrect"),
    "dies-and-resumes": (2, 2, 2, "correct"),
    "waits-in-queue": (1, 2, 1, "correct"),
    "imports-package": (1, 2, 1, "correct"),
}
CLEAN = {"repairs-second": (2, 2, 1, "correct"), "breaks-a-control": (1, 2, None, "incorrect")}


def traincheck(*words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, without any network."""
    command = [sys.executable, "-c", "from traincheck.cli import main; main()", *words]
    env = {**os.environ, "SOME_API_KEY": "hunter2-hunter2", "OMP_NUM_THREADS": "1"}
    return subprocess.run([*NO_NETWORK, *command], env=env, capture_output=True, text=True, timeout=800, check=False)


def played(name: str, folder: Path) -> Pilot:
    """Plan, run, grade, report."""
    began = time.monotonic()
    for words in (
        ("plan", str(DRAFTS / f"{name}.toml"), "-o", str(folder / "plan.json"), "--json"),
        ("run", str(folder / "plan.json"), "-o", str(folder / "out"), "--json"),
        ("grade", str(folder / "out"), "--json"),
        ("report", str(folder / "out"), "--json"),
    ):
        done = traincheck("pilot", *words)
        assert done.returncode == 0, f"{words[0]}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    print(f"{name}: plan, run, grade and report took {time.monotonic() - began:.0f} s")
    return Pilot(folder)


class Pilot:
    """A pilot that was run, graded and reported."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "out"
        self.plan: Line = json.loads((folder / "plan.json").read_text())
        self.report: Line = json.loads((self.root / "report" / "report.json").read_text())
        self.rows: dict[str, Line] = {row["trial"]: row for row in self.report["trials"]}
        self.device = lines(self.root / "device.jsonl")
        self.grading = lines(self.root / "grading" / "device.jsonl")
        self.graded: dict[str, Line] = {
            case: json.loads((self.root / "grading" / f"{case}.json").read_text()) for case in self.plan["cases"]
        }
        self.scripts = {one["name"]: one["script"] for one in self.plan["draft"]["solvers"]}
        self.trials = {
            one["id"]: Recount(lines(self.root / "trials" / one["id"] / "ledger.jsonl"), self.device)
            for one in self.plan["order"]
        }

    def of(self, script: str, arm: str | None = None, case: str | None = None) -> list[Recount]:
        return [
            self.trials[one["id"]]
            for one in self.plan["order"]
            if self.scripts[one["solver"]] == script and arm in (None, one["arm"]) and case in (None, one["case"])
        ]

    def text(self, name: str) -> str:
        return (self.root / "store" / "objects" / name[:2] / name[2:]).read_text()


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Pilot:
    return played("offline", tmp_path_factory.mktemp("pilot"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Pilot:
    return played("offline-clean", tmp_path_factory.mktemp("clean"))


@pytest.fixture(scope="module", params=["offline", "offline-clean"])
def either(request: pytest.FixtureRequest) -> Pilot:
    found: Pilot = request.getfixturevalue("pilot" if request.param == "offline" else "clean")
    return found


def close(one: Any, other: Any) -> bool:
    """The same values at any depth, numbers up to what a float holds."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[key], other[key]) for key in one)
    if isinstance(one, float) or isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-6)
    return bool(one == other)


def test_every_trial_came_to_its_end_and_nothing_leaked(either: Pilot) -> None:
    assert len(either.trials) == len(either.scripts) * 2
    for name, trial in either.trials.items():
        assert trial.ledger[0]["data"]["plan"] == either.plan["hash"]
        assert trial.ledger[0]["data"]["sandbox"] == "jail"
        assert trial.ledger[-1]["data"]["reason"] == "finished", name
        assert trial.ledger[-1]["data"]["devices_held"] == 0
        assert [line["data"]["when"] for line in trial.of("audited")] == ["first", "last"]
        assert trial.ledger[1]["kind"] == "audited"
        assert trial.ledger[-2]["kind"] == "audited"
        assert [line["data"]["leaks"] for line in trial.of("audited")] == [[], []]
        assert either.rows[name]["counts"], either.rows[name]["reasons"]
    assert either.device[-1]["kind"] == "service_stopped"
    assert either.device[-1]["data"] == {"held": 0}


def test_two_trials_ran_side_by_side_in_the_planned_order(pilot: Pilot) -> None:
    order = [pilot.trials[one["id"]] for one in pilot.plan["order"]]
    spans = [(trial.ledger[0]["at_ns"], trial.ledger[-1]["at_ns"]) for trial in order]
    together = [sum(begin <= moment < end for begin, end in spans) for moment, _ in spans]
    assert max(together) == 2
    begun = [begin for begin, _ in spans]
    assert all(later > earlier for earlier, later in zip(begun, begun[2:], strict=False))


def test_chains_end_where_the_recorded_heads_say(either: Pilot) -> None:
    heads = json.loads((either.root / "heads.json").read_text())
    for name, trial in either.trials.items():
        assert heads[f"trials/{name}/ledger.jsonl"] == trial.ledger[-1]["hash"]
    assert heads["device.jsonl"] == either.device[-1]["hash"]
    assert either.report["ledger_problems"] == []


def test_the_full_account_of_every_trial(either: Pilot) -> None:
    for name, trial in either.trials.items():
        row = either.rows[name]
        assert close(row["full"], trial.point(trial.end, None)), name
        assert close(row["transport"], trial.transport()), name
        assert row["submissions"] == len(trial.sources()) - 1
        assert row["distinct_sources"] == len(set(trial.sources()))
        assert math.isclose(row["device_seconds_by_request"], device_seconds(trial.held), abs_tol=1e-9)


def test_first_valid_submissions_and_what_they_had_cost(either: Pilot) -> None:
    for name, trial in either.trials.items():
        row = either.rows[name]
        case = row["case"]
        required = [one["name"] for one in _scenarios(either, case) if one["required"]]
        verdicts = [judged(source, either.graded[case], required) for source in trial.sources()]
        assert "unknown" not in verdicts
        # The initial snapshot, number 0, was submitted by nobody.
        number = verdicts.index("correct", 1) if "correct" in verdicts[1:] else None
        assert row["first_valid"]["status"] == ("none" if number is None else "proven"), name
        assert row["first_valid"]["number"] == number
        assert row["censored"] == (number is None)
        assert row["final"] == verdicts[-1]
        if number is None:
            assert row["at_first_valid"] is None
            continue
        line = next(line for line in trial.of("submitted") if line["data"]["number"] == number)
        assert close(row["at_first_valid"], trial.point(line["at_ns"], line["number"])), name


def test_every_script_came_to_what_it_was_written_for(pilot: Pilot, clean: Pilot) -> None:
    for played_out, outcomes in ((pilot, FAILURE), (clean, CLEAN)):
        for script, expected in outcomes.items():
            assert len(played_out.of(script)) == 2
            for trial in played_out.of(script):
                row = played_out.rows[trial.name]
                found = (row["submissions"], row["distinct_sources"], row["first_valid"]["number"], row["final"])
                assert found == expected, script


def test_every_distinct_source_was_replayed_in_every_scenario(either: Pilot) -> None:
    told = {one["case"]: one for one in either.report["cases"]}
    for case, graded in either.graded.items():
        names = [one["name"] for one in _scenarios(either, case)]
        distinct = {
            source for trial in either.trials.values()
            if trial.ledger[0]["data"]["case"] == case for source in trial.sources()
        }  # fmt: skip
        assert set(graded["sources"]) == distinct
        assert all(set(replays) == set(names) for replays in graded["sources"].values())
        assert sum(graded["counts"].values()) == len(distinct) * len(names) == told[case]["replays"]
        assert graded["plan"] == either.plan["hash"]
        assert graded["valid"], graded["problems"]


def test_the_initial_source_fails_where_it_was_registered_to(pilot: Pilot) -> None:
    initial = pilot.plan["cases"]["tiny-accumulation"]["workspace"]
    replays = pilot.graded["tiny-accumulation"]["sources"][initial]
    failed = {name for name, replay in replays.items() if replay["verdict"] == "expected_failure"}
    assert failed == {"ragged", "ragged-4"}


def test_grading_began_after_all_solvers_had_finished(either: Pilot) -> None:
    first = min(line["at_ns"] for line in either.grading if line["kind"] == "worker_started")
    assert first > max(trial.ledger[-1]["at_ns"] for trial in either.trials.values())


def test_costs_by_ledger(either: Pilot) -> None:
    solver, grading = list(requests(either.device).values()), list(requests(either.grading).values())
    assert {one["purpose"] for one in solver} == {"solver"}
    assert {one["purpose"] for one in grading} == {"grading"}
    assert close(either.report["costs"]["solver"], device_seconds(solver))
    assert close(either.report["costs"]["grading"], device_seconds(grading))
    assert either.report["solver_unassigned"] == 0
    for told in either.report["ledgers"]:
        mine = [one for one in grading if one["owner"].split("/")[1] == told["case"]]
        assert close(told["grading"], device_seconds(mine))
        held = [trial for trial in either.trials.values() if trial.ledger[0]["data"]["case"] == told["case"]]
        assert close(told["solver"], sum(device_seconds(trial.held) for trial in held))


def test_cost_of_a_valid_repair(pilot: Pilot) -> None:
    for told in pilot.report["per_repair"]:
        held = [
            trial for trial in pilot.trials.values()
            if (trial.ledger[0]["data"]["case"], trial.ledger[0]["data"]["arm"]) == (told["case"], told["arm"])
        ]  # fmt: skip
        repairs = sum(FAILURE[pilot.scripts[trial.ledger[0]["data"]["solver"]]][2] is not None for trial in held)
        ends = [trial.point(trial.end, None) for trial in held]
        assert (told["trials"], told["repairs"]) == (len(held), repairs) == (7, 5)
        expected = {
            "device_seconds": sum(one["device_seconds"] for one in ends) / repairs,
            "wall_s": sum(one["clocks"]["raw_s"] for one in ends) / repairs,
            **{
                f"tokens_{name}": sum(one["tokens"][name] for one in ends) / repairs
                for name in ("input", "cached_input", "output", "total")
            },
        }
        assert told["per_repair"].keys() == expected.keys()
        assert all(math.isclose(told["per_repair"][name], expected[name], abs_tol=1e-5) for name in expected)


def test_a_solver_that_dies_goes_on_in_its_workspace_and_no_job_runs_twice(pilot: Pilot) -> None:
    for trial in pilot.of("dies-and-resumes"):
        assert [line["data"]["recovers"] for line in trial.of("solver_failed")] == [True, True]
        assert [line["data"]["reason"] for line in trial.of("suspended")] == ["solver", "transport"]
        failed = next(line for line in trial.of("model_failed"))
        (suspended,) = [line for line in trial.of("suspended") if line["data"]["reason"] == "transport"]
        assert suspended["number"] == failed["number"] + 1
        good = next(line for line in trial.of("model_answered") if line["number"] > suspended["number"])
        assert trial.of("resumed")[1]["number"] == good["number"] + 1
        assert len(trial.held) == 1
        (name,) = (name for name, one in requests(pilot.device).items() if one["owner"] == trial.name)
        assert [line["kind"] for line in pilot.device if line["data"].get("request") == name] == [
            "asked", "granted", "worker_started", "worker_ended", "released", "replayed",
        ]  # fmt: skip
        answered = [pilot.text(line["data"]["text"]) for line in trial.of("tool_answered")]
        assert answered[0] == "exit code 0\n42\n"  # the result that its first life was never given


def test_a_wait_for_devices_is_in_the_raw_clock_and_in_no_other(pilot: Pilot) -> None:
    for trial in pilot.of("waits-in-queue"):
        row = pilot.rows[trial.name]
        assert row["transport"]["queue_wait_s"] > 1.0
        clocks = row["full"]["clocks"]
        assert clocks["raw_s"] - clocks["queue_adjusted_s"] > 1.0
        first, second = sorted(trial.held, key=lambda one: int(one["granted"]))
        assert second["granted"] >= first["released"]


def test_the_package_is_there_in_one_arm_and_not_in_the_other(pilot: Pilot) -> None:
    for trial in pilot.of("imports-package", arm="control"):
        texts = [pilot.text(line["data"]["text"]) for line in trial.of("tool_answered")]
        assert sum("ModuleNotFoundError: No module named 'traincheck'" in text for text in texts) == 2
        workers = [line["data"] for line in trial.of("attested")]
        assert len(workers) == 2
        assert all(one["guard"] and one["imported_at_exit"] is False for one in workers)
        assert not any(one["importable_at_start"] for one in workers)
        assert pilot.rows[trial.name]["activation"]["stages"]["imported"] == 0
    for trial in pilot.of("imports-package", arm="optional"):
        workers = [line["data"] for line in trial.of("attested")]
        assert [one["imported_at_exit"] for one in workers] == [True, True]
        stages = pilot.rows[trial.name]["activation"]["stages"]
        assert stages == {"manual_read": 1, "prepared": 2, "imported": 2, "activated": 0}
    for trial in pilot.trials.values():
        if trial.ledger[0]["data"]["arm"] == "control":
            assert not any(line["data"]["imported_at_exit"] for line in trial.of("attested"))


def test_replies_to_submissions_tell_nothing(either: Pilot) -> None:
    replies = set()
    for trial in either.trials.values():
        calls = {line["data"]["call"] for line in trial.of("tool_called") if line["data"]["tool"] == "submit_revision"}
        replies |= {
            either.text(line["data"]["text"]) for line in trial.of("tool_answered") if line["data"]["call"] in calls
        }
    assert replies == {"recorded"}


def test_inspects_log_tells_the_same(either: Pilot) -> None:
    for name in either.trials:
        told = json.loads((either.root / "trials" / name / "reconciled.json").read_text())
        assert told["agree"], told["differences"]
        assert (either.root / "trials" / name / "trial.eval").stat().st_size > 0


def test_a_ledger_that_says_otherwise_than_inspects_log_is_found_out(pilot: Pilot, tmp_path: Path) -> None:
    from traincheck.pilot.inspecting.reconcile import differences
    from traincheck.pilot.ledger import Ledger

    name = pilot.of("repairs-second")[0].name
    log = pilot.root / "trials" / name / "trial.eval"

    def changed(change: Any) -> list[str]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        kept = [line for line in map(change, json.loads(json.dumps(pilot.trials[name].ledger))) if line is not None]
        moment = 0
        with Ledger(path, now=lambda: moment) as ledger:
            for line in kept:
                moment = line["at_ns"]
                ledger.add(line["kind"], line["data"])
        # Wall times are of now; only what else differs is of interest.
        return [text for text in differences(path, log) if not text.startswith("an answer came at")]

    def more_tokens(line: Line) -> Line:
        if line["kind"] == "model_answered" and line["data"]["request"] == "r00002":
            line["data"]["tokens"]["cached_input"] += 1
        return line

    assert changed(lambda line: line) == []
    assert changed(more_tokens)[0].startswith("cached_input tokens")
    without_answer = changed(lambda line: None if line["data"].get("request") == "r00003" else line)
    assert without_answer[0].startswith("answers of the model")
    without_call = changed(lambda line: None if line["data"].get("tool") == "request_device" else line)
    assert any("request_device: 0 in the ledger, 2 in Inspect's log" in text for text in without_call)


def _scenarios(pilot: Pilot, case: str) -> list[Line]:
    """From the case's own file, with the fields that it leaves out."""
    from traincheck.studykit import toml

    folder = DRAFTS / "cases" / case
    data = toml.parsed((folder / "case.toml").read_text())
    return [{"required": True, **one} for one in data["scenarios"]]
