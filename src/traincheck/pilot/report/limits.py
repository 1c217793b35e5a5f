"""What a pilot's figures do not show, in plain words: made from this pilot's data, not from pilots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from traincheck.pilot.report.comparisons import ACTIVATED, ITT

Report = Mapping[str, Any]
_SURE_ALPHA = 0.8
_LEAST_ALPHA = 0.667
"""Krippendorff's own bounds: conclusions from 0.8 on, tentative ones from 0.667 on."""


def sentences(report: Report) -> list[str]:
    """Limits of the pilot that ``report`` (content of report.json) is of."""
    return [
        *_use(report),
        *_ratios(report),
        *_spread(report),
        *_cases(report),
        *_trials(report),
        *_solvers(report),
        *_annotations(report),
        *_plan(report),
    ]


def _use(report: Report) -> list[str]:
    found = []
    for arm in report["arms"]:
        held = [row for row in report["trials"] if row["arm"] == arm and row["counts"] and row["has_package"]]
        if not held:
            continue
        used = sum(row["activation"]["activated"] for row in held)
        if used == 0:
            found.append(
                f"None of the {len(held)} trials of arm {arm} activated TrainCheck: whatever differs between {arm} "
                "and another arm is no effect of its use, and no benefit of it is shown."
            )
        elif used < len(held):
            found.append(
                f"{used} of {len(held)} trials of arm {arm} activated TrainCheck. Figures by intention to treat are "
                "of access, not of use; those of activated trials alone compare trials that chose to use it, which no "
                "random draw made."
            )
    return found


def _ratios(report: Report) -> list[str]:
    """On the widest scope one sentence for each comparison; on parts of it, what they come to together."""
    found = []
    times = [row for row in report["comparisons"] if row["measure"] == "adjusted time"]
    widest = times[0]["scope"] if times else None
    for row in times:
        if row["scope"] == widest and (row["analysis"] == ITT or row["pairs"]):
            found += _ratio(row)
    parts = [row for row in times if row["scope"] != widest and row["analysis"] == ITT and row["pairs"]]
    if parts:
        none = sum(row["interval"] is None for row in parts)
        open_ = sum(row["interval"] is not None and _includes_one(row) for row in parts)
        found.append(
            f"Of {len(parts)} comparisons of times by case or by solver, {none} have too few pairs for an interval and "
            f"{open_} have one that includes 1: these show no difference."
        )
    several = [row for row in report["comparisons"] if row["interval"] is not None]
    if len(several) > 1:
        found.append(
            f"{len(several)} comparisons have an interval, each by itself at 95 %: about one in twenty misses by "
            "chance, and none is corrected for the others."
        )
    return found


def _ratio(row: Mapping[str, Any]) -> list[str]:
    """What one comparison of times does not show."""
    found = []
    name = f"{row['arm']} against {row['reference']}, {row['scope']}"
    if row["analysis"] == ACTIVATED:
        name += ", activated only"
    if not row["pairs"]:
        found.append(f"{name}: no block has two trials that count, so nothing is compared.")
    elif row["complete_pairs"] == 0:
        found.append(f"{name}: no block has a proven repair in both arms, so there is no ratio of times.")
    elif row["complete_pairs"] == 1:
        found.append(f"{name}: one pair of times. A ratio of one pair has no spread and is no causal ratio.")
    elif row["interval"] is None:
        found.append(
            f"{name}: {row['complete_pairs']} pairs of times, too few for an interval; the ratio may be chance."
        )
    elif _includes_one(row):
        found.append(
            f"{name}: the interval of the ratio, {row['interval']['low']:.2f} to {row['interval']['high']:.2f}, "
            "includes 1, so no difference is shown."
        )
    if row["complete_pairs"] and row["censored_pairs"]:
        found.append(
            f"{name}: {row['censored_pairs']} of {row['pairs']} pairs lack a proven repair and are in no ratio of "
            "times; the restricted mean holds them."
        )
    return found


def _includes_one(row: Mapping[str, Any]) -> bool:
    return bool(row["interval"]["low"] <= 1 <= row["interval"]["high"])


def _spread(report: Report) -> list[str]:
    seen = report["observed_power"]
    if not report["failures"]:
        return ["No case holds a failure, so nothing is said of repairs."]
    if seen["observed_log_sd"] is None:
        return ["No arm of one case and solver has two proven repairs: the spread of times is not known."]
    found = []
    if seen["detectable_ratio"] is not None:
        found.append(
            f"Log times within arms had a standard deviation of {seen['observed_log_sd']:.2f} (assumed: "
            f"{seen['assumed_log_sd']:.2f}). With that and {seen['trials_per_arm']} trials an arm, only a time of "
            f"{seen['detectable_ratio']:.0%} or less of the other arm's would be shown; smaller "
            "differences are not excluded."
        )
    if seen["censored"]:
        found.append(
            f"{seen['censored']} counted trials have no proven repair: the spread seen is of the others, and too small."
        )
    return found


