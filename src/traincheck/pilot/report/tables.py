"""The tables of a report: headers and rows of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from traincheck.pilot.annotating.milestones import MILESTONES

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table: ``>`` before a header flushes its column right."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


def trials(report: Report, case: str) -> Table:
    """One case: milestones, first valid submission, full costs, of each trial."""
    rows = []
    for row in report["trials"]:
        if row["case"] != case:
            continue
        first, at, full = row["first_valid"], row["at_first_valid"], row["full"]
        mark = (lambda text: text) if row["counts"] else (lambda text: text if text == "-" else f"({text})")
        cells = [
            *(_milestone(row["milestones"][name]) for name in MILESTONES),
            _first(first),
            number(at and at["clocks"]["raw_s"]),
            number(at and at["clocks"]["queue_adjusted_s"]),
            number(at and at["clocks"]["adjusted_s"]),
            number(at and at["tokens"]["total"]),
            number(at and at["device_seconds"], 3),
            number(at and at["turn"]),
            row["final"] or "-",
            number(row["submissions"]),
            number(row["distinct_sources"]),
            number(full and full["clocks"]["raw_s"]),
            number(full and full["clocks"]["adjusted_s"]),
            number(full and full["tokens"]["total"]),
            number(full and full["device_seconds"], 3),
        ]
        rows.append([row["trial"], str(row["block"]), row["arm"], row["solver"], *map(mark, cells)])
    headers = ["trial", ">block", "arm", "solver", *(f">{name}" for name in MILESTONES), "first valid", ">raw s",
               ">queue-adjusted s", ">adjusted s", ">tokens", ">device-s", ">turn", "final", ">submissions", ">sources",
               ">full wall s", ">full adjusted s", ">full tokens", ">full device-s"]  # fmt: skip
    return Table(f"Case {case}", headers, rows)


def milestones(report: Report) -> Table:
    """Reached milestones, with every clock and the bounds of tokens."""
    rows = []
    for row in report["trials"]:
        for name, held in row["milestones"].items():
            if held["state"] in ("reached", "disputed"):
                reached = held["state"] == "reached"
                rows.append(
                    [row["trial"], name, held["state"], number(held.get("raw_s")), number(held.get("queue_adjusted_s")),
                     number(held.get("adjusted_s")),
                     f"{held['tokens'][0]:,} to {held['tokens'][1]:,}" if reached else "-",
                     yes(held["before_first_device_request"]) if reached else "-"]
                )  # fmt: skip
    headers = ["trial", "milestone", "annotators", ">raw s", ">queue-adjusted s", ">adjusted s", ">tokens",
               "before the first device request"]  # fmt: skip
    return Table("Reached or disputed", headers, rows)


def alphas(report: Report) -> Table:
    """Krippendorff's alpha."""
    rows = [
        [row["what"].replace("_", " "), row["of"], row["level"],
         row["why_not"] if row["alpha"] is None else f"{row['alpha']:.3f}"]
        for row in report["agreement"]["alpha"]
    ]  # fmt: skip
    return Table("Agreement of annotators", ["of", "milestone", "level", ">Krippendorff's alpha"], rows)


def disagreements(report: Report) -> Table:
    """Where annotators differ."""
    rows = [
        [row["trial"], row["milestone"], "; ".join(f"{name}: {said}" for name, said in row["said"].items())]
        for row in report["agreement"]["disagreements"]
    ]
    return Table("Disagreements", ["trial", "milestone", "said"], rows)


def blinding(report: Report) -> str:
    """Whether annotators could tell arms apart, in words."""
    held = report["blinding"]
    if not held["guesses"]:
        return "No annotator guessed an arm: whether blinding held is not known."
    chance = f" ({held['by_chance']:.0%} by chance)" if held["by_chance"] is not None else ""
    return f"Annotators guessed the arm right in {held['right']} of {held['guesses']} guesses{chance}."


def comparisons(report: Report) -> Table:
    """Paired ratios."""
    rows = [
        [row["arm"], row["reference"], row["analysis"], row["scope"], row["measure"], str(row["pairs"]),
         str(row["complete_pairs"]), str(row["censored_pairs"]), number(row["ratio"], 3), interval(row, 3)]
        for row in report["comparisons"]
    ]  # fmt: skip
    headers = ["arm", "against", "analysis", "scope", "measure", ">blocks", ">with both", ">with one censored",
               ">ratio (geometric mean)", "95 % interval"]  # fmt: skip
    return Table("Paired ratios", headers, rows)


