"""Faults of a study, and how two JSON values differ, by the path of the first place where they do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from traincheck.errors import TraincheckError
from traincheck.strictjson import strict

Kind = Literal["missing", "changed", "extra", "inconsistent", "unreadable"]
T = TypeVar("T")

_SHOWN = 120

_LATER = re.compile(r"^(per_function\.each|policy\.modes\[\d+\]\.steps|pairs\[\d+\]\.ratios|.*\.ratios_of_invalid)$")
"""Fields that came to schema 1 after the first studies: where one has them not, there is nothing to compare."""


@dataclass(frozen=True)
class Fault:
    """One piece of a study that does not hold."""

    kind: Kind
    piece: str
    """Path in the study's folder."""
    text: str

    def __str__(self) -> str:
        return f"{self.piece}: {self.kind}: {self.text}"

    def to_json(self) -> dict[str, str]:
        """For ``--json``."""
        return {"kind": self.kind, "piece": self.piece, "text": self.text}


@dataclass
class Said:
    """All faults so far, in the order in which they were found."""

    faults: list[Fault] = field(default_factory=list)

    def add(self, kind: Kind, piece: str, text: str) -> None:
        """One more."""
        self.faults.append(Fault(kind, piece, text))

    def of(self, piece: str, work: Callable[[], T]) -> T | None:
        """Do ``work``; what a damaged file does to it is a fault of ``piece``, and gives None."""
        try:
            return work()
        except TraincheckError as error:
            self.add("unreadable", piece, error.message)
        except Exception as error:  # whatever a damaged study does to us
            self.add("unreadable", piece, f"{type(error).__name__}: {error}")
        return None

    def differ(self, piece: str, where: str, recorded: Any, again: Any, source: str) -> None:
        """A fault for the first place where what is recorded is not what ``source`` (words) gives."""
        found = [
            one
            for one in differences(strict(recorded), strict(again), where)
            if not (one[1] is ABSENT and _LATER.match(one[0]))
        ]
        if not found:
            return
        path, one, other = found[0]
        more = f" (and {len(found) - 1} more places)" if len(found) > 1 else ""
        self.add("inconsistent", piece, f"{path or 'it'} is {_short(one)}, {source} {_short(other)}{more}")


class _Absent:
    def __repr__(self) -> str:
        return "not there"


ABSENT = _Absent()


def differences(one: Any, other: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(path, one, other) of every place where two JSON values differ; ``1`` is ``1.0`` and not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            path = f"{where}.{key}" if where else str(key)
            yield from differences(one.get(key, ABSENT), other.get(key, ABSENT), path)
    elif isinstance(one, list) and isinstance(other, list):
        for index in range(max(len(one), len(other))):
            a = one[index] if index < len(one) else ABSENT
            b = other[index] if index < len(other) else ABSENT
            yield from differences(a, b, f"{where}[{index}]")
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield where, one, other


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
