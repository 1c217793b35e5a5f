"""What accounting says of a trial: clocks, tokens, device-seconds, through the first valid submission and in full."""

from __future__ import annotations

from traincheck.pilot.verdicts import FirstValidStatus
from traincheck.studykit.strict import Strict


class Clocks(Strict):
    """Three clocks, in seconds since the first model request that carries the task; none overwrites another."""

    raw_s: float
    queue_adjusted_s: float
    """Without the union of waits for devices."""
    adjusted_s: float
    """Without the union of waits for devices and suspensions."""


class TokenSums(Strict):
    """Tokens, each counted once."""

    input: int
    cached_input: int
    output: int
    reasoning: int
    """Part of ``output``."""
    total: int


class Point(Strict):
    """What had been used up at one moment."""

    clocks: Clocks
    tokens: TokenSums
    """Of answers that had arrived."""
    tokens_next: int
    """Total when the next answer arrives: the moment's tokens lie in [tokens.total, tokens_next]."""
    device_seconds: float
    """Devices x worker lifetime, leases clipped at the moment."""
    turn: int


class TrialFigures(Strict):
    """One trial's account."""

    trial: str
    case: str
    arm: str
    solver: str
    block: int
    first_valid: FirstValidStatus
    first_valid_number: int | None
    at_first_valid: Point | None
    """When the first valid submission is proven."""
    full: Point
    censored: bool
    """No first valid submission was proven: the trial counts with its full time as a lower bound."""
    submissions: int
    distinct_sources: int
    queue_wait_s: float
    """Union of waits."""
    suspended_s: float
    """Union of suspensions."""
    suspensions: dict[str, float]
    """Reason -> seconds."""
    model_requests: int
    transport_failures: int
    retries: int
    recoveries: int
    """Times that a good answer came after failures of transport or of the agent's program."""
    solver_failures: int = 0
    """Times that the agent's program ended with an error."""
    device_requests: int
    cost_gaps: int
    """Leases without an end; must be 0."""
    closed: str | None
    """Why the trial ended; None: its ledger has no end."""


class Costs(Strict):
    """Device-seconds of the three ledgers, which are never added up."""

    solver: float
    grading: float
    qualification: float
