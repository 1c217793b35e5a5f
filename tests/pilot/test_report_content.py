"""The content of a report on a pilot whose figures are known by hand."""

from __future__ import annotations

import pytest

from tests.pilot.annotators import filled
from tests.pilot.synthetic_pilot import ORIGIN, Synthetic
from traincheck.errors import TraincheckError
from traincheck.pilot import events, report
from traincheck.pilot.annotating import importing
from traincheck.pilot.annotating.milestones import Answers
from traincheck.pilot.annotating.packets import Pilot, packets
from traincheck.pilot.planning import deviations, state
from traincheck.pilot.verdicts import FirstValid

SLOW = [0.0, 60.0, 120.0, 180.0, 240.0, 300.0]
"""Seconds by which control's trial of each block is slower than the treated one's."""


def made(tmp_path, **more):
    return Synthetic(tmp_path, **{"arms": ["control", "optional"], **more})


def content(pilot):
    return report.texts(pilot.layout)[0]


def row(held, trial):
    return next(one for one in held["trials"] if one["trial"] == trial.id)


def comparison(held, measure="adjusted time", analysis="intention to treat", **wanted):
    wanted = {"measure": measure, "analysis": analysis, **wanted}
    (found,) = [one for one in held["comparisons"] if all(one[name] == value for name, value in wanted.items())]
    return found