def restricted(report: Report) -> Table:
    """Restricted mean times to a valid repair."""
    rows = []
    for row in report["comparisons"]:
        held = row["restricted_mean"]
        if held is not None:
            horizon = "; ".join(f"{case} {value:,.1f}" for case, value in held["horizon"].items())
            rows.append(
                [row["arm"], row["reference"], row["analysis"], row["scope"], horizon, number(held["treated"]),
                 number(held["control"]), number(held["difference"]), interval(held, 1)]
            )  # fmt: skip
    headers = ["arm", "against", "analysis", "scope", "up to, s", ">arm s", ">reference s", ">difference s",
               "95 % interval"]  # fmt: skip
    return Table("Restricted mean of adjusted time without a repair", headers, rows)


def survival(report: Report) -> Table:
    """Repairs by case and arm."""
    rows = [
        [row["case"], row["arm"], str(row["trials"]), str(row["repaired"]),
         "not reached" if row["median_s"] is None else number(row["median_s"]), number(row["longest_s"])]
        for row in report["survival"]
    ]  # fmt: skip
    return Table("", ["case", "arm", ">trials", ">repaired", ">median adjusted s (Kaplan-Meier)", ">longest s"], rows)


def observed_spread(report: Report) -> str:
    """The spread that was seen, in words."""
    seen = report["observed_power"]
    if seen["observed_log_sd"] is None:
        return "Observed: no cell of case, arm and solver has two proven repairs; the spread is not known."
    told = (
        f"Observed: log times within cells have a standard deviation of {seen['observed_log_sd']:.3f} "
        f"({seen['degrees_of_freedom']} degrees of freedom)."
    )
    if seen["detectable_ratio"] is not None:
        told += f" {seen['trials_per_arm']} trials an arm then detect a time of {seen['detectable_ratio']:.0%} or less."
    if seen["needed_half"] is not None:
        told += f" A halving would need {seen['needed_half']} trials an arm."
    return told


def activation(report: Report) -> Table:
    """Use of the tool, from evidence."""
    rows = []
    for row in report["trials"]:
        stages = row["activation"]["stages"]
        rows.append(
            [row["trial"], row["arm"], *(str(count) if count else "no" for count in stages.values()),
             "; ".join(row["activation"]["evidence"][:3]) or "-"]
        )  # fmt: skip
    headers = ["trial", "arm", ">manual read", ">prepared", ">imported", ">activated", "evidence"]
    return Table("", headers, rows)


def validation(report: Report) -> Table:
    """Device requests by command."""
    rows = []
    for row in report["trials"]:
        held = row["validation"]
        for one in held["commands"]:
            rows.append(
                [row["trial"], row["arm"], shortened(one["command"], 200), str(one["times"]), str(one["sources"]),
                 ", ".join(map(str, one["devices"])), number(one["device_seconds"], 3),
                 ", ".join(f"{name} x {count}" for name, count in one["outcomes"].items())]
            )  # fmt: skip
        if not held["commands"]:
            rows.append([row["trial"], row["arm"], "none", "0", "0", "-", "-", "-"])
    headers = ["trial", "arm", "command", ">times", ">sources", ">devices", ">device-s", "outcomes"]
    return Table("", headers, rows)


def changed(report: Report) -> Table:
    """Files that the final source changes."""
    rows = [
        [row["trial"], row["arm"], row["final"] or "-",
         ", ".join(f"{path} ({how})" for path, how in row["changed_files"].items()) or "none"]
        for row in report["trials"]
        if row["final"] is not None
    ]  # fmt: skip
    return Table("", ["trial", "arm", "final verdict", "files"], rows)


def transport(report: Report) -> Table:
    """Failures of transport and solver, retries, recoveries."""
    names = ("model_requests", "transport_failures", "solver_failures", "retries", "recoveries")
    rows = []
    for row in report["trials"]:
        held = row["transport"]
        if held is not None:
            reasons = ", ".join(f"{name} {value:,.1f} s" for name, value in held["suspensions"].items()) or "-"
            rows.append(
                [row["trial"], *(str(held[name]) for name in names),
                 number(held["queue_wait_s"]), number(held["suspended_s"]), reasons]
            )  # fmt: skip
    headers = ["trial", *(f">{name.replace('_', ' ')}" for name in names), ">waited for devices s", ">suspended s",
               "reasons"]  # fmt: skip
    return Table("", headers, rows)


