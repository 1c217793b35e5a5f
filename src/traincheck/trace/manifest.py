"""Facts about a run and its processes, read leniently: a damaged field is left out and reported, never guessed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from traincheck.errors import TraceError
from traincheck.trace.jsontext import loads

SCHEMA: Final = 1

_T = TypeVar("_T")


@dataclass(frozen=True)
class Lack:
    """Something the trace is missing.

    ``code`` is one word for programs, ``process`` the index of the process (None: the whole run), ``text`` a sentence.
    """

    code: str
    process: int | None
    text: str

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {"code": self.code, "process": self.process, "text": self.text}


@dataclass(frozen=True)
class Fault:
    """A fault of TrainCheck's own, counted while collecting."""

    where: str
    error: str
    count: int


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: the run as its launcher saw it. Times are realtime nanoseconds; None where not known."""

    traincheck: str | None = None
    command: list[str] = field(default_factory=list)
    cwd: str | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    exit_code: int | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    plan_hash: str | None = None
    host: str | None = None
    launcher_pid: int | None = None
    complete: bool | None = None
    raw: dict[str, Any] = field(default_factory=dict, repr=False)
    """The whole object, with fields this version does not know."""


@dataclass(frozen=True)
class ProcessInfo:
    """``process.json``: one process of the run. ``records`` is what its segments hold; the rest is as it wrote it."""

    index: int
    name: str
    pid: int | None = None
    ppid: int | None = None
    argv: list[str] = field(default_factory=list)
    executable: str | None = None
    python: str | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    end: str | None = None
    """How it ended (``exit``, ``exception``, ``signal``, …); ``running`` or None when it never said."""
    exit: int | None = None
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    mesh: dict[str, int] = field(default_factory=dict)
    """Mesh dimension -> coordinate (``dp``, ``tp``, ``pp``, …)."""
    coordinates: dict[str, Any] = field(default_factory=dict, repr=False)
    """The whole ``rank`` object as written."""
    versions: dict[str, Any] = field(default_factory=dict, repr=False)
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    records: int = 0
    dropped: int = 0
    faults: list[Fault] = field(default_factory=list)
    plan_hash: str | None = None
    monotonic_offset_ns: int | None = None
    """realtime - monotonic when its first segment was opened: add it to ``begin_ns`` for wall-clock time."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False)


def read_object(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """(JSON object of a file, None), or (None, why not).

    Raises TraceError when its ``schema`` is newer than ours, or no version at all: nothing in it can be relied on then.
    """
    try:
        value = loads(path.read_bytes())
    except FileNotFoundError:
        return None, "is not there"
    except OSError as error:
        return None, f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError):
        return None, "is not valid JSON"
    if not isinstance(value, dict):
        return None, "is not a JSON object"
    schema = value.get("schema", SCHEMA)
    if not _is_number(schema) or schema < 1:
        raise TraceError(
            f"{path} was not written by TrainCheck: expected schema {SCHEMA}, found {ascii(schema)[:40]}",
            "copy the trace again from where it was collected, or collect the run again",
        )
    if schema > SCHEMA:
        raise TraceError(
            f"{path} was written by a newer TrainCheck: schema {schema}, this one reads up to {SCHEMA}",
            "read it with that version, or upgrade: pip install -U traincheck",
        )
    return value, None


class Fields:
    """Typed access to a JSON object that anyone may have written: what has the wrong type is noted and left out."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._value = value
        self.problems: list[str] = []

    def _get(self, key: str, accept: Callable[[Any], bool], default: _T) -> Any | _T:
        value = self._value.get(key)
        if value is None:
            return default
        if accept(value):
            return value
        self.problems.append(key)
        return default

    def text(self, key: str) -> str | None:
        """A string."""
        found: str | None = self._get(key, lambda v: isinstance(v, str), None)
        return found

    def number(self, key: str) -> int | None:
        """An integer of at most 63 bits."""
        found: int | None = self._get(key, _is_number, None)
        return found

    def flag(self, key: str) -> bool | None:
        """A bool."""
        found: bool | None = self._get(key, lambda v: isinstance(v, bool), None)
        return found

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        found: list[str] = self._get(key, _is_texts, [])
        return list(found)

    def object(self, key: str) -> dict[str, Any]:
        """An object."""
        found: dict[str, Any] = self._get(key, lambda v: isinstance(v, dict), {})
        return dict(found)

    def objects(self, key: str) -> list[dict[str, Any]]:
        """A list of objects."""
        found: list[dict[str, Any]] = self._get(key, _is_objects, [])
        return list(found)


def manifest_of(value: dict[str, Any]) -> tuple[Manifest, list[str]]:
    """(the manifest in a JSON object, names of fields that were left out)."""
    fields = Fields(value)
    manifest = Manifest(
        traincheck=fields.text("traincheck"),
        command=fields.texts("command"),
        cwd=fields.text("cwd"),
        started_ns=fields.number("started_ns"),
        ended_ns=fields.number("ended_ns"),
        exit_code=fields.number("exit_code"),
        plan=fields.object("plan"),
        plan_hash=fields.text("plan_hash"),
        host=fields.text("host"),
        launcher_pid=fields.number("launcher_pid"),
        complete=fields.flag("complete"),
        raw=value,
    )
    return manifest, fields.problems


def process_of(value: dict[str, Any], index: int, name: str) -> tuple[ProcessInfo, list[str]]:
    """(the process in a JSON object, names of fields that were left out)."""
    fields = Fields(value)
    coordinates = fields.object("rank")
    rank = Fields(coordinates)
    mesh = {str(k): v for k, v in rank.object("mesh").items() if _is_number(v)}
    number = rank.number("rank")
    faults = [
        Fault(
            str(fault.get("where", "")),
            str(fault.get("error", "")),
            fault["count"] if _is_number(fault.get("count")) else 1,
        )
        for fault in fields.objects("faults")
    ]
    process = ProcessInfo(
        index=index,
        name=name,
        pid=fields.number("pid"),
        ppid=fields.number("ppid"),
        argv=fields.texts("argv"),
        executable=fields.text("executable"),
        python=fields.text("python"),
        started_ns=fields.number("started_ns"),
        ended_ns=fields.number("ended_ns"),
        end=fields.text("end"),
        exit=fields.number("exit"),
        rank=number if number is not None and 0 <= number < 2**31 else None,
        world_size=rank.number("world_size"),
        local_rank=rank.number("local_rank"),
        mesh=mesh,
        coordinates=coordinates,
        versions=fields.object("versions"),
        environment=fields.object("environment"),
        records=fields.number("records") or 0,
        dropped=fields.number("dropped") or 0,
        faults=faults,
        plan_hash=fields.text("plan_hash"),
        raw=value,
    )
    return process, [*fields.problems, *(f"rank.{key}" for key in rank.problems)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)
