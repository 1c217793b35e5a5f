"""The law *selective = full* on real programs: what a rule's own observation judges is what a full one would have.

Each program runs twice with the same seed, observed in full and as its rules need; every rule is judged on both.
"""

from __future__ import annotations

from traincheck.check import Outcome, check

from .running import Runs, every


def judged(outcome: Outcome) -> dict[str, object]:
    """All that is said of a rule but the events themselves, whose numbers differ between any two runs."""
    return {
        "outcome": outcome.outcome,
        "applications": outcome.applications,
        "violations": outcome.violations,
        "steps": outcome.steps,
        "violated_steps": outcome.violated_steps,
        "first_step": outcome.first_step,
        "last_step": outcome.last_step,
        "ranks": outcome.ranks,
    }


@every
def test_selective_is_full(runs: Runs, program: str, options: tuple[str, ...]) -> None:
    rules = runs.rules(program)
    full = check(runs.collect(program, *options), rules)
    part = check(runs.collect(program, *options, rules=rules), rules)
    assert len(full.outcomes) == len(part.outcomes) > 20
    different = {
        one.text: (judged(one), judged(two), two.reason)
        for one, two in zip(full.outcomes, part.outcomes, strict=True)
        if judged(one) != judged(two)
    }
    assert not different
    assert full.summary["not_observable"] == full.summary["error"] == 0
    assert bool(full.summary["violated"]) == bool(options)
    findings = [
        sorted((finding.title, finding.first_step, finding.apis, finding.tensors) for finding in result.findings)
        for result in (full, part)
    ]
    assert findings[0] == findings[1]
