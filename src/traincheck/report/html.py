"""``report.html``: one self-contained file, every value escaped, readable in light and dark, no script needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

if TYPE_CHECKING:
    from traincheck.check import Outcome, Result

MOST_ROWS: Final = 500
"""Invariants listed per verdict: the file stays small; all are in results.json."""

_ORDER: Final = ("violated", "error", "not_observable", "suppressed", "passed", "dormant")
_WORDS: Final = {
    "violated": "violated",
    "error": "failed in TrainCheck",
    "not_observable": "could not be judged",
    "suppressed": "violated but suppressed",
    "passed": "passed",
    "dormant": "did not apply",
}


def render(result: Result) -> str:
    """The report as text."""
    environment = Environment(
        loader=PackageLoader("traincheck.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    groups: list[tuple[str, str, list[Outcome], int]] = []
    for verdict in _ORDER:
        mine = [outcome for outcome in result.outcomes if _group(outcome) == verdict]
        if mine:
            groups.append((verdict, _WORDS[verdict], mine[:MOST_ROWS], max(len(mine) - MOST_ROWS, 0)))
    template = environment.get_template("report.html.j2")
    summary = {"suppressed": 0, **result.summary}
    return template.render(result=result, summary=summary, groups=groups, words=_WORDS, order=_ORDER)


def _group(outcome: Outcome) -> str:
    return "suppressed" if outcome.suppressed and outcome.outcome == "violated" else outcome.outcome
