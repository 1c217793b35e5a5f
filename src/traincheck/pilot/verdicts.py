"""What grading says: of one source in one scenario, of one submission, of one trial, of one case."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from traincheck.studykit.strict import Strict

Verdict = Literal["correct", "incorrect", "expected_failure", "unknown"]
"""``expected_failure``: the initial source in a designated scenario, registered before any trial. ``unknown``: a record
is missing, or the replay did not run for a reason of ours; never a pass."""

FirstValidStatus = Literal["proven", "bounded", "undetermined", "none"]


class Attempt(Strict):
    """One replay."""

    number: int = Field(ge=1)
    verdict: Verdict
    reason: str
    """What differs first (tensor, rank, step, by how much), or why there is no verdict."""
    oracle: str | None = None
    """Whose state it matches."""
    infrastructure: bool = False
    """Unknown for a reason that trying again may mend."""
    request: str
    """Of the device service."""


class Replay(Strict):
    """One source in one scenario: all attempts, and what they come to."""

    verdict: Verdict
    reason: str
    oracle: str | None = None
    attempts: tuple[Attempt, ...]


class Occurrence(Strict):
    """One submission of a trial, in order; number 0 is the initial snapshot."""

    number: int
    source: str
    verdict: Literal["correct", "incorrect", "unknown"]
    """Over all required scenarios: incorrect when one is definitely wrong, correct when all are correct."""


class FirstValid(Strict):
    """The earliest valid submission.

    ``proven``: ``number`` is correct and everything before it is definitely wrong. ``bounded``: a correct one exists
    (``latest``), but an unresolved one (``earliest``) came before. ``undetermined``: none is correct, some are
    unresolved. ``none``: all are definitely wrong, or there are none.
    """

    status: FirstValidStatus
    number: int | None = None
    earliest: int | None = None
    latest: int | None = None


class TrialGrade(Strict):
    """One trial."""

    occurrences: tuple[Occurrence, ...]
    distinct: int
    first_valid: FirstValid
    final: Occurrence
    """The last submission, judged by itself; the initial snapshot when nothing was submitted."""


class CaseGrade(Strict):
    """One case: ``grading/<case>.json``."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    plan: str
    case: str
    valid: bool
    """The initial source passes the healthy scenarios and fails the designated ones."""
    problems: tuple[str, ...] = ()
    sources: dict[str, dict[str, Replay]]
    """Source -> scenario -> replay."""
    trials: dict[str, TrialGrade]
    counts: dict[str, int]
    """Replays by verdict; they add up to sources x scenarios."""
