"""Suppressions: invariants whose violations are known and accepted for now, with the reason and the date.

They stand in a small JSON-lines file of their own, so that invariant files stay what was learned. A suppression names
an invariant by its key: a rule that is learned anew with another precondition is another rule, and speaks up again. Who
suppressed it is not stored.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.invariants import InvariantFileError, RepeatedKeyError, once

Day = datetime.date

SCHEMA: Final = 1
"""Version of a line."""

FILE_NAME: Final = "traincheck-suppressions.jsonl"
"""The file that ``traincheck check`` takes by itself when it stands beside an invariant file."""

_MOST_TOLD = 10


class SuppressionFileError(InvariantFileError):
    """A line of a suppressions file is not a suppression. ``path``, ``line`` (from 1) and ``field`` say where."""


def parse_day(value: Any) -> Day:
    """A day from its text, ``2026-12-31``. Raises ``ValueError``."""
    if type(value) is Day:
        return value
    if isinstance(value, str) and len(value) == 10:
        try:
            return Day.fromisoformat(value)
        except ValueError:
            pass
    raise ValueError(f"expected a day as YYYY-MM-DD, found {value!r}")


def _said(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise ValueError("expected some words, found none")
    return value


_Day = Annotated[Day, BeforeValidator(parse_day)]


class Suppression(BaseModel):
    """One line: violations of an invariant are accepted because of ``reason``, until ``until`` (that day included)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    schema_version: Annotated[int, Field(alias="schema", ge=1)] = SCHEMA
    id: Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
    """``Invariant.key``."""
    text: str
    """What the invariant says, for readers; not compared."""
    reason: Annotated[str, BeforeValidator(_said)]
    date: _Day
    """The day it was suppressed."""
    until: _Day | None = None

    @model_validator(mode="after")
    def _order(self) -> Suppression:
        if self.until is not None and self.until < self.date:
            raise ValueError(f"until: {self.until} is before the date of the suppression, {self.date}")
        return self

    def expired(self, today: Day) -> bool:
        """Whether it is over on that day."""
        return self.until is not None and today > self.until

    def to_json(self) -> dict[str, Any]:
        """The object of the file; without ``until`` when there is none."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def brief(self) -> dict[str, Any]:
        """What an outcome carries: reason, date, and until when there is one."""
        return {name: value for name, value in self.to_json().items() if name in ("reason", "date", "until")}


@dataclass(frozen=True)
class Suppressions(Sequence[Suppression]):
    """Suppressions of one or more files, as they stand on one day."""

    entries: tuple[Suppression, ...]
    files: tuple[str, ...]
    today: Day

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: Any) -> Any:
        return self.entries[index]

    def of(self, key: str) -> Suppression | None:
        """The suppression in force for an invariant, by its key."""
        return next((one for one in self.entries if one.id == key and not one.expired(self.today)), None)

    def expired(self, keys: Iterable[str]) -> list[Suppression]:
        """Those over, of invariants among ``keys`` that no other suppression still covers."""
        known = set(keys)
        return [one for one in self.entries if one.id in known and one.expired(self.today) and self.of(one.id) is None]

    def unmatched(self, keys: Iterable[str]) -> list[Suppression]:
        """Those of no invariant among ``keys``."""
        known = set(keys)
        return [one for one in self.entries if one.id not in known]

    def to_json(self, keys: Sequence[str]) -> dict[str, Any]:
        """How they stood in a check of invariants with these keys: the object ``suppressions`` of ``results.json``."""
        return {
            "files": list(self.files),
            "on": self.today.isoformat(),
            "in_force": sum(self.of(key) is not None for key in set(keys)),
            "expired": [one.to_json() for one in self.expired(keys)],
            "unmatched": [one.to_json() for one in self.unmatched(keys)],
        }

    def notes(self, keys: Sequence[str]) -> list[str]:
        """What a person must know of them after such a check."""
        over, strange = self.expired(keys), self.unmatched(keys)
        notes = [
            f"the suppression of “{one.text}” ended on {one.until} ({one.reason}): it counts again"
            for one in over[:_MOST_TOLD]
        ]
        if len(over) > _MOST_TOLD:
            notes.append(f"… and {len(over) - _MOST_TOLD} more suppressions have ended: they count again")
        if strange:
            some = ", ".join(one.id for one in strange[:3]) + (", …" if len(strange) > 3 else "")
            what = "suppression is" if len(strange) == 1 else "suppressions are"
            notes.append(f"{len(strange)} {what} of no invariant checked here ({some})")
        return notes


def load_suppressions(*paths: str | Path, today: Day | None = None) -> Suppressions:
    """Read suppressions files, as they stand ``today`` (default: this day, local time).

    Raises ``SuppressionFileError`` with file, line and field, or ``TraincheckError`` when a file cannot be read.
    """
    entries: list[Suppression] = []
    for path in map(Path, paths):
        lines: dict[str, int] = {}
        for number, line in enumerate(_text(path).split("\n"), start=1):
            if not line.strip():
                continue
            entry = parse_suppression(line, str(path), number)
            if entry.id in lines:
                raise SuppressionFileError(
                    str(path), number, "id", f"{entry.id} is suppressed in line {lines[entry.id]} already"
                )
            lines[entry.id] = number
            entries.append(entry)
    return Suppressions(tuple(entries), tuple(map(str, paths)), today or Day.today())


def parse_suppression(line: str, path: str = "<text>", number: int = 1) -> Suppression:
    """One line of a suppressions file. Raises ``SuppressionFileError``."""
    try:
        data = json.loads(line, object_pairs_hook=once)
    except RecursionError:
        raise SuppressionFileError(path, number, "", "nested too deeply") from None
    except RepeatedKeyError as error:
        raise SuppressionFileError(path, number, error.key, "expected once in an object, found twice") from None
    except ValueError as error:
        raise SuppressionFileError(path, number, "", f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise SuppressionFileError(path, number, "", f"expected a JSON object, found {type(data).__name__}")
    if "relation" in data:
        hint = "give invariant files with -i, suppressions with --suppressions"
        raise SuppressionFileError(path, number, "", "this is an invariant, not a suppression", hint)
    version = data.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        problem = f"version {version} is newer than this TrainCheck reads ({SCHEMA})"
        raise SuppressionFileError(path, number, "schema", problem, "update TrainCheck")
    if "schema" not in data:
        raise SuppressionFileError(path, number, "schema", "required, but missing")
    try:
        return Suppression.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            problem = "required, but missing"
        elif first["type"] == "extra_forbidden":
            problem = "unknown field"
        elif where == "id":
            problem = "expected the id of an invariant, 16 of the digits 0-9 and a-f"
        elif not where and ": " in problem:
            where, problem = problem.split(": ", 1)
        raise SuppressionFileError(path, number, where, problem) from None


def save_suppressions(entries: Iterable[Suppression], path: str | Path) -> None:
    """Write a suppressions file, whole or not at all. Raises ``TraincheckError`` (unwritable)."""
    target = Path(path)
    text = "".join(json.dumps(one.to_json(), ensure_ascii=False) + "\n" for one in entries)
    try:
        write_whole({target: text})
    except OSError as error:
        raise TraincheckError(f"cannot write {target}: {error.strerror or error}", "another place with -s") from None


def beside(paths: Iterable[str | Path]) -> list[Path]:
    """The suppressions files that stand beside these invariant files."""
    found = dict.fromkeys(Path(path).with_name(FILE_NAME) for path in paths)
    return [path for path in found if path.is_file()]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise TraincheckError(f"expected a suppressions file, but there is nothing at {path}") from None
    except IsADirectoryError:
        raise TraincheckError(f"expected a suppressions file, but {path} is a folder") from None
    except UnicodeDecodeError as error:
        raise TraincheckError(f"{path} is not a suppressions file: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise TraincheckError(f"cannot read {path}: {error.strerror or error}") from None