@pytest.fixture(scope="module", autouse=True)
def _package(tmp_path_factory):
    """A package that stands still while these tests run: one pilot is made once, and reported many times."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "pilot").mkdir()
    for name in ("figures.py", "verdicts.py"):
        (folder / "pilot" / name).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_package", lambda: folder)
        yield


@pytest.fixture(scope="module")
def six_once(tmp_path_factory):
    """Six blocks; control's times through the first valid submission are 60 + SLOW, the treated ones' 60."""
    pilot = made(tmp_path_factory.mktemp("six"), trials=6)
    for arm in ("control", "optional"):
        for slow, trial in zip(SLOW, pilot.of(arm), strict=True):
            pilot.run(trial, slow=slow if arm == "control" else 0.0)
    pilot.write()
    return pilot


@pytest.fixture
def six(six_once, tmp_path):
    """A copy of it."""
    return six_once.copied(tmp_path)


def test_every_figure_of_a_trial_is_the_one_known_by_hand(six):
    held = content(six)
    (trial, *_) = six.of("optional")
    found = row(held, trial)
    assert found["counts"], found["reasons"]
    at, full = found["at_first_valid"], found["full"]
    assert at["clocks"] == {"raw_s": 70.0, "queue_adjusted_s": 67.0, "adjusted_s": 60.0}
    assert at["tokens"] == {"input": 600, "cached_input": 50, "output": 60, "reasoning": 4, "total": 710}
    assert (at["device_seconds"], at["turn"]) == (10.0, 1)
    assert full["clocks"] == {"raw_s": 80.0, "queue_adjusted_s": 77.0, "adjusted_s": 70.0}
    assert (full["tokens"]["total"], full["device_seconds"]) == (721, 10.0)
    assert found["first_valid"] == {"status": "proven", "number": 2, "earliest": None, "latest": None}
    assert (found["submissions"], found["distinct_sources"], found["final"]) == (2, 3, "correct")
    assert found["changed_files"] == {"train.py": "changed"}
    assert found["transport"] == {
        "model_requests": 4, "solver_failures": 0, "transport_failures": 1, "retries": 1, "recoveries": 1,
        "queue_wait_s": 3.0, "suspended_s": 7.0, "suspensions": {"transport": 7.0},
    }  # fmt: skip
    assert found["validation"] == {
        "requests": 1, "before_first_valid": 1, "sources": 1,
        "commands": [{"command": "python train.py", "times": 1, "devices": [1], "sources": 1, "device_seconds": 10.0,
                      "outcomes": {"exit 0": 1}}],
    }  # fmt: skip


def test_paired_ratios_are_those_of_the_blocks(six):
    held = content(six)
    found = comparison(held, scope="case broken")
    product = 1.0
    for slow in SLOW:
        product *= 60 / (60 + slow)
    assert found["ratio"] == pytest.approx(product ** (1 / 6), abs=1e-6)
    assert (found["pairs"], found["complete_pairs"], found["censored_pairs"]) == (6, 6, 0)
    assert found["interval"]["low"] < found["ratio"] < found["interval"]["high"]
    assert comparison(held, "tokens")["ratio"] == 1.0
    assert comparison(held, "device-seconds")["ratio"] == 1.0
    mean = comparison(held)["restricted_mean"]
    assert (mean["treated"], mean["control"], mean["difference"]) == (60.0, 210.0, -150.0)
    assert mean["horizon"] == {"broken": 360.0}
    (control,) = [one for one in held["survival"] if one["arm"] == "control"]
    assert (control["repaired"], control["median_s"], control["longest_s"]) == (6, 180.0, 360.0)


def test_solvers_are_compared_together_and_each_by_itself(tmp_path):
    pilot = made(tmp_path, solvers=["fast", "slow"])
    for trial in pilot.plan.order:
        pilot.run(trial, slow={"fast": 0.0, "slow": 60.0}[trial.solver] if trial.arm == "control" else 0.0)
    pilot.write()
    held = content(pilot)
    assert comparison(held, scope="solver fast")["ratio"] == 1.0
    assert comparison(held, scope="solver slow")["ratio"] == 0.5
    assert comparison(held, scope="case broken")["ratio"] == pytest.approx(0.5**0.5, abs=1e-6)
    assert comparison(held, scope="case broken")["pairs"] == 2


def test_no_benefit_is_claimed_without_activation(six):
    held = content(six)
    told = "\n".join(held["cannot_conclude"])
    assert "None of the 6 trials of arm optional activated TrainCheck" in told
    assert "no benefit of it is shown" in told
    assert comparison(held, analysis="activated only")["pairs"] == 0
    assert "All repairs are of one case" in told
    assert "Case broken is a reproduction: Component: nothing is run, ledgers are written by hand." in told
    assert "All agents are one model (some/model)" in told


def test_the_three_ledgers_stay_apart_and_add_up(six):
    held = content(six)
    (ledger,) = held["ledgers"]
    assert (ledger["solver"], ledger["solver_of_trials"], ledger["reconciles"]) == (120.0, 120.0, True)
    assert ledger["solver_published"] == sum(round(row["full"]["device_seconds"], 3) for row in held["trials"]) == 120.0
    assert (ledger["grading"], ledger["qualification"]) == (4.0, None)
    assert held["costs"] == {"solver": 120.0, "grading": 4.0, "qualification": 0.0}
    assert held["solver_unassigned"] == 0
    assert held["ledger_problems"] == []
    by_arm = {one["arm"]: one for one in held["per_repair"]}
    assert by_arm["optional"]["per_repair"] == {
        "device_seconds": 10.0, "wall_s": 80.0, "tokens_input": 610.0, "tokens_cached_input": 50.0,
        "tokens_output": 61.0, "tokens_total": 721.0,
    }  # fmt: skip
    assert held["grading_per_repair"][0]["grading"] == pytest.approx(4 / 12, abs=1e-6)


def test_a_repair_costs_what_the_trials_without_one_cost_too(tmp_path):
    pilot = made(tmp_path, trials=2)
    for trial in pilot.plan.order:
        pilot.run(trial, repaired=trial.arm == "control" or trial == pilot.of("optional")[0])
    pilot.write()
    held = content(pilot)
    optional = next(one for one in held["per_repair"] if one["arm"] == "optional")
    assert (optional["trials"], optional["repairs"]) == (2, 1)
    assert optional["per_repair"]["device_seconds"] == 20.0
    assert optional["per_repair"]["tokens_total"] == 1442.0
    censored = row(held, pilot.of("optional")[1])
    assert (censored["censored"], censored["at_first_valid"]) == (True, None)
    found = comparison(held)
    assert (found["pairs"], found["complete_pairs"], found["censored_pairs"]) == (2, 1, 1)
    # Control: two repairs at 60. Optional: one at 60, one censored at its full 70 s: half a curve for ten seconds.
    assert found["restricted_mean"]["difference"] == 5.0
    told = "\n".join(held["cannot_conclude"])
    assert "A ratio of one pair has no spread and is no causal ratio" in told
    assert "1 of 2 pairs lack a proven repair" in told


def test_use_is_reported_from_evidence_and_activated_trials_apart(tmp_path):
    pilot = made(tmp_path, trials=2)
    user = pilot.of("optional")[0]
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        if trial == user:
            story[-1:-1] = [
                (95, "trial", events.Activation(stage="manual_read", evidence="call c0: cat manual")),
                (95, "trial", events.Activation(stage="activated", evidence="trace in work/run")),
            ]
        pilot.run(trial, story, slow=0.0) if trial.arm == "optional" else pilot.run(trial, slow=60.0)
    pilot.write()
    held = content(pilot)
    stages = row(held, user)["activation"]["stages"]
    assert stages == {"manual_read": 1, "prepared": 0, "imported": 0, "activated": 1}
    assert comparison(held, analysis="activated only")["pairs"] == 1
    assert comparison(held)["pairs"] == 2
    told = "\n".join(held["cannot_conclude"])
    assert "1 of 2 trials of arm optional activated TrainCheck" in told
    assert "which no random draw made" in told


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda event: event.model_copy(update={"leaks": ("work/x: the canary",)})
         if isinstance(event, events.Audited) and event.when == "last" else event,
         "leak (last audit): work/x: the canary"),
        (lambda event: event.model_copy(update={"devices_held": 1}) if isinstance(event, events.Closed) else event,
         "it ended with 1 devices not given back"),
        (lambda event: events.Attested(worker="w1", importable_at_start=True, imported_at_exit=False, guard=True)
         if isinstance(event, events.ToolAnswered) else event, "worker w1 could import the package"),
        (lambda event: events.Attested(worker="w1", importable_at_start=False, imported_at_exit=True, guard=True)
         if isinstance(event, events.ToolAnswered) else event, "worker w1 had imported the package"),
    ],
)  # fmt: skip
def test_trials_that_the_study_spoiled_stay_in_the_tables_and_out_of_the_effects(tmp_path, change, reason):
    pilot = made(tmp_path, arms=["control", "placebo"], trials=1)
    (spoiled,) = pilot.of("control")
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        if trial == spoiled:
            story = [(after, ledger, change(event)) for after, ledger, event in story]
        pilot.run(trial, story)
    pilot.write()
    held = content(pilot)
    found = row(held, spoiled)
    assert found["reasons"] == [reason]
    assert found["full"]["clocks"]["raw_s"] == 80.0  # its figures are kept
    assert comparison(held)["pairs"] == 0
    assert reason in report.texts(pilot.layout)[1][report.MARKDOWN]
    assert "1 of 2 planned trials do not count; each is listed with its reason." in held["cannot_conclude"]


def test_trials_without_end_or_without_ledger_do_not_count(tmp_path):
    pilot = made(tmp_path, trials=1)
    (control,), (optional,) = pilot.of("control"), pilot.of("optional")
    pilot.run(control, pilot.story(control)[:-1])
    pilot.write()
    held = content(pilot)
    assert row(held, optional)["reasons"] == ["it was not run"]
    deviations.record(
        pilot.layout.deviations, deviations.Deviation(what="not run", why="the provider was down", trial=optional.id)
    )
    assert row(content(pilot), optional)["reasons"] == ["it was not run: the provider was down"]
    assert "its ledger has no end" in row(held, control)["reasons"]


def test_a_ledger_that_was_changed_or_cut_off_spoils_its_trial(tmp_path):
    pilot = made(tmp_path, trials=1)
    for trial in pilot.plan.order:
        pilot.run(trial)
    pilot.write()
    (control,), (optional,) = pilot.of("control"), pilot.of("optional")
    path = pilot.layout.ledger(control.id)
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[:-2]) + b"\n")
    other = pilot.layout.ledger(optional.id)
    other.write_bytes(other.read_bytes().replace(b"first try", b"first tri"))
    held = content(pilot)
    assert any("cut off" in reason for reason in row(held, control)["reasons"])
    assert any("was changed" in reason for reason in row(held, optional)["reasons"])


@pytest.mark.parametrize(
    ("attested", "arm", "counts"),
    [
        (events.Attested(worker="w", importable_at_start=False, imported_at_exit=False, guard=True), "control", True),
        (events.Attested(worker="w", importable_at_start=False, imported_at_exit=None, guard=True), "control", True),
        (events.Attested(worker="w", importable_at_start=False, imported_at_exit=False, guard=False), "control", False),
        (events.Attested(worker="w", importable_at_start=True, imported_at_exit=True, guard=True), "optional", True),
    ],
)
def test_what_workers_attest_decides_in_arms_without_the_package(tmp_path, attested, arm, counts):
    pilot = made(tmp_path, trials=1)
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        if trial.arm == arm:
            story[-2:-2] = [(92, "trial", attested)]
        pilot.run(trial, story)
    pilot.write()
    found = row(content(pilot), pilot.of(arm)[0])
    assert found["counts"] is counts
    assert ("1 workers ended without attesting" in found["remarks"]) is (attested.imported_at_exit is None)


def test_limits_and_solver_failures_count_as_censored_with_a_remark(tmp_path):
    pilot = made(tmp_path, trials=1)
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        story[-2:-2] = [(94, "trial", events.LimitReached(budget="tokens")),
                        (94, "trial", events.SolverFailed(error="died", recovers=False))]  # fmt: skip
        pilot.run(trial, story, repaired=False)
    pilot.write()
    found = row(content(pilot), pilot.of("control")[0])
    assert found["counts"]
    assert found["censored"]
    assert "limit reached: tokens" in found["remarks"]
    assert any("the solver failed 1 times, last: died" in remark for remark in found["remarks"])


def test_bounded_first_valid_submissions_are_censored_and_named(tmp_path):
    pilot = made(tmp_path, trials=1)
    for trial in pilot.plan.order:
        pilot.run(trial)
        grade = pilot._grades[trial.id]
        bounded = FirstValid(status="bounded", earliest=1, latest=2)
        pilot.grade(trial, grade.model_copy(update={"first_valid": bounded}))
    pilot.write()
    held = content(pilot)
    assert row(held, pilot.of("control")[0])["censored"]
    assert any("The first valid submission of 2 trials is bounded" in text for text in held["cannot_conclude"])
    assert "bounded 1 to 2" in report.texts(pilot.layout)[1][report.MARKDOWN]


def test_false_alarms_on_bug_free_tasks_are_priced(tmp_path):
    pilot = made(tmp_path, trials=2, cases={"broken": "failure", "sound": "bug-free"})
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        if trial.case == "sound" and trial.arm == "control":  # it looked, and left everything as it was
            story = [one for one in story if not (isinstance(one[2], events.Submitted) and one[2].number)]
            story[-1] = (96, "trial", story[-1][2].model_copy(update={"final": pilot.initial}))
        pilot.run(trial, story, repaired=trial.case == "broken")
    pilot.write()
    held = content(pilot)
    by_arm = {one["arm"]: one for one in held["false_alarms"]}
    assert {name: by_arm["optional"][name] for name in ("trials", "submitted_a_change", "changed", "left_broken")} == {
        "trials": 2, "submitted_a_change": 2, "changed": 2, "left_broken": 2,
    }  # fmt: skip
    assert by_arm["control"]["changed"] == by_arm["control"]["submitted_a_change"] == 0
    assert (by_arm["optional"]["adjusted_s"], by_arm["optional"]["tokens"]) == (70.0, 721.0)
    assert {one["scope"] for one in held["comparisons"]} == {"case broken"}  # no repair is compared where none is due


def test_naming_the_public_issue_is_reported(tmp_path):
    pilot = made(tmp_path, trials=1)
    for trial in pilot.plan.order:
        said = f"This is issue #4242. {ORIGIN}" if trial.arm == "control" else ORIGIN
        pilot.run(trial, pilot.story(trial, said=said))
    pilot.write()
    held = content(pilot)
    (found,) = row(held, pilot.of("control")[0])["contamination"]
    assert found["word"] == "#4242"
    assert row(held, pilot.of("optional")[0])["contamination"] == []
    assert any("In 1 counted trials the agent named the public issue" in text for text in held["cannot_conclude"])


def test_milestones_and_agreement_come_from_the_annotations(tmp_path):
    pilot = made(tmp_path, trials=1)
    for trial in pilot.plan.order:
        pilot.run(trial)
    pilot.write()
    read = Pilot(pilot.layout, pilot.plan)
    odd = pilot.of("control")[0].id
    for name, changed in (("ann", {}), ("bob", {odd: {"M2": {"reached": False}}})):
        answers = Answers.model_validate(filled(read, name, changed))
        importing.keep(pilot.layout, importing.joined(read, answers, "0" * 64, packets(read, name, ())))
    held = content(pilot)
    milestones = row(held, pilot.of("optional")[0])["milestones"]
    assert [milestones[name]["state"] for name in milestones] == [
        "reached",
        "reached",
        "reached",
        "not reached",
        "reached",
    ]
    assert milestones["M5"]["adjusted_s"] == 50.0
    assert row(held, pilot.of("control")[0])["milestones"]["M2"] == {"state": "disputed"}
    assert len(held["agreement"]["disagreements"]) == 1
    text = report.texts(pilot.layout)[1][report.MARKDOWN]
    assert "disputed" in text
    assert "not reached" in text


def test_the_spread_that_was_seen_says_what_could_have_been(six):
    held = content(six)["observed_power"]
    # Control's log times spread, the treated ones' do not: pooled over 10 degrees of freedom.
    import numpy as np

    logs = np.log(60 + np.array(SLOW))
    assert held["observed_log_sd"] == pytest.approx(float(np.sqrt(((logs - logs.mean()) ** 2).sum() / 10)), abs=1e-6)
    assert (held["degrees_of_freedom"], held["trials_per_arm"]) == (10, 6)
    assert 0 < held["detectable_ratio"] < 1


def test_a_case_that_is_not_graded_is_refused_and_the_failure_kept(six):
    from traincheck.pilot.report import writing

    path = six.layout.grades("broken")
    content_before = path.read_bytes()
    path.unlink()
    with pytest.raises(TraincheckError, match="case broken not graded yet"):
        writing.write(six.layout, six.layout.report)
    path.write_bytes(content_before)
    held = writing.write(six.layout, six.layout.report)
    assert held["kept"]["failed_reports"] == ["case broken not graded yet"]


def test_a_grade_of_another_plan_is_refused(six):
    path = six.layout.grades("broken")
    path.write_text(path.read_text().replace(six.plan.hash, "0" * 64))
    with pytest.raises(TraincheckError, match="is of plan 000000000000"):
        report.texts(six.layout)


def test_deviations_are_listed_and_can_declare_a_trial_invalid(six):
    (trial, *_) = six.of("control")
    deviations.record(
        six.layout.deviations, deviations.Deviation(what="invalid", why="the machine was started anew", trial=trial.id)
    )
    held = content(six)
    assert row(held, trial)["reasons"] == ["declared invalid: the machine was started anew"]
    assert comparison(held)["pairs"] == 5
    assert "1 deviations from the plan are recorded; each is listed with its reason." in held["cannot_conclude"]
    assert "the machine was started anew" in report.texts(six.layout)[1][report.HTML]


def test_a_changed_plan_is_refused(six):
    (six.layout.root.parent / "broken" / "task.md").write_text("another\n")
    with pytest.raises(TraincheckError, match="does not hold any more"):
        report.texts(six.layout)


def test_a_request_of_nobody_is_named(tmp_path):
    pilot = made(tmp_path, trials=1)
    for trial in pilot.plan.order:
        story = pilot.story(trial)
        pilot.run(trial, story)
    stray = [event for _, ledger, event in pilot.story(pilot.plan.order[0]) if ledger == "device"]
    for after, event in enumerate(stray):  # a second each
        owner = {"owner": "nobody"} if isinstance(event, events.Asked) else {}
        pilot._entries.append((100.0 + after, 0, "device", event.model_copy(update={"request": "stray", **owner})))
    pilot.write()
    held = content(pilot)
    assert held["solver_unassigned"] == 1.0
    assert any("stray" in text for text in held["ledger_problems"])
    assert "Ledgers are not whole" in "\n".join(held["cannot_conclude"])
