"""What ledgers of the pilot hold: one model for each kind of entry. Times are those of the entries themselves.

A trial has a ledger of its own (``TRIAL``); the device service writes one for all (``DEVICE``). Both use
CLOCK_MONOTONIC, so that they can be joined. Texts (messages, tool results) are kept once, as objects, and named here by
their SHA-256.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from traincheck.pilot.ledger import Entry, LedgerError
from traincheck.studykit.strict import Strict

Purpose = Literal["solver", "grading", "qualification"]
"""Which of the three cost ledgers device time belongs to; they are never added up."""


class Event(Strict):
    """Data of one entry."""


# -- of a trial ------------------------------------------------------------------------------------------------------


class Opened(Event):
    """The trial begins: packet and sandbox are there, the agent has been told nothing yet."""

    trial: str
    plan: str
    """Hash of the plan."""
    case: str
    arm: str
    solver: str
    packet: str
    """Source map of the workspace as the agent gets it."""
    sandbox: str
    """``jail``, ``local`` or ``docker``."""


class Audited(Event):
    """A leak audit, the first and the last thing of a trial: what an agent could see and must not."""

    when: Literal["first", "last"]
    looked_at: int
    """Files and variables that were looked at."""
    leaks: tuple[str, ...]
    """One sentence on each."""


class TurnStarted(Event):
    """The operator's message goes to the agent. ``turn`` counts from 1."""

    turn: int = Field(ge=1)
    text: str
    """Object."""


class TurnEnded(Event):
    """The agent's final message of the turn."""

    turn: int
    text: str | None = None


class ModelRequested(Event):
    """A request to the model. ``attempt`` counts from 1: retries have the same ``request``."""

    request: str
    turn: int
    attempt: int = 1
    carries_task: bool
    """Whether the task's text is in it: the clocks of the trial start at the first such request."""


class Tokens(Event):
    """Tokens of one answer, each counted in exactly one field."""

    input: int = Field(ge=0)
    """Not read from a cache; written to one included."""
    cached_input: int = Field(ge=0)
    output: int = Field(ge=0)
    """Reasoning included."""
    reasoning: int = Field(default=0, ge=0)
    """The part of ``output`` that is reasoning; never added to it."""

    @property
    def total(self) -> int:
        """Input + output, cached input once, reasoning not twice."""
        return self.input + self.cached_input + self.output


class ModelAnswered(Event):
    """The model's answer."""

    request: str
    model: str
    tokens: Tokens
    text: str | None = None
    """Object: the assistant's text, reasoning included where it is given."""


class ModelFailed(Event):
    """No answer. ``transport``: the connection or the provider failed, not the agent."""

    request: str
    attempt: int
    error: str
    transport: bool


class Suspended(Event):
    """From here the trial stands still for a reason that is not the agent's; ``resumed`` of that number ends it."""

    interval: int
    reason: str
    """For instance ``transport`` or ``operator``."""


class Resumed(Event):
    """The first good model answer after a recovery, or the operator's go-ahead."""

    interval: int


class SolverFailed(Event):
    """The agent's own process or program ended with an error."""

    error: str
    recovers: bool
    """Whether it is started again in the same workspace; no budget changes by that."""


class ToolCalled(Event):
    """The agent calls a tool."""

    call: str
    tool: str
    arguments: dict[str, Any]
    turn: int
    request: str | None = None
    """The model request whose answer held the call."""


class ToolAnswered(Event):
    """What the tool gave."""

    call: str
    text: str
    """Object."""
    failed: bool = False


class Submitted(Event):
    """A submission: one occurrence of a source. Number 0 is the initial snapshot, which nobody submitted."""

    number: int = Field(ge=0)
    source: str
    """Hash of the source map."""
    note: str = ""
    call: str | None = None


class Attested(Event):
    """What a Python worker of the trial said of TrainCheck, at its start and at its end."""

    worker: str
    importable_at_start: bool
    imported_at_exit: bool | None
    """None: the worker ended without saying."""
    guard: bool
    """Whether the import guard was in it."""


