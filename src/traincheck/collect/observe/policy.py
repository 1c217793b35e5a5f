"""Which state to observe: reasons (the observation points) and what is recorded at each. Plain data, part of the
plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

DATA: Final = "data"
GRAD: Final = "grad"
HAS_GRAD: Final = "has_grad"
"""Whether there is a gradient, not its content. Only selective plans ask for so little; ``GRAD`` says it as well."""
FACTS: Final = "facts"
STATE: Final = "state"
GROUPS: Final = "groups"
MODE: Final = "mode"
PRESENT: Final = "present"
"""What is recorded of a gradient that is there, where only that is asked for."""
VALUE: Final = "value"

FULL: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "optimizer": frozenset({GROUPS}),
        "baseline": frozenset({DATA, GRAD, FACTS, MODE}),
        "step:before": frozenset({DATA, GRAD, FACTS, MODE}),
        "step:after": frozenset({DATA, STATE, GROUPS}),
        "zero_grad:before": frozenset({GRAD}),
        "zero_grad:after": frozenset({GRAD}),
        "backward": frozenset({GRAD}),
        "loss": frozenset({VALUE}),
        "load_state_dict": frozenset({DATA, STATE, GROUPS}),
        "mode": frozenset({MODE}),
        "scheduler": frozenset({GROUPS}),
        "batch": frozenset({VALUE}),
        "input": frozenset({VALUE}),
        "rng": frozenset({VALUE}),
        "file": frozenset({VALUE}),
        "process": frozenset({VALUE}),
    }
)
"""Reason -> parts observed there. ``step`` and ``zero_grad`` are split by moment; the OBSERVE record has the plain
reason and the moment.
"""


FACT_NAMES: Final = frozenset(
    (
        "dtype",
        "shape",
        "device",
        "tied_to",
        "requires_grad",
        "in_optimizer",
        "layout",
        "local_shape",
        "placements",
        "tensor_model_parallel",
    )
)
OTHER_NAMES: Final = frozenset(
    ("data", "grad", "value", "size", "tensors", "supervised", "training", "training_modules", "modules", "lr")
)


@dataclass(frozen=True)
class Policy:
    """What to observe where. ``parts`` maps a reason to its parts; a reason not in it is not observed.

    ``names``: only tensors of these qualified names (None: all). ``force_reduction``: the device digest on CPU tensors
    too.
    """

    parts: Mapping[str, frozenset[str]] = field(default_factory=lambda: FULL)
    names: frozenset[str] | None = None
    force_reduction: bool = False

    def at(self, reason: str) -> frozenset[str]:
        """Parts observed at ``reason``; empty if it is not observed."""
        return self.parts.get(reason, frozenset())

    @classmethod
    def for_attributes(cls, attributes: Iterable[str]) -> Policy:
        """What is needed to see these attributes; none: everything. Only content that costs is left out, small
        facts stay.
        """
        wanted = frozenset(attributes)
        if not wanted:
            return cls()
        leave = set()
        if DATA not in wanted:
            leave.add(DATA)
        if GRAD not in wanted:
            leave.add(GRAD)
        if not wanted & FACT_NAMES and not any(name.startswith("mesh") for name in wanted):
            leave.add(FACTS)
        if wanted <= FACT_NAMES | OTHER_NAMES:
            leave.add(STATE)
        return cls({reason: parts - leave for reason, parts in FULL.items()})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data; ``from_json`` reads it back."""
        return {
            "parts": {reason: sorted(parts) for reason, parts in sorted(self.parts.items())},
            "names": None if self.names is None else sorted(self.names),
            "force_reduction": self.force_reduction,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Policy:
        """Read ``to_json``'s data. Raises ValueError for a reason or part this version does not know (it could not
        be observed).
        """
        known = {part for parts in FULL.values() for part in parts} | {HAS_GRAD}
        parts = {str(reason): frozenset(map(str, found)) for reason, found in data.get("parts", {}).items()}
        strangers = (set(parts) - set(FULL)) | ({part for found in parts.values() for part in found} - known)
        if strangers:
            raise ValueError(
                f"cannot observe {sorted(strangers)}: known reasons are {sorted(FULL)}, known parts {sorted(known)}; "
                "use the TrainCheck version that wrote this plan, or make the plan anew"
            )
        names = data.get("names")
        return cls(
            parts, None if names is None else frozenset(map(str, names)), bool(data.get("force_reduction", False))
        )
