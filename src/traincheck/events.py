"""The event model: what a call, a state and a mark are, and the numbers they have on disk.

One place for both sides: ``collect`` writes these, ``trace`` reads them. See ``docs/trace-format.md``.
This module imports nothing heavy, because it is loaded in the user's training process.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

FORMAT_VERSION: Final = 1
MAGIC: Final = b"TCEVENT\0"
HEADER_SIZE: Final = 128
RECORD_SIZE: Final = 32


class Kind(IntEnum):
    """First byte of a record. ``NONE`` marks the end of what was written."""

    NONE = 0
    BEGIN = 1
    END = 2
    CAPTURE = 3
    OBSERVE = 4
    STATE = 5
    MARK = 6


class Outcome(IntEnum):
    """How a call ended. ``OPEN`` is never written: it is what a reader says of a BEGIN without an END."""

    RETURNED = 0
    RAISED = 1
    OPEN = 2


class Moment(IntEnum):
    """When an observation was made, relative to the call that caused it."""

    BEFORE = 0
    AFTER = 1
    ALONE = 2


class Value(IntEnum):
    """Kind of a captured or observed value."""

    NONE = 0
    BOOL = 1
    INT = 2
    FLOAT = 3
    SYMBOL = 4
    IDENTITY = 5
    DIGEST = 6
    MISSING = 7
    ERROR = 8
    LOCATION = 9
    OBJECT = 10
    TENSOR = 11


class Mark(IntEnum):
    """Kinds of marks."""

    STEP_BEGIN = 1
    STEP_END = 2
    STAGE = 3
    NOTE = 4
    CLOCK = 5
    GAP = 6
    OBSERVING = 7
    PROCESS_END = 8
    MICRO_STEP = 9
    EVALUATION_STEP = 10


class Clock(IntEnum):
    """What a ``time`` field counts."""

    MONOTONIC_NS = 0
    TSC = 1


STAGES: Final = (
    "init",
    "training",
    "evaluation",
    "inference",
    "testing",
    "checkpointing",
    "preprocessing",
    "postprocessing",
)

ROLES: Final = (
    "parameter",
    "buffer",
    "gradient",
    "optimizer_state",
    "optimizer_group",
    "batch",
    "loss",
    "rng",
    "file",
    "model",
    "optimizer",
    "process",
)