class Activation(Event):
    """Evidence of use: the manual was read, the package was prepared (installed, configured), imported, activated."""

    stage: Literal["manual_read", "prepared", "imported", "activated"]
    evidence: str
    """What was seen, e.g. the command or the trace's folder."""


class LimitReached(Event):
    """A budget is used up."""

    budget: Literal["time", "working_time", "tokens", "device_seconds", "turns"]


class Closed(Event):
    """The trial has ended; nothing follows."""

    reason: Literal["finished", "limit", "solver_failed", "interrupted"]
    final: str
    """Source of the workspace as it was left."""
    devices_held: int


TRIAL: Final[dict[str, type[Event]]] = {
    "opened": Opened,
    "audited": Audited,
    "turn_started": TurnStarted,
    "turn_ended": TurnEnded,
    "model_requested": ModelRequested,
    "model_answered": ModelAnswered,
    "model_failed": ModelFailed,
    "suspended": Suspended,
    "resumed": Resumed,
    "solver_failed": SolverFailed,
    "tool_called": ToolCalled,
    "tool_answered": ToolAnswered,
    "submitted": Submitted,
    "attested": Attested,
    "activation": Activation,
    "limit_reached": LimitReached,
    "closed": Closed,
}


# -- of the device service -------------------------------------------------------------------------------------------


class ServiceStarted(Event):
    """The service begins (or goes on after it was killed)."""

    devices: int
    kind: str
    """``cpu`` or ``gpu``."""


class Asked(Event):
    """A request came in. ``request`` is the caller's idempotency key."""

    request: str
    owner: str
    """Trial, or what else asks: ``grading/<case>``, ``qualification/<case>``."""
    purpose: Purpose
    devices: int
    command: tuple[str, ...]
    source: str
    """Source map that the job runs from."""
    cwd: str = "."
    """Folder of the source in which the command runs."""


class Granted(Event):
    """Devices are given: the wait is over."""

    request: str
    devices: tuple[int, ...]


class WorkerStarted(Event):
    """The job's process runs."""

    request: str
    pid: int


class WorkerEnded(Event):
    """The job's process has ended, clean-up included."""

    request: str
    exit_code: int
    reason: Literal["exit", "timeout", "cancelled", "budget", "lost"]
    """``budget``: the owner's device-seconds were used up. ``lost``: the service was killed while the worker ran, or
    what kept the worker was; its result is not known."""
    result: str | None = None
    """SHA-256 of the ``result.json`` that is given again when the request comes again."""


class Released(Event):
    """The devices are free again."""

    request: str


class Refused(Event):
    """The request was denied, or cancelled before it was granted: its wait is over, it used nothing."""

    request: str
    reason: str


class Replayed(Event):
    """A request came again after it was done: the result was given again, and nothing ran."""

    request: str


class ServiceStopped(Event):
    """The service ends."""

    held: int
    """Devices that were still given away: must be 0."""


DEVICE: Final[dict[str, type[Event]]] = {
    "service_started": ServiceStarted,
    "asked": Asked,
    "granted": Granted,
    "worker_started": WorkerStarted,
    "worker_ended": WorkerEnded,
    "released": Released,
    "refused": Refused,
    "replayed": Replayed,
    "service_stopped": ServiceStopped,
}

_KINDS: Final = {model: kind for table in (TRIAL, DEVICE) for kind, model in table.items()}


def kind_of(event: Event) -> str:
    """The kind under which an event is written."""
    return _KINDS[type(event)]


def data_of(event: Event) -> dict[str, Any]:
    """The event as a ledger's ``data``."""
    return event.model_dump(mode="json")


def parsed(entry: Entry, table: dict[str, type[Event]] = TRIAL) -> Event:
    """The event of an entry. Raises LedgerError for an unknown kind and for wrong fields."""
    try:
        return table[entry.kind].model_validate(entry.data)
    except KeyError as error:
        raise LedgerError(f"entry {entry.number} is of an unknown kind: {entry.kind!r}") from error
    except ValidationError as error:
        raise LedgerError(f"entry {entry.number} ({entry.kind}) has wrong fields: {error}") from error
