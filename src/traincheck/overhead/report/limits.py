"""What the figures of a study are not, in plain words: said of this study, not of studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traincheck.overhead.statistics import FEWEST_PAIRS


def sentences(report: Mapping[str, Any]) -> list[str]:
    """Limits of the study that ``report`` (content of ``report.json``) is of."""
    modes = [row for row in report["modes"] if row["kind"] != "plain"]
    main = [row for row in modes if row["cohort"] == "main"]
    protocol, machine = report["protocol"], report["provenance"]["machine"]
    lengths = sorted({steps for row in report["modes"] for steps in row["steps"]})
    found = [
        f"All figures are of one machine ({machine['processor']}, {machine['usable_cpus']} CPUs) and one workload of "
        f"{' or '.join(map(str, lengths))} steps; another model, longer steps or a GPU give others."
    ]
    if report["state"] != "finished":
        found.append(f"The study was {report['state']}: it has fewer trials than planned.")
    if report["quick"]:
        found.append("It is the quick form of the study: a smoke test, no measurement to quote.")
    fewest = min((row["valid_pairs"] for row in main), default=0)
    if fewest < FEWEST_PAIRS:
        found.append(
            f"{_few(fewest)}: fewer than {FEWEST_PAIRS} pairs give a range and no interval worth the name, "
            "so small differences between modes are not told apart from chance."
        )
    if report["flagged"]:
        found.append(
            f"Trials under foreign load (named, not dropped): {len(report['flagged'])}. Their wall times "
            "are other processes' as much as ours. CPU time says more, but shared caches slow it too."
        )
    below = [row["mode"] for row in main if (row["slowdown"]["cpu"] or {}).get("median", 1) < 0.98]
    if below:
        found.append(f"{', '.join(below)} came out faster than plain: that is noise, and shows how large it is here.")
    for row in main:
        steady = min(row["steps"], default=0) - protocol["first_steady_step"] + 1
        if row["sampling_interval"] > steady:
            found.append(
                f"{row['mode']} observes every {row['sampling_interval']}th step, but a trial has {steady} steady "
                "steps: its mean step holds too few observed ones, or none."
            )
    if machine.get("governor") is None:
        found.append("The machine does not say how it sets its clock rate, so changes of it could not be excluded.")
    if report["provenance"]["source"]["dirty"]:
        found.append("The measured source had changes that are in no commit: the commit alone does not reproduce it.")
    elif report["provenance"]["source"]["commit"] is None:
        found.append("The measured source was no git checkout: its commit is not known.")
    if not report["budgets_are_of_this_workload"]:
        found.append("The budgets were set for another workload (TorchTitan's Llama debug model): a landmark here.")
    found.append("Start-up, draining and shutdown are in the phases, and in no slowdown.")
    found.append(f"Published figures are of {report['published_on']}; they can't be divided by those of this page.")
    if any(row["kind"].startswith("peer-") for row in modes):
        found.append(
            "A trial of the 0.x tool has the same program and clock, but the tool rewrites the start script and "
            "sees the taking of evidence too (outside of the timed steps)."
        )
    return found


def _few(pairs: int) -> str:
    return {0: "A mode has no pair that counts", 1: "A mode has one pair that counts"}.get(
        pairs, f"A mode has {pairs} pairs that count"
    )
