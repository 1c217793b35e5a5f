"""Writes a trial's ledger while it runs. Knows nothing of Inspect; ``models`` and ``tools`` tell it what happens."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from traincheck.pilot import events
from traincheck.pilot.ledger import Ledger
from traincheck.pilot.sources import Objects
from traincheck.strictjson import strict

CloseReason = Literal["finished", "limit", "solver_failed", "interrupted"]
Budget = Literal["time", "working_time", "tokens", "device_seconds", "turns"]

TRANSPORT: Final = "transport"
SOLVER: Final = "solver"
"""Reasons of suspension: no answer for a reason that is not the agent's; the agent's own program ended."""


@dataclass
class _Call:
    tool: str
    answered: bool = False
    taken: bool = False


class Recorder:
    """The ledger of one trial, and what is needed to keep its entries consistent. Threads may share it."""

    def __init__(self, ledger: Ledger, objects: Objects) -> None:
        self._ledger = ledger
        self._objects = objects
        self._lock = threading.RLock()
        self._turn = 0
        self._requests = 0
        self._intervals = 0
        self._suspended: int | None = None
        self._calls: dict[str, _Call] = {}
        self._submissions = 0
        self.sources: list[str] = []
        """Source of every occurrence so far, the initial snapshot first."""
        self.on_answered: Callable[[str], None] | None = None
        """Is told of a call whose answer the model has been given."""

    def add(self, event: events.Event) -> None:
        """Write one entry. Raises OSError."""
        self._ledger.add(events.kind_of(event), events.data_of(event))

    def keep(self, text: str) -> str:
        """Keep a text as an object; gives its name."""
        return self._objects.put(text.encode(errors="backslashreplace"))

    # -- turns -------------------------------------------------------------------------------------------------------

    def turn_started(self, text: str) -> None:
        """The operator's next message."""
        with self._lock:
            self._turn += 1
            self.add(events.TurnStarted(turn=self._turn, text=self.keep(text)))

    def turn_ended(self, text: str | None) -> None:
        """The agent's final message of the turn."""
        with self._lock:
            self.add(events.TurnEnded(turn=self._turn, text=None if text is None else self.keep(text)))

    # -- the model ---------------------------------------------------------------------------------------------------

    def new_request(self) -> str:
        """A name for a request to the model."""
        with self._lock:
            self._requests += 1
            return f"r{self._requests:05d}"

    def requested(self, request: str, attempt: int, *, carries_task: bool) -> None:
        """A request goes out."""
        with self._lock:
            turn = max(self._turn, 1)
            self.add(events.ModelRequested(request=request, turn=turn, attempt=attempt, carries_task=carries_task))

    def answered(self, request: str, model: str, tokens: events.Tokens, text: str) -> None:
        """A good answer: it ends a suspension."""
        with self._lock:
            kept = self.keep(text) if text else None
            self.add(events.ModelAnswered(request=request, model=model, tokens=tokens, text=kept))
            if self._suspended is not None:
                self.add(events.Resumed(interval=self._suspended))
                self._suspended = None

    def failed(self, request: str, attempt: int, error: str, *, transport: bool) -> None:
        """No answer. A failure of transport begins a suspension, unless one is under way."""
        with self._lock:
            self.add(events.ModelFailed(request=request, attempt=attempt, error=error, transport=transport))
            if transport:
                self._suspend(TRANSPORT)

    def solver_failed(self, error: str, *, recovers: bool) -> None:
        """The agent's own program ended; when it is started again, the trial stands still until its first answer."""
        with self._lock:
            self.add(events.SolverFailed(error=error, recovers=recovers))
            for call in self._calls.values():  # what it was waiting for is given to nobody any more
                call.taken = True
            if recovers:
                self._suspend(SOLVER)

    def _suspend(self, reason: str) -> None:
        if self._suspended is None:
            self._intervals += 1
            self._suspended = self._intervals
            self.add(events.Suspended(interval=self._intervals, reason=reason))

    # -- tools -------------------------------------------------------------------------------------------------------

    def called(self, call: str, tool: str, arguments: Mapping[str, Any], request: str | None) -> None:
        """The agent calls a tool, in the answer to ``request``."""
        with self._lock:
            if call in self._calls:
                return
            self._calls[call] = _Call(tool)
            plain = json.loads(json.dumps(strict(dict(arguments)), default=str))
            self.add(events.ToolCalled(call=call, tool=tool, arguments=plain, turn=max(self._turn, 1), request=request))

    def result(self, call: str, text: str, *, failed: bool) -> None:
        """The model is given a tool's answer; told again, it is written once."""
        with self._lock:
            known = self._calls.get(call)
            if known is None or known.answered:
                return
            known.answered = True
            self.add(events.ToolAnswered(call=call, text=self.keep(text), failed=failed))
        if self.on_answered is not None:
            self.on_answered(call)

    def take(self, tool: str) -> str | None:
        """The oldest call of that tool that nothing was done for yet; over a bridge its name is ``…__tool``."""
        with self._lock:
            for name, call in self._calls.items():
                if not call.taken and not call.answered and (call.tool == tool or call.tool.endswith(f"__{tool}")):
                    call.taken = True
                    return name
            return None

    # -- submissions and the end -------------------------------------------------------------------------------------

    def submitted(self, source: str, note: str = "", call: str | None = None) -> int:
        """An occurrence of a source; number 0 is the initial snapshot. Gives its number."""
        with self._lock:
            number = self._submissions
            self._submissions += 1
            self.sources.append(source)
            self.add(events.Submitted(number=number, source=source, note=note, call=call))
            return number

    def limit(self, budget: Budget) -> None:
        """A budget is used up."""
        self.add(events.LimitReached(budget=budget))

    def close(self, reason: CloseReason, final: str, devices_held: int) -> str:
        """The last entry; gives the ledger's head."""
        with self._lock:
            self.add(events.Closed(reason=reason, final=final, devices_held=devices_held))
            self._ledger.close()
            return self._ledger.head
