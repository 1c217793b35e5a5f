"""Constant arguments of a contained call: which of its calls were made with them.

A value object of 0.x, ``{type: payload}``, is compared by type and value; an object by its type and by what was
recorded of its attributes. What was not recorded (an argument left to its default, the inside of an object) decides
nothing: such a call *may* have been made so.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np

from traincheck.invariants import Arguments
from traincheck.relations.call_arrays import call_keys
from traincheck.relations.numbers import KIND, SIDE, Array, Ints, Mask, Table, code, find, text
from traincheck.relations.values import constants
from traincheck.trace.values import TYPE_NAMES, canonical

UNWRITTEN: Final = "NOT SERIALIZABLE: "
"""What 0.x wrote for a value it could not write."""

_OPAQUE: Final = (KIND["object"], KIND["tensor"], KIND["identity"])
_ABSENT: Final = (KIND["missing"], KIND["error"])
_PLAIN: Final = frozenset(("NoneType", "bool", "int", "float", "str"))


class Wanted(NamedTuple):
    """One argument: its name, type, payload, and the payload's canonical text."""

    name: str
    type: str
    payload: Any
    text: str


class Match(NamedTuple):
    """Of each call: whether it was made so, may have been, and, where not, with what (``training=False``)."""

    yes: Mask
    maybe: Mask
    seen: Array


def wanted(arguments: Arguments | None) -> tuple[Wanted, ...]:
    """The arguments of a parameter, in the order of the file."""
    if arguments is None:
        return ()
    result = []
    for name, value in arguments.args.items():
        for type_name, payload in list(value.items())[:1]:
            result.append(Wanted(name, plain_type(type_name), payload, canonical(payload)))
    return tuple(result)


def unreadable(arguments: Arguments | None) -> str | None:
    """None, or why the arguments cannot be compared."""
    for name, value in (arguments.args if arguments is not None else {}).items():
        if len(value) != 1:
            return f"the value of argument {name} is no value object {{type: value}}"
        if any(isinstance(payload, str) and payload.startswith(UNWRITTEN) for payload in value.values()):
            return f"TrainCheck 0.x could not write the value of argument {name} down"
    return None


def plain_type(name: str) -> str:
    """One name for the spellings of a type: ``dtype``, ``torch.dtype``; ``torch.FloatTensor``, ``torch.Tensor``."""
    name = name.removeprefix("builtins.")
    name = "torch.Size" if name == "Size" else TYPE_NAMES.get(name, name)
    if name == "torch.nn.parameter.Parameter":
        return "torch.nn.Parameter"
    return "torch.Tensor" if name.startswith("torch.") and name.endswith("Tensor") else name


def match(calls: Table, captures: Table, arguments: tuple[Wanted, ...]) -> Match:
    """How these calls of one function compare. ``captures``: at least theirs."""
    yes = np.ones(calls.height, dtype=bool)
    no = np.zeros(calls.height, dtype=bool)
    seen = np.full(calls.height, None, dtype=object)
    key = call_keys(calls)
    mine = captures.take((captures["moment"] == SIDE["in"]) & np.isin(call_keys(captures), key))
    nameless = mine.take(mine["name"] < 0)
    for one in arguments:
        at = _named(mine, key, one.name)
        held: list[bool | None] = [None] * calls.height
        known: dict[tuple[Any, ...], bool | None] = {}
        for row, place in enumerate(at.tolist()):
            if place >= 0:
                held[row] = _same(mine, place, one, known)
            elif nameless.height:
                held[row] = _unnamed(nameless, int(key[row]), one, arguments)
            if held[row] is False and seen[row] is None:
                seen[row] = f"{one.name}={_say(mine, place)}" if place >= 0 else f"another {one.name}"
        yes &= np.fromiter((answer is True for answer in held), dtype=np.bool_, count=calls.height)
        no |= np.fromiter((answer is False for answer in held), dtype=np.bool_, count=calls.height)
    return Match(yes, ~yes & ~no, seen)


def _named(captures: Table, calls: Ints, name: str) -> Ints:
    """Row of the argument of that name for each call (by its key), -1 where none is known to be it."""
    path = captures["path"]
    named = (captures["name"] == code(name)) | (path == code(name)) | (path == code(f"kwargs.{name}"))
    rows = np.flatnonzero(named)
    keys, first = np.unique(call_keys(captures)[rows], return_index=True)
    at = find(keys, calls)
    found: Ints = np.where(at >= 0, rows[first][at] if len(first) else -1, -1)
    return found


def _unnamed(nameless: Table, call: int, one: Wanted, arguments: tuple[Wanted, ...]) -> bool | None:
    """0.x recorded no names of positional arguments: does one of them fit, with one for each that wants this value?"""
    rows = np.flatnonzero(call_keys(nameless) == call).tolist()
    free = [row for row in rows if _is_position(text(int(nameless["path"][row])))]
    if not free:
        return None
    verdicts = [_same(nameless, row, one, {}) for row in free]
    wants = Counter((other.type, other.text) for other in arguments)[one.type, one.text]
    if sum(held is True for held in verdicts) >= wants:
        return True
    return None if None in verdicts else False


def _is_position(path: str | None) -> bool:
    return path is not None and path.startswith("args[") and path.endswith("]") and path.count("[") == 1


def _same(captures: Table, row: int, one: Wanted, known: dict[tuple[Any, ...], bool | None]) -> bool | None:
    kind, type_code = int(captures["kind"][row]), int(captures["type"][row])
    value = captures["value"][row]
    if kind in _OPAQUE and isinstance(one.payload, dict) and one.payload:
        return _same_attributes(captures, row, one)
    key = (kind, type_code, value)
    if key not in known:
        known[key] = _compare(kind, text(type_code), value, one)
    return known[key]


def _compare(kind: int, type_name: str | None, value: str | None, one: Wanted) -> bool | None:
    if kind in _ABSENT or type_name is None:
        return None
    if plain_type(type_name) != one.type:
        return False
    if kind in _OPAQUE:
        return True if one.payload is None or one.payload == {} else None
    if isinstance(one.payload, (dict, list)):
        return value == one.text
    if one.payload is None and one.type != "NoneType":
        return True  # 0.x gave up reading the object: its type is all there is
    return value in constants(one.payload) or (one.type not in _PLAIN and value == one.payload)


def _same_attributes(captures: Table, row: int, one: Wanted) -> bool | None:
    if _compare(int(captures["kind"][row]), text(int(captures["type"][row])), None, one) is False:
        return False
    path = text(int(captures["path"][row]))
    mine = (captures["call"] == captures["call"][row]) & (captures["process"] == captures["process"][row])
    rows = {text(int(captures["path"][at])): int(at) for at in np.flatnonzero(mine)}
    answers: list[bool | None] = []
    for name, payload in one.payload.items():
        at = rows.get(f"{path}.{name}")
        if at is None:
            answers.append(None)
        else:
            answers.append(captures["value"][at] in constants(payload))
    return False if False in answers else None if None in answers else True


def _say(captures: Table, row: int) -> str:
    value = captures["value"][row]
    return str(value) if value is not None else f"{text(int(captures['type'][row]))} object"
