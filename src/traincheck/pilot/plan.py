"""The plan: everything that is decided before the first agent, frozen under one hash that stands in every artifact."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from traincheck.pilot.canonical import sha256
from traincheck.studykit.strict import Strict

SCHEMA = 1

Arm = Literal["control", "optional", "encouraged", "instructed", "placebo"]
"""``control``: no package, no manual. ``optional``: package and manual. ``encouraged`` and ``instructed``: a sentence
more. ``placebo``: a manual of equal length on something else, no package."""

WITH_PACKAGE: tuple[Arm, ...] = ("optional", "encouraged", "instructed")


class SolverChoice(Strict):
    """``[[solvers]]``: who works on the tasks."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    agent: Literal["react", "claude_code", "codex_cli", "scripted"]
    model: str
    """As Inspect names it; ``mockllm/model`` for scripted ones."""
    script: str | None = None
    """Of a scripted solver: its name in traincheck.pilot.inspecting.scripts."""

    @model_validator(mode="after")
    def _scripted(self) -> SolverChoice:
        if (self.agent == "scripted") != (self.script is not None):
            raise ValueError("script belongs to agent = 'scripted', and to no other")
        return self


class Budgets(Strict):
    """``[budgets]`` of one trial. Recovery changes none of them."""

    time_s: int = Field(ge=1)
    """By the raw clock."""
    working_time_s: int = Field(ge=1)
    """Without waiting for devices."""
    tokens: int = Field(ge=1)
    device_seconds: float = Field(gt=0)
    turns: int = Field(default=1, ge=1)


class Devices(Strict):
    """``[devices]``: what the service gives out."""

    kind: Literal["cpu", "gpu"] = "cpu"
    count: int = Field(default=2, ge=1)
    job_timeout_s: int = Field(default=600, ge=1)


class Grading(Strict):
    """``[grading]``."""

    attempts: int = Field(default=2, ge=1, le=5)
    """At most so many replays of one source in one scenario; only infrastructure unknowns are tried again."""


class Power(Strict):
    """``[power]``: what the study could see."""

    log_sd: float = Field(default=0.49, gt=0)
    """Standard deviation of the log time to a valid repair, between trials of one arm."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    power: float = Field(default=0.8, gt=0, lt=1)


class Draft(Strict):
    """A plan as people write it (TOML)."""

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    about: str = ""
    cases: tuple[str, ...] = Field(min_length=1)
    """Folders, relative to the draft."""
    arms: tuple[Arm, ...] = ("control", "optional")
    solvers: tuple[SolverChoice, ...] = Field(min_length=1)
    trials: int = Field(default=5, ge=1)
    """Of each case x arm x solver."""
    seed: int = 0
    """Of the order."""
    parallel: int = Field(default=1, ge=1)
    """Trials side by side."""
    turns: tuple[str, ...] = ()
    """The operator's later messages, after the task; at most ``budgets.turns`` - 1."""
    sandbox: Literal["auto", "jail", "local", "docker"] = "auto"
    budgets: Budgets
    devices: Devices = Devices()
    grading: Grading = Grading()
    power: Power = Power()


class TrialPlan(Strict):
    """One trial, in its place."""

    id: str
    """Opaque: says nothing of case, arm or order."""
    case: str
    arm: Arm
    solver: str
    block: int
    """Every block holds each arm of one case and solver once, in random order."""
    position: int
    """In the whole order, from 0."""


class Plan(Strict):
    """A frozen plan (``plan.json``)."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    draft: Draft
    cases: dict[str, dict[str, str]]
    """Name -> hashes of ``CaseFolder.hashes``."""
    folders: dict[str, str]
    """Name -> folder, relative to the plan's own file (``planning.write``); not part of the hash."""
    package: str
    """SHA-256 of the TrainCheck package, the same in all arms."""
    grader: str
    """SHA-256 of the grading code."""
    manual: str
    """SHA-256 of the agents' manual."""
    versions: dict[str, str]
    order: tuple[TrialPlan, ...]
    detectable: dict[str, Any]
    """What these numbers of trials can show, computed before any of them."""

    @model_validator(mode="wrap")
    @classmethod
    def _as_frozen(cls, data: Any, read: ModelWrapValidatorHandler[Plan]) -> Plan:
        """A plan that was written holds its own hash: whoever reads it learns that it was changed."""
        named = None
        if isinstance(data, dict):
            named = data.get("hash")
            data = {name: value for name, value in data.items() if name != "hash"}
        plan = read(data)
        if named is not None and named != plan.hash:
            raise ValueError(f"it was changed after it was frozen: it says {named}, its content is {plan.hash}")
        return plan

    @property
    def hash(self) -> str:
        """The plan's name, in every artifact."""
        return sha256(self.model_dump(mode="json", by_alias=True, exclude={"folders"}))

    def trial(self, name: str) -> TrialPlan:
        """The trial of that id."""
        return next(trial for trial in self.order if trial.id == name)
