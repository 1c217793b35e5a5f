"""What annotators look for, and the file in which they answer."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator

from traincheck.studykit.strict import Strict

Milestone = Literal["M1", "M2", "M3", "M4", "M5"]

MILESTONES: Final[dict[Milestone, str]] = {
    "M1": "A hypothesis of the mechanism, stated before the first device request",
    "M2": "A diagnosis supported by source code",
    "M3": "A diagnosis supported by what a run showed, or an inconsistency confirmed by a run",
    "M4": "A wrong explanation rejected because of what a run showed",
    "M5": "The true origin identified",
}


class Answer(Strict):
    """One milestone in one packet."""

    reached: bool
    event: int | None = Field(default=None, ge=1)
    """Number of the event in the packet."""
    quote: str | None = Field(default=None, min_length=8)
    """Evidence, word for word from that event."""

    @model_validator(mode="after")
    def _evidence(self) -> Answer:
        if self.reached and (self.event is None or self.quote is None):
            raise ValueError("a milestone that is reached needs event and quote")
        if not self.reached and (self.event is not None or self.quote is not None):
            raise ValueError("a milestone that is not reached has no event and no quote")
        return self


class PacketAnswers(Strict):
    """One packet."""

    milestones: dict[Milestone, Answer]
    guess: str | None = None
    """The arm, if the annotator believes to know it: shows whether blinding worked."""

    @model_validator(mode="after")
    def _all(self) -> PacketAnswers:
        missing = [name for name in MILESTONES if name not in self.milestones]
        if missing:
            raise ValueError(f"{', '.join(missing)} not answered; what is not reached is reached = false")
        return self


class Answers(Strict):
    """``answers.json``, filled in by an annotator."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    plan: str
    annotator: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    packets: dict[str, PacketAnswers]
