"""The tables of a report: headers and rows of text, the same for Markdown and HTML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from traincheck.overhead.report import budgets
from traincheck.overhead.report.values import amount, between, ratio, spread

Report = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table: ``>`` before a header flushes its column right."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


def slowdowns(report: Report) -> Table:
    """Slowdown of each mode, and what it writes. Intervals have columns where a mode has one."""
    sure = any(told and told["interval"] for mode in report["modes"] for told in mode["slowdown"].values())
    rows = []
    for mode in report["modes"]:
        plain = mode["kind"] == "plain"
        pairs = f"{mode['runs']} runs" if plain else f"{mode['valid_pairs']} of {mode['pairs']}"
        row = [mode["cohort"], mode["mode"], pairs, amount(mode["wall_ms"]), amount(mode["cpu_ms"])]
        for clock in ("wall", "cpu"):
            told = mode["slowdown"][clock]
            row += ["" if plain else spread(told), *(["" if plain else between(told)] if sure else [])]
        row += ["", "", ""] if plain else [
            mode["figure"], _whole(mode["records_per_10_steps"]), amount(mode["mb_per_10_steps"])
        ]  # fmt: skip
        rows.append(row)
    intervals = [">95 % interval"] if sure else []
    headers = ["cohort", "mode", "pairs", ">wall ms", ">CPU ms", ">slowdown, wall", *intervals, ">slowdown, CPU",
               *intervals, "figure", ">records / 10 steps", ">MB / 10 steps"]  # fmt: skip
    return Table(headers, rows)


def budget_rows(report: Report) -> Table:
    """Budgets beside what was measured and what is published."""
    rows = []
    for row in report["budgets"]:
        measured = _with_unit(row["measured"], row["unit"])
        if row["cpu"] is not None:
            measured += f" wall, {_with_unit(row['cpu'], row['unit'])} CPU"
        rows.append([row["budget"], row["mode"] or "-", f"≤ {row['limit']:g}{_unit(row['unit'])}", measured,
                     budgets.verdict(row), row["published"] or "-"])  # fmt: skip
    return Table(["budget", "mode", ">limit", ">measured here", "verdict", ">published for 0.x, other machine"], rows)


def pairs(report: Report) -> Table:
    """Each pair: evidence and slowdown."""
    rows = []
    for pair in report["evidence"]["each"]:
        reasons = "; ".join(pair["reasons"]) or ("flagged" if pair["flagged"] else "")
        ratios = [_of_pair(pair, figure) for figure in ("wall_median", "cpu_median", "wall_mean", "cpu_mean")]
        rows.append([pair["cohort"], str(pair["pair"]), pair["mode"], pair["first"], str(pair["seed"]),
                     "yes" if pair["evidence_equal"] else "no", amount(pair["facts_compared"]), *ratios,
                     reasons])  # fmt: skip
    headers = ["cohort", ">pair", "mode", "began with", ">seed", "training the same", ">facts compared",
               ">wall, median step", ">CPU, median step", ">wall, mean step", ">CPU, mean step", "remarks"]  # fmt: skip
    return Table(headers, rows)


def audits(report: Report) -> Table:
    """Each trace: what is in it and whether it is whole."""
    rows = []
    for row in report["audits"]:
        kinds = row.get("per_kind", {})
        verdict = "not audited (0.x)" if not row["audited"] else "; ".join(row["faults"]) or "complete and unique"
        plan = f"{row['scope']} {row['plan_hash'][:8]}" if row["audited"] else "-"
        counts = (row["records"], row["call_pairs"], kinds.get("capture"), kinds.get("state"), row.get("functions"),
                  row.get("threads"), row["bytes"])  # fmt: skip
        rows.append([row["trial"], plan, *map(amount, counts), verdict])
    headers = ["trial", "plan", ">records", ">call pairs", ">captures", ">states", ">functions", ">threads", ">bytes",
               "audit"]  # fmt: skip
    return Table(headers, rows)


def outcomes(report: Report) -> Table:
    """Verdict counts per cohort and mode."""
    names = ("total", "passed", "violated", "dormant", "not_observable", "error")
    rows = [
        [row["cohort"], row["mode"], str(len(row["trials"])), *(amount(row["counts"].get(name, 0)) for name in names)]
        for row in report["outcomes"]
    ]
    headers = ["cohort", "mode", ">trials", ">invariants", ">passed", ">violated", ">dormant", ">not observable",
               ">error"]  # fmt: skip
    return Table(headers, rows)


def agreement(report: Report) -> Table:
    """Observed outcomes (selective trace) against direct ones (full trace of the same seed and length)."""
    rows = []
    for row in report["agreement"]:
        if row["direct"] is None:
            rows.append([row["observed"], "-", "-", "-", str(row["why_not"])])
        else:
            of = row["invariants"]
            rows.append([row["observed"], row["direct"], f"{row['same_verdict']}/{of}", f"{row['same']}/{of}",
                         "all agree" if row["same"] == of else "see outcomes.json"])  # fmt: skip
    return Table(
        ["observed (selective)", "direct (full)", ">same verdict", ">same applications and steps too", "remarks"], rows
    )


def phases(report: Report) -> Table:
    """Seconds of each phase, apart from steps."""
    names = ["launch", "import", "set_up", "evidence_before", "training", "steps", "evidence_after", "close", "drain",
             "shutdown"]  # fmt: skip
    rows = [
        [row["cohort"], row["mode"], str(row["runs"]), *(amount(row["seconds"].get(name), digits=3) for name in names)]
        for row in report["phases"]
    ]
    return Table(["cohort", "mode", ">runs", *(f">{name.replace('_', ' ')}" for name in names)], rows)


def provenance(report: Report) -> Table:
    """Where the figures come from."""
    held = report["provenance"]
    machine, source = held["machine"], held["source"]
    dirty = {None: "unknown", True: "yes: it had changes that are in no commit", False: "no"}[source["dirty"]]
    rows = [
        ["source commit", source["commit"] or "unknown"],
        ["source changed since", dirty],
        ["versions", ", ".join(f"{name} {version}" for name, version in held["versions"].items())],
        ["Python", held["python"]],
        ["machine", f"{machine['processor']}, {machine['usable_cpus']} of {machine['cpus']} CPUs, "
                    f"{machine['memory_gb']} GB, Linux {machine['kernel']}, {machine['libc']}"],
        ["clock", f"governor {machine['governor'] or 'unknown'}, clock source {machine['clock_source'] or 'unknown'}"],
        ["load at the start", ", ".join(map(str, held["load"]))],
        ["threads", str(held["threads"])],
        ["workload", ", ".join(f"{name} {value}" for name, value in held["facts"].items())],
        ["environment", " ".join(f"{name}={value}" for name, value in held["environment"].items())],
    ]  # fmt: skip
    if held["peer_versions"]:
        rows.append(["0.x environment", ", ".join(f"{name} {v}" for name, v in held["peer_versions"].items())])
    rows += [[f"SHA-256 of {name}", value or "-"] for name, value in held["hashes"].items()]
    return Table(["", ""], rows)


def commands(report: Report) -> list[str]:
    """Every command as it was run, one a line."""
    lines = []
    held = report["provenance"]
    if held["infer_command"]:
        lines.append(f"# learning\n{shlex.join(held['infer_command'])}")
    for row in held["commands"]:
        lines.append(f"# {row['trial']}\n{shlex.join(row['command'])}")
        if row["check"]:
            lines.append(shlex.join(row["check"]))
    return lines


def large_files(report: Report) -> Table:
    """Large artifacts: path, size and hash only."""
    rows = [[row["path"], amount(row["bytes"]), row["sha256"]] for row in report["provenance"]["large_files"]]
    return Table(["path", ">bytes", "SHA-256"], rows)


def _of_pair(pair: Mapping[str, Any], figure: str) -> str:
    """The pair's ratio, in brackets where it does not count."""
    told = ratio((pair["ratios"] or {}).get(figure))
    return told if pair["valid"] or told == "-" else f"({told})"


def _with_unit(value: Any, unit: str) -> str:
    return ratio(value) if unit == "x" else amount(value, unit)


def _unit(unit: str) -> str:
    return unit if unit == "x" else f" {unit}"


def _whole(value: Any) -> str:
    return amount(round(value)) if isinstance(value, (int, float)) else "-"