def ledgers(report: Report) -> Table:
    """Device-seconds by ledger."""
    rows = [
        [row["case"], number(row["solver_published" if row["reconciles"] else "solver"], 3),
         {True: "yes", False: "NO", None: "not known"}[row["reconciles"]],
         number(row["grading"], 3), number(row["qualification"], 3)]
        for row in report["ledgers"]
    ]  # fmt: skip
    if report["solver_unassigned"]:
        rows.append(["of no planned trial", number(report["solver_unassigned"], 3), "-", "-", "-"])
    headers = ["case", ">solvers", "trials add up to it", ">grading", ">qualification"]
    return Table("Device-seconds", headers, rows)


def per_repair(report: Report) -> Table:
    """What a valid repair cost."""
    rows = [
        [row["case"], row["arm"], str(row["trials"]), str(row["repairs"]),
         *(number(row["per_repair"][name], digits) for name, digits in (
             ("device_seconds", 3), ("wall_s", 1), ("tokens_input", 0), ("tokens_cached_input", 0),
             ("tokens_output", 0), ("tokens_total", 0)))]
        for row in report["per_repair"]
    ]  # fmt: skip
    headers = ["case", "arm", ">trials", ">repairs", ">solver device-s", ">wall s", ">input tokens",
               ">cached input tokens", ">output tokens", ">tokens"]  # fmt: skip
    return Table("Cost of a valid repair, trials without one included", headers, rows)


def grading_per_repair(report: Report) -> Table:
    """The other two ledgers over repairs."""
    rows = [
        [row["case"], str(row["repairs"]), number(row["grading"], 3), number(row["qualification"], 3)]
        for row in report["grading_per_repair"]
    ]
    headers = ["case", ">repairs", ">grading device-s", ">qualification device-s"]
    return Table("The other ledgers over the repairs of all arms", headers, rows)


def false_alarms(report: Report) -> Table:
    """Trials of tasks in which nothing is wrong."""
    names = ("trials", "submitted_a_change", "changed", "left_broken", "left_unknown", "claimed_an_origin")
    rows = [
        [row["case"], row["arm"], *(str(row[name]) for name in names),
         number(row["adjusted_s"]), number(row["tokens"], 0), number(row["device_seconds"], 3)]
        for row in report["false_alarms"]
    ]  # fmt: skip
    headers = ["case", "arm", ">trials", ">submitted a change", ">ended with one", ">left broken", ">left unknown",
               ">claimed an origin (M5)", ">mean adjusted s", ">mean tokens", ">mean device-s"]  # fmt: skip
    return Table("", headers, rows)


def contamination(report: Report) -> Table:
    """Where agents named the public issue."""
    rows = [
        [row["trial"], row["arm"], one["word"], str(one["entry"]), one["quote"]]
        for row in report["trials"]
        for one in row["contamination"]
    ]
    return Table("", ["trial", "arm", "named", ">entry", "quote"], rows)


def grading(report: Report) -> Table:
    """Cases as they were graded."""
    names = ("correct", "incorrect", "expected_failure", "unknown")
    rows = [
        [case["case"], case["kind"], {True: "yes", False: "NO: " + "; ".join(case["problems"]), None: "not graded"}[
            case["valid"]], str(case["sources"]), str(case["replays"]), str(case["attempts"]),
         *(str(case["verdicts"].get(name, 0)) for name in names)]
        for case in report["cases"]
    ]  # fmt: skip
    headers = ["case", "kind", "valid", ">sources", ">replays", ">attempts",
               *(f">{name.replace('_', ' ')}" for name in names)]  # fmt: skip
    return Table("", headers, rows)


def qualification(report: Report) -> Table:
    """Whether cases were qualified, as they were frozen."""
    rows = []
    for case in report["cases"]:
        held = case["qualified"]
        if not held["given"]:
            rows.append([case["case"], "not given", "-", "-", "-", "-", "-"])
            continue
        strict = f"{held['strict'] - len(held['strict_failed'])} of {held['strict']}"
        controls = f"{sum(one['holds'] for one in held['controls'])} of {len(held['controls'])}"
        rows.append(
            [case["case"], yes(held["valid"]), ", ".join(held["changed"]) or "nothing", strict, controls,
             "; ".join(f"{one['name']} {one['value']}{' ' + one['unit'] if one['unit'] else ''}"
                       for one in held["numbers"]) or "-",
             number(held["device_seconds"], 3)]
        )  # fmt: skip
    headers = ["case", "qualified", "changed since", ">strict checks that hold", ">other controls that hold", "numbers",
               ">device-s"]  # fmt: skip
    return Table("Cases", headers, rows)