def _cases(report: Report) -> list[str]:
    found = [
        f"Case {case['case']} is a {'reproduction' if case['kind'] == 'failure' else 'program without a fault'}: "
        f"{case['reproduction']}"
        for case in report["cases"]
    ]
    if len(report["failures"]) == 1:
        found.append("All repairs are of one case: nothing is said of other failures.")
    elif 1 < len(report["failures"]) < 6:
        found.append(
            f"Cases are {len(report['failures'])}: resampling so few says little of how other failures would come out."
        )
    for case in report["cases"]:
        held = case["qualified"]
        if not held["given"]:
            what = "fault and fix are real" if case["kind"] == "failure" else "it has no fault"
            found.append(f"No qualification of case {case['case']} was given: that {what} is not shown here.")
        elif held["changed"]:
            found.append(
                f"Case {case['case']} was qualified in another state: {', '.join(held['changed'])} changed since."
            )
        elif not held["valid"]:
            found.append(f"Case {case['case']} did not qualify: see the strict checks that failed.")
        elif held["strict_failed"]:
            found.append(
                f"{len(held['strict_failed'])} strict checks of case {case['case']} failed; it goes by other controls."
            )
        if case["valid"] is False:
            found.append(f"Case {case['case']} is invalid ({'; '.join(case['problems'])}): none of its trials counts.")
        if case["kind"] == "failure" and not case["names"]:
            found.append(
                f"Case {case['case']} lists no words of a public issue: whether agents knew it was not looked for."
            )
    return found


def _trials(report: Report) -> list[str]:
    rows = report["trials"]
    found = []
    invalid = [row for row in rows if not row["counts"]]
    if invalid:
        found.append(f"{len(invalid)} of {len(rows)} planned trials do not count; each is listed with its reason.")
    counted = [row for row in rows if row["counts"] and row["first_valid"] is not None]
    for status, why in (
        ("bounded", "an unresolved submission came before the first one known to be valid"),
        ("undetermined", "no submission is known to be valid and some are unresolved"),
    ):
        held = sum(row["first_valid"]["status"] == status for row in counted)
        if held:
            found.append(f"The first valid submission of {held} trials is {status}: {why}. They count as censored.")
    local = sum(row["sandbox"] == "local" for row in rows)
    if local:
        found.append(
            f"{local} trials ran in no sandbox (local): that nothing private was within reach rests on audits alone."
        )
    named = sum(bool(row["contamination"]) for row in rows if row["counts"])
    if named:
        found.append(
            f"In {named} counted trials the agent named the public issue: it may have known the repair beforehand."
        )
    return found


def _solvers(report: Report) -> list[str]:
    found = [
        f"Solver {solver['name']} is scripted: its figures test the study, and say nothing of agents."
        for solver in report["solvers"]
        if solver["agent"] == "scripted"
    ]
    agents = [solver for solver in report["solvers"] if solver["agent"] != "scripted"]
    if len({solver["model"] for solver in agents}) == 1:
        found.append(f"All agents are one model ({agents[0]['model']}): nothing is said of others.")
    return found


def _annotations(report: Report) -> list[str]:
    held = report["agreement"]
    if not held["annotators"]:
        return ["Nobody annotated the transcripts: there are no milestones."]
    if len(held["annotators"]) == 1:
        return ["One person annotated the transcripts: how far another would agree is not known."]
    found = []
    total = next(row for row in held["alpha"] if (row["what"], row["of"]) == ("reached", "all"))
    if total["alpha"] is None:
        found.append(f"Agreement on milestones has no figure: {total['why_not']}.")
    elif total["alpha"] < _LEAST_ALPHA:
        found.append(
            f"Annotators agree too little on milestones (alpha {total['alpha']:.2f}) to conclude anything from them."
        )
    elif total["alpha"] < _SURE_ALPHA:
        found.append(
            f"Annotators agree moderately on milestones (alpha {total['alpha']:.2f}): conclusions are tentative."
        )
    blind = report["blinding"]
    if blind["guesses"] and blind["by_chance"] is not None and blind["right"] / blind["guesses"] > blind["by_chance"]:
        found.append(
            f"Annotators guessed the arm right in {blind['right']} of {blind['guesses']} guesses "
            f"({blind['by_chance']:.0%} by chance): blinding may not have held."
        )
    return found


def _plan(report: Report) -> list[str]:
    found = []
    if report["deviations"]:
        found.append(
            f"{len(report['deviations'])} deviations from the plan are recorded; each is listed with its reason."
        )
    if report["changes"]:
        found.append(f"What the plan froze has changed since: {'; '.join(report['changes'])}.")
    if report["ledger_problems"]:
        found.append(f"Ledgers are not whole: {'; '.join(report['ledger_problems'])}.")
    wrong: Sequence[str] = [row["case"] for row in report["ledgers"] if row["reconciles"] is False]
    if wrong:
        found.append(f"Device-seconds of trials do not add up to the device ledger's in case {', '.join(wrong)}.")
    return found
