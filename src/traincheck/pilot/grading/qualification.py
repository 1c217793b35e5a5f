"""What qualifying a case found: fault and fix with numbers, whether the grader tells right from wrong, what it cost."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from traincheck.studykit.strict import Strict


class Number(Strict):
    """One number that the case's own ``private/qualify.py`` gives."""

    name: str
    value: float | int | str | bool
    unit: str = ""
    about: str = ""


class Check(Strict):
    """Something that has to hold. One that fails stays in the record as failed."""

    name: str
    wanted: str
    found: str
    holds: bool
    strict: bool = True
    """Not strict: a relaxed or other control, labelled as that."""
    relaxes: str | None = None
    """Of a control that is not strict: the strict check that it was decided, before any trial, to go by instead."""


class Numbers(Strict):
    """``numbers.json``, written by ``python private/qualify.py CASE OUT`` to OUT.

    CASE is the case's folder, OUT an empty one and the working folder. The program runs as one job on all devices of
    the case: what it launches is in the case's qualification device-seconds.
    """

    numbers: tuple[Number, ...] = ()
    checks: tuple[Check, ...] = ()


class Judged(Strict):
    """One source in one scenario."""

    verdict: str
    reason: str
    attempts: int
    gradient_errors: tuple[float | str | None, ...]
    """Of each step: relative L2 error against the nearest oracle over all gradients of all ranks."""
    parameter_errors: tuple[float | str | None, ...]


class Preflight(Strict):
    """Whether TrainCheck preserves the training it watches, and sees all of it. No overhead benchmark."""

    scenario: str
    records_equal: bool
    """All state of all ranks and steps is the same bits with and without ``traincheck collect``."""
    records: int
    """Of ranks x steps."""
    difference: str
    trace_faults: tuple[str, ...]
    trace_processes: int
    trace_calls: int
    trace_records: int


class Qualification(Strict):
    """``qualification.json``."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    case: str
    kind: str
    reproduction: str
    hashes: dict[str, str]
    versions: dict[str, str]
    machine: dict[str, object]
    valid: bool
    """All strict checks hold, or a control that was decided on in their place does."""
    replays: dict[str, dict[str, Judged]]
    """``initial``, ``oracles/<name>``, ``alternatives/<name>``, ``mutants/<name>`` -> scenario."""
    checks: tuple[Check, ...]
    numbers: tuple[Number, ...]
    preflight: Preflight | None
    device_seconds: float
    """Of this case's qualification ledger; never added to those of solvers or grading."""


def all_hold(checks: tuple[Check, ...]) -> bool:
    """Whether every strict check holds, or a holding control relaxes it."""
    relaxed = {check.relaxes for check in checks if not check.strict and check.holds}
    return all(check.holds or check.name in relaxed for check in checks if check.strict)
