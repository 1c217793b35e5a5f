"""The study file: what is measured, how often, and from when on a measurement is doubted. TOML, and nothing unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from traincheck.errors import TraincheckError
from traincheck.studykit import toml
from traincheck.studykit.strict import Strict

SCHEMA = 1

Kind = Literal["api", "full", "selective", "live", "peer-api", "peer-subclass", "peer-selective"]
PLAIN = "plain"


class WorkloadChoice(Strict):
    """``[workload]``: which program trains."""

    name: str | None = None
    cls: str | None = Field(default=None, alias="class", pattern=r"^[\w.]+:\w+$")
    """``module:Class`` of a workload of one's own; the module lies beside the study file or is installed."""
    ranks: int = Field(default=1, ge=1)
    options: dict[str, int | float | str | bool] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one(self) -> WorkloadChoice:
        if (self.name is None) == (self.cls is None):
            raise ValueError("give either name or class")
        return self

    @property
    def program(self) -> str:
        """Its name, or its class."""
        return self.name or self.cls or ""


class Mode(Strict):
    """``[[modes]]``: one way of watching. The plain run is always there and is not listed."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    kind: Kind
    sampling_interval: int = Field(default=1, ge=1)
    """Every how many steps are observed, after the warm-up."""
    warm_up_steps: int = Field(default=0, ge=0)
    """First steps, all observed."""
    steps: int | None = Field(default=None, ge=1)
    """Steps of this mode's pairs where they are others than the protocol's: sampling wants longer trials."""

    @model_validator(mode="after")
    def _named(self) -> Mode:
        if self.name == PLAIN:
            raise ValueError("plain is the run without TrainCheck; choose another name")
        return self

    @property
    def peer(self) -> bool:
        """Whether the 0.x tool does it."""
        return self.kind.startswith("peer-")


class Protocol(Strict):
    """``[protocol]``: trials and their order."""

    pairs: int = Field(default=3, ge=1)
    """Pairs of a plain and a watched trial, for each mode."""
    steps: int = Field(default=10, ge=1)
    seed: int = 0
    order_seed: int = 0
    """Decides whether a pair begins with the plain run, and the order of pairs."""
    first_steady_step: int = Field(default=3, ge=1)
    """Figures are of the steps from this one on."""
    threads: int = Field(default=1, ge=1)
    timeout_s: int = Field(default=1200, ge=1)
    foreign_load: float = Field(default=0.2, ge=0)
    """CPUs that other processes may use on average before a trial is flagged."""

    @model_validator(mode="after")
    def _steady(self) -> Protocol:
        if self.first_steady_step > self.steps:
            raise ValueError(f"first_steady_step is {self.first_steady_step}, but there are {self.steps} steps")
        return self


class Reference(Strict):
    """``[reference]``: the healthy runs that invariants are learned from, collected in full."""

    seeds: tuple[int, ...] = Field(default=(0,), min_length=1)
    steps: int = Field(default=10, ge=1)


class HoldOut(Strict):
    """``[hold_out]``: trials with a seed and a length that nothing was learned from."""

    seed: int
    steps: int = Field(default=20, ge=1)
    pairs: int = Field(default=1, ge=1)
    modes: tuple[str, ...] = Field(min_length=1)


class Quick(Strict):
    """``[quick]``: what ``--quick`` changes."""

    pairs: int = Field(default=1, ge=1)
    steps: int | None = Field(default=None, ge=1)
    modes: tuple[str, ...] | None = None
    hold_out: bool = False


class Policy(Strict):
    """A study file."""

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    about: str = ""
    workload: WorkloadChoice
    protocol: Protocol = Protocol()
    reference: Reference = Reference()
    hold_out: HoldOut | None = None
    modes: tuple[Mode, ...] = Field(min_length=1)
    quick: Quick = Quick()

    @model_validator(mode="after")
    def _modes_exist(self) -> Policy:
        names = [mode.name for mode in self.modes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"modes: {name!r} is there twice")
        for mode in self.modes:
            if mode.steps is not None and mode.steps < self.protocol.first_steady_step:
                raise ValueError(f"modes: {mode.name!r} has {mode.steps} steps, none of them steady")
        for where, wanted in (
            ("hold_out.modes", self.hold_out.modes if self.hold_out else ()),
            ("quick.modes", self.quick.modes or ()),
        ):
            for name in wanted:
                if name not in names:
                    raise ValueError(f"{where}: there is no mode {name!r} (one of {', '.join(names)})")
        return self

    def quickened(self) -> Policy:
        """The policy of ``--quick``."""
        quick = self.quick
        protocol: dict[str, Any] = {"pairs": quick.pairs}
        if quick.steps is not None:
            protocol["steps"] = quick.steps
            protocol["first_steady_step"] = min(self.protocol.first_steady_step, quick.steps)
        hold_out = self.hold_out if quick.hold_out else None
        modes = tuple(mode.model_copy(update={"steps": None}) for mode in self.modes)
        changed = self.model_copy(
            update={"protocol": self.protocol.model_copy(update=protocol), "hold_out": hold_out, "modes": modes}
        )
        return changed.only(quick.modes) if quick.modes is not None else changed

    def only(self, names: tuple[str, ...]) -> Policy:
        """With these modes alone. Raises TraincheckError for a name that is none."""
        known = [mode.name for mode in self.modes]
        for name in names:
            if name not in known:
                raise TraincheckError(f"the study has no mode {name!r}", f"one of {', '.join(known)}")
        hold_out = self.hold_out
        if hold_out is not None:
            kept = tuple(name for name in hold_out.modes if name in names)
            hold_out = hold_out.model_copy(update={"modes": kept}) if kept else None
        modes = tuple(mode for mode in self.modes if mode.name in names)
        return self.model_copy(update={"modes": modes, "hold_out": hold_out})

    def mode(self, name: str) -> Mode:
        """The mode of that name."""
        return next(mode for mode in self.modes if mode.name == name)

    def to_json(self) -> dict[str, Any]:
        """As ``study.json`` holds it."""
        return self.model_dump(mode="json", by_alias=True)


def load_policy(path: Path) -> Policy:
    """The study file at ``path``. Raises TraincheckError that names the file and every field that is wrong."""
    return policy_of(toml.read(path, "a study file", "the shipped ones in studies/ are examples"), str(path))


def policy_of(data: dict[str, Any], name: str) -> Policy:
    """The policy of parsed TOML; ``name`` is what errors call the file."""
    return toml.validated(Policy, data, name, newest=SCHEMA, see="docs/overhead.md")
