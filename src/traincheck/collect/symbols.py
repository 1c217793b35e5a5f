"""The symbols file: every name and value that events refer to by number is written here once.

Append-only JSON lines, one ``write(2)`` a line, so that a line is in the file before the first event that uses it and a
kill tears at most
the last one.
"""

from __future__ import annotations

import enum
import json
import os
import sys
from typing import Any


def full_name(obj: Any) -> str:
    """``module.qualname`` of the original object; the bare name for builtins. The naming of TrainCheck 0.x."""
    module = getattr(obj, "__module__", None)
    name = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or type(obj).__name__
    if not isinstance(name, str):
        name = type(obj).__name__
    if not isinstance(module, str) or module == "builtins":
        owner = getattr(obj, "__objclass__", None) or getattr(obj, "__self__", None)
        if isinstance(owner, type):
            module = owner.__module__
            return name if module == "builtins" else f"{module}.{name}"
        return name
    return f"{module}.{name}"


def type_name(cls: type) -> str:
    """Full name of a type as value objects spell it: ``int``, ``torch.Tensor``, ``torch.nn.Parameter``."""
    name = full_name(cls)
    return "torch.nn.Parameter" if name == "torch.nn.parameter.Parameter" else name


def plain(value: Any) -> tuple[str, Any]:
    """(type, JSON value) under which an interned value stands in the symbols file."""
    if isinstance(value, str) and type(value) is str:
        return "str", value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, enum.Enum):
        return "enum", f"{type_name(type(value))}.{value.name}"
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return "int", str(value)
    if isinstance(value, float):
        return "float", repr(value)
    if isinstance(value, bytes):
        return "bytes", value.hex()
    if isinstance(value, type):
        return "type", type_name(value)
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(value, torch.Size):
            return "shape", [int(n) for n in value]
        for kind, name in (
            ("dtype", "dtype"),
            ("device", "device"),
            ("layout", "layout"),
            ("memory_format", "memory_format"),
        ):
            if isinstance(value, getattr(torch, name)):
                return kind, str(value)
    if isinstance(value, (tuple, list)):
        return "tuple", [plain(item)[1] for item in value]
    return type_name(type(value)), str(value)[:200]


class Symbols:
    """Writer of one process's ``symbols.jsonl``. ``lost`` counts lines that could not be written (full disk); nothing
    raises.
    """

    def __init__(self, path: str) -> None:
        """Open ``path`` for appending. Raises OSError."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._next = 1
        self._next_small = {"thread": 1, "attribute": 1}
        self.lost = 0
        self.length = 0

    def reopen(self, path: str, source: str, length: int) -> None:
        """Go on in ``path`` with the first ``length`` bytes of ``source``, and the same numbering. Raises OSError."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.length = 0
        with open(source, "rb") as file:
            self._write(file.read(length))

    def add(self, kind: str, /, **fields: Any) -> int:
        """Write one symbol and return its id."""
        if kind in self._next_small:
            number = self._next_small[kind]
            self._next_small[kind] = number + 1 if number < 0xFFFF else number
        else:
            number = self._next
            self._next = number + 1
        line = json.dumps({"k": kind, "id": number, **fields}, separators=(",", ":"), ensure_ascii=True) + "\n"
        self._write(line.encode())
        return number

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
            self.length += written
            if written != len(data):  # a torn line in the middle would swallow the next one: end it
                self.lost += 1
                os.write(self._fd, b"\n")
        except OSError:
            self.lost += 1

    def close(self) -> None:
        """Close the file; further symbols are lost, and counted."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
