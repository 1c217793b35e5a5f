"""What ``traincheck check`` prints: a line per finding (what broke, where, since when), then what it usually means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from traincheck.check import Result
    from traincheck.findings import Finding

MOST_FINDINGS: Final = 10


def render(result: Result, console: Console, most: int = MOST_FINDINGS) -> None:
    """Print the result, short: findings, then one line of counts, then what was not judged."""
    for finding in result.findings[:most]:
        console.print(_line(finding), soft_wrap=True)
        console.print(Text(f"  {finding.meaning}", style="dim"), soft_wrap=True)
    if len(result.findings) > most:
        console.print(f"… and {len(result.findings) - most} more findings: see findings.json or --json")
    if result.findings:
        if result.never_called:
            console.print(
                Text(f"  Never called in this run, but in the references: {_some(result.never_called)}"), soft_wrap=True
            )
        console.print(Text.assemble(("next: ", "bold"), result.findings[0].next_command), soft_wrap=True)
    console.print(_counts(result), soft_wrap=True)
    summary = result.summary
    if summary["total"] and not (summary["violated"] or summary["passed"] or summary.get("suppressed")):
        console.print(Text("warning: not one invariant could be applied to this run", style="yellow"), soft_wrap=True)
    if not summary["total"]:
        console.print(Text("warning: there was no invariant to check", style="yellow"), soft_wrap=True)
    for outcome in result.outcomes:
        if outcome.outcome == "error":
            console.print(Text(f"error: invariant {outcome.index}: {outcome.reason}", style="red"), soft_wrap=True)
    for lack in result.lacks:
        console.print(Text(f"note: {lack}", style="dim"), soft_wrap=True)


def _line(finding: Finding) -> Text:
    parts = []
    if finding.first_step is not None:
        parts.append(f"since step {finding.first_step}")
    if finding.ranks:
        parts.append(f"rank {', '.join(map(str, finding.ranks))}")
    if finding.location:
        parts.append(f"at {finding.location}")
    return Text.assemble(("✗ ", "bold red"), (finding.title, "bold"), f"  ({', '.join(parts)})" if parts else "")


def _counts(result: Result) -> Text:
    summary = result.summary
    words = [
        (f"{summary['violated']} violated", "bold red" if summary["violated"] else ""),
        (f"{summary['passed']} passed", "green" if summary["passed"] else ""),
        (f"{summary['dormant']} did not apply", ""),
    ]
    if summary.get("suppressed"):
        words.insert(1, (f"{summary['suppressed']} violated but suppressed", "yellow"))
    if summary["not_observable"]:
        words.append((f"{summary['not_observable']} could not be judged", "yellow"))
    if summary["error"]:
        words.append((f"{summary['error']} failed in TrainCheck", "red"))
    text = Text(f"{summary['total']} invariant{'' if summary['total'] == 1 else 's'}: ")
    for number, (word, style) in enumerate(words):
        text.append(", " if number else "")
        text.append(word, style=style)
    return text


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
