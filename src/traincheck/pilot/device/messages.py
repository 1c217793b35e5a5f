"""What a client and the device service say to each other: one JSON object a line."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field, field_validator

from traincheck.pilot.events import Purpose
from traincheck.studykit.strict import Strict

LINE_LIMIT = 64 << 20
"""Bytes of one message."""


class Workdir(Strict):
    """Where the snapshot is made, when the job sees it under another path than the service does."""

    host: str
    """Absolute; empty or not there yet, and not there any more after the job. When the service's own folder is on
    another file system, the snapshot is made beside the folder that this one is in: a job must not see that place."""
    inside: str
    """Absolute; the same folder as the job sees it."""


class Request(Strict):
    """A job and the devices it needs.

    ``prefix`` is put before the command. In it ``{cwd}`` is the working folder and ``{workdir}`` the snapshot's, as
    the job sees them, and an argument that is ``{env}`` becomes one ``NAME=value`` for each variable of the job.
    """

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,119}$")
    """Idempotency key: the same id again never runs anything again."""
    owner: str = Field(min_length=1)
    """Trial, ``grading/<case>`` or ``qualification/<case>``."""
    purpose: Purpose
    devices: int = Field(ge=1)
    command: tuple[str, ...] = Field(min_length=1)
    source: str = Field(pattern=r"^[0-9a-f]{64}$")
    cwd: str = "."
    """Relative to the snapshot."""
    env: dict[str, str] = Field(default_factory=dict)
    """The job's whole environment; the service adds ``CUDA_VISIBLE_DEVICES``, ``PILOT_DEVICES`` and ``PILOT_JOB``."""
    prefix: tuple[str, ...] = ()
    workdir: Workdir | None = None
    timeout_s: float = Field(default=600.0, gt=0)
    """Of the job itself; waiting does not count."""
    budget_device_seconds: float | None = Field(default=None, gt=0)
    """What the owner may use in all: nothing is granted beyond it, and a job that reaches it is ended."""
    output_limit: int = Field(default=64 << 20, ge=0)
    """Bytes of ``out/`` that are kept."""

    @field_validator("cwd")
    @classmethod
    def _inside(cls, cwd: str) -> str:
        path = PurePosixPath(cwd)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"leads out of the snapshot: {cwd!r}")
        return cwd

    @field_validator("command", "prefix")
    @classmethod
    def _passable(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        if any("\0" in word for word in words):
            raise ValueError("an argument holds a zero byte")
        return words


class Text(Strict):
    """What a job printed on one stream: its beginning and its end when it is long. The whole is in the job's folder."""

    text: str
    size: int
    """Bytes of the whole."""
    cut: bool
    """Whether something is left out."""


class Times(Strict):
    """CLOCK_MONOTONIC in ns, as the ledger has them. None: did not come to pass."""

    asked_ns: int
    granted_ns: int | None = None
    """When the wait ended; a refusal ends it too."""
    started_ns: int | None = None
    ended_ns: int | None = None


class Result(Strict):
    """What became of a request."""

    request: str
    status: Literal["ended", "refused", "not_started"]
    """``ended``: a worker ran. ``refused``: no devices were given. ``not_started``: they were, but no worker ran."""
    reason: str
    """``exit``, ``timeout``, ``cancelled``, ``budget``, ``lost`` of an ended one; else a sentence."""
    exit_code: int | None = None
    """Negative: the signal that ended it. 127: the command was not found."""
    devices: tuple[int, ...] = ()
    stdout: Text = Text(text="", size=0, cut=False)
    stderr: Text = Text(text="", size=0, cut=False)
    files: dict[str, str] = Field(default_factory=dict)
    """Path under ``out/`` -> SHA-256 of the object in the store."""
    left_out: dict[str, str] = Field(default_factory=dict)
    """Path under ``out/`` -> why it was not kept."""
    times: Times
    replayed: bool = False
    """Whether this was recorded before this request for it came."""


class Progress(Strict):
    """Told while a request is waited for. ``queued``: the wait begins; ``granted``: it is over, the job runs."""

    event: Literal["queued", "granted"]
    position: int | None = None
    """In the queue, from 1."""
    devices: tuple[int, ...] = ()


class State(Strict):
    """What the service is doing."""

    devices: int
    kind: str
    free: tuple[int, ...]
    queued: tuple[str, ...]
    running: tuple[str, ...]
