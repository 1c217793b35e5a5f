"""One trial under way: what its solver, its tools and its sandbox share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.inspecting.devices import Desk
from traincheck.pilot.inspecting.recorder import Budget, CloseReason, Recorder
from traincheck.pilot.places import Place
from traincheck.pilot.plan import Draft, SolverChoice, TrialPlan
from traincheck.pilot.sources import Objects, capture


@dataclass
class Trial:
    """A trial under way, in a process of its own."""

    planned: TrialPlan
    draft: Draft
    solver: SolverChoice
    case: CaseFolder
    place: Place
    objects: Objects
    recorder: Recorder
    desk: Desk
    instructions: str
    """The operator's first message."""
    socket: Path
    """Of the device service."""
    limit: Budget | None = None
    """The budget that was used up."""
    outcome: CloseReason = "interrupted"
    """Why it ended; stays so unless the solver came to its end."""
    stop: Callable[[], None] | None = field(default=None, repr=False)
    """Ends the solver where it stands."""

    def exhaust(self, budget: Budget) -> None:
        """A budget is used up: the first one is written down, and the solver ends."""
        if self.limit is None:
            self.limit = budget
            self.recorder.limit(budget)
        if self.stop is not None:
            self.stop()

    def without_paths(self, text: str) -> str:
        """A text of ours without the host's paths, which are nothing to a solver."""
        for path in (self.place.root / "work", self.place.root, self.objects.folder, self.socket):
            text = text.replace(f"{path}/", "").replace(str(path), "")
        return text

    def snapshot(self) -> str:
        """Capture the workspace as it is now; gives its source. Raises SourceError."""
        told = self.case.case
        found = capture(self.place.root / "work", self.objects, roots=told.roots, ignore=told.ignore)
        return self.objects.put_map(found)