def failed_checks(report: Report) -> Table:
    """Strict checks that failed stay failed; controls decided on before any trial stand beside them."""
    rows = []
    for case in report["cases"]:
        held = case["qualified"]
        for one in held.get("strict_failed", ()):
            rows.append([case["case"], "strict, failed", one["check"], one["wanted"], one["found"], "-"])
        for one in held.get("controls", ()):
            kind = "control, " + ("holds" if one["holds"] else "failed")
            rows.append([case["case"], kind, one["check"], one["wanted"], one["found"], one["relaxes"] or "-"])
    headers = ["case", "kind", "check", "wanted", "found", "in place of"]
    return Table("Strict checks that failed, and controls that are not strict", headers, rows)


def invalid(report: Report) -> Table:
    """Trials that do not count."""
    rows = [
        [row["trial"], row["case"], row["arm"], "; ".join(row["reasons"])]
        for row in report["trials"]
        if not row["counts"]
    ]
    return Table("Trials that do not count", ["trial", "case", "arm", "reasons"], rows)


def remarks(report: Report) -> Table:
    """Limits, failures, silent workers."""
    rows = [[row["trial"], row["arm"], "; ".join(row["remarks"])] for row in report["trials"] if row["remarks"]]
    return Table("Remarks", ["trial", "arm", "remarks"], rows)


def kept(report: Report) -> Table:
    """Failed reports and refused answers."""
    rows = [["report that could not be made", why] for why in report["kept"]["failed_reports"]]
    rows += [
        [f"refused answers, {one['kept_as']}", f"{one['file']}: {one['reason']}"]
        for one in report["kept"]["refused_answers"]
    ]
    return Table("Kept", ["what", "reason"], rows)


def deviations(report: Report) -> Table:
    """What was done otherwise."""
    rows = [[one["what"], one["trial"] or "all", one["why"]] for one in report["deviations"]]
    return Table("", ["what", "trial", "why"], rows)


def provenance(report: Report) -> Table:
    """Hashes, versions, budgets."""
    rows = [["plan", report["plan"]], *([name, value] for name, value in report["frozen"].items())]
    for case in report["cases"]:
        rows += [[f"case {case['case']}: {name}", value] for name, value in case["hashes"].items()]
    rows += [
        ["seed of the order", str(report["seed"])],
        ["versions", ", ".join(f"{name} {value}" for name, value in report["versions"].items())],
        ["budgets of a trial", ", ".join(f"{name} {value:g}" for name, value in report["budgets"].items())],
        ["solvers", ", ".join(f"{one['name']} ({one['agent']}, {one['model']})" for one in report["solvers"])],
    ]
    return Table("", ["", ""], rows)


def number(value: Any, digits: int = 1) -> str:
    """``1,234.5``; whole numbers without decimals; ``-`` for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def shortened(text: str, most: int) -> str:
    """``text`` with at most so many characters, the cut shown."""
    return text if len(text) <= most else text[: most - 1] + "…"


def interval(held: Mapping[str, Any], digits: int) -> str:
    """``0.41 to 0.92``, or why there is none."""
    if held["interval"] is None:
        return f"none: {held['no_interval']}"
    return f"{held['interval']['low']:,.{digits}f} to {held['interval']['high']:,.{digits}f}"


def yes(value: bool) -> str:
    """``yes`` or ``no``."""
    return "yes" if value else "no"


def _milestone(held: Mapping[str, Any]) -> str:
    return number(held["adjusted_s"]) if held["state"] == "reached" else {"not annotated": "-"}.get(
        held["state"], str(held["state"])
    )  # fmt: skip


def _first(first: Mapping[str, Any] | None) -> str:
    if first is None:
        return "-"
    if first["status"] == "proven":
        return f"submission {first['number']}"
    if first["status"] == "bounded":
        return f"bounded {first['earliest']} to {first['latest']}"
    return str(first["status"])
