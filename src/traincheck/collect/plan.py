"""The plan: which functions to probe, what to capture, which state to observe, at which steps. Plain data, made by the
launcher.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

SCOPES = ("full", "boundary", "selective")


@dataclass(frozen=True)
class Plan:
    """What one run observes.

    ``scope``: ``full`` (public functions of the packages), ``boundary`` (what training loops are made of),
    ``selective`` (only ``functions``).
    ``packages``: top-level packages whose public functions the full scope takes; ``torch`` is always among them.
    ``functions``: for ``selective``, full function name -> capture paths (``["*"]``: all arguments and the result).
    ``state``: observe tensors and other state at observation points. ``attributes``: which (empty: all).
    ``observe``: exactly which parts at which reasons (``observe.policy``); empty: as ``attributes`` say.
    ``unobservable``: invariants (``id``, ``reason``) that were asked for and cannot be observed.
    ``every``, ``warmup``: the first ``warmup`` steps are observed, then every ``every``-th. ``stages``: only these
    (empty: all).
    ``trace_workers``: also trace DataLoader workers. ``segment_bytes``: size reserved on disk at a time.
    """

    scope: str = "full"
    packages: tuple[str, ...] = ("torch",)
    functions: dict[str, list[str]] = field(default_factory=dict)
    state: bool = True
    attributes: tuple[str, ...] = ()
    observe: dict[str, list[str]] = field(default_factory=dict)
    unobservable: list[dict[str, str]] = field(default_factory=list)
    every: int = 1
    warmup: int = 0
    stages: tuple[str, ...] = ()
    trace_workers: bool = False
    segment_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        if self.scope not in SCOPES:
            raise ValueError(f"scope is one of {', '.join(SCOPES)}, not {self.scope!r}")
        if self.every < 1 or self.warmup < 0:
            raise ValueError(f"every must be at least 1 and warmup at least 0, not {self.every} and {self.warmup}")

    def observes(self, step: int) -> bool:
        """Whether step ``step`` (from 1) is observed."""
        return step <= self.warmup or (step - self.warmup) % self.every == 0

    @property
    def samples(self) -> bool:
        """Whether some steps are left out."""
        return self.every > 1

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        """The plan of ``to_json``'s values; unknown keys are refused with ValueError."""
        unknown = sorted(set(data) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(f"unknown plan fields: {', '.join(unknown)}")
        lists = {k: tuple(v) for k, v in data.items() if k in ("packages", "attributes", "stages")}
        return cls(**{**data, **lists})

    def digest(self) -> str:
        """SHA-256 of the plan, as 64 hex digits."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()
