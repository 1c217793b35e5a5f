"""Annotations as they are kept: ``annotations/<annotator>.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from traincheck.pilot.annotating.milestones import Milestone
from traincheck.pilot.figures import Clocks
from traincheck.studykit.strict import Strict


class Reached(Strict):
    """Where a milestone was reached."""

    event: int
    """Number in the transcript."""
    quote: str
    clocks: Clocks
    tokens: tuple[int, int]
    """Bounds: total tokens at the model answers on either side; never interpolated."""
    before_first_device_request: bool


class TrialAnnotation(Strict):
    """One trial. None: not reached."""

    milestones: dict[Milestone, Reached | None]
    guess: str | None = None


class Annotation(Strict):
    """All trials by one annotator."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    plan: str
    annotator: str
    answers: str
    """SHA-256 of the file that was imported."""
    trials: dict[str, TrialAnnotation]
