"""The symbols file: every name and value that events refer to by number is written here once.

Append-only JSON lines, one ``write(2)`` a line, so that a line is in the file before the first event that uses it and a
kill tears at most the last one.
"""

from __future__ import annotations

import enum
import errno
import json
import os
import sys
import time
from typing import Any

from traincheck.collect.interrupts import hand_on
from traincheck.collect.jsonfile import beyond_limit


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


_FIRST_DESCRIPTOR = 512
"""Our descriptor is put up here where that is allowed, so that the program's own get the numbers they get without us.
"""

_WAITING_LIMIT = 4 << 20
"""Bytes of symbols that are kept until there is room on the disk for them."""

_RETRY_SECONDS = 1.0


class Symbols:
    """Writer of one process's ``symbols.jsonl``. Nothing raises after it is open.

    What can't be written (full disk) waits and is tried again later; ``lost`` counts what was given up, ``error``
    says why.
    """

    def __init__(self, path: str) -> None:
        """Open ``path`` for appending. Raises OSError."""
        self._next = 1
        self._next_small = {"thread": 1, "attribute": 1}
        self.lost = 0
        self.error: str | None = None
        self._open(path)

    def _open(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._waiting: list[bytes] = []
        self._retry_at = 0.0
        self._fd = _descriptor(self._path, os.O_CREAT)
        found = os.fstat(self._fd)
        self._file = (found.st_dev, found.st_ino)

    def reopen(self, path: str, source: str, length: int) -> None:
        """Go on in ``path`` with the first ``length`` bytes of ``source``, and the same numbering. Raises OSError."""
        with open(source, "rb") as file:
            known = file.read(length)
        waiting = self._waiting
        self._open(path)
        self._waiting = [known, *waiting]
        self._flush()

    def add(self, kind: str, /, **fields: Any) -> int:
        """Write one symbol and return its id."""
        if kind in self._next_small:
            number = self._next_small[kind]
            self._next_small[kind] = number + 1 if number < 0xFFFF else number
        else:
            number = self._next
            self._next = number + 1
        line = json.dumps({"k": kind, "id": number, **fields}, separators=(",", ":"), ensure_ascii=True) + "\n"
        if self._fd < 0 or sum(map(len, self._waiting)) + len(line) > _WAITING_LIMIT:
            self.lost += 1
        else:
            self._waiting.append(line.encode())  # first of all: an interrupt in what follows must not lose it
            self._flush()
        return number

    @property
    def length(self) -> int:
        """Bytes in the file now, all of them whole lines."""
        try:
            return self._size()
        except OSError:
            return 0

    def close(self) -> None:
        """Write what still waits, if that is possible now, and close the file; further symbols are lost. Idempotent."""
        if self._fd < 0:
            return
        self._retry_at = 0.0
        self._flush()
        self.lost += sum(data.count(b"\n") for data in self._waiting)
        self._waiting = []
        self.abandon()

    def abandon(self) -> None:
        """Close the file without writing to it."""
        if self._is_ours(self._fd):
            os.close(self._fd)
        self._fd = -1

    # --- writing -----------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        if not self._waiting or (self._retry_at and time.monotonic() < self._retry_at):
            return
        data = b"".join(self._waiting)
        try:
            before = self._size()
            if beyond_limit(before + len(data)):
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            written = os.write(self._fd, data)
            whole = data.rfind(b"\n", 0, written) + 1
            if whole < written:  # a torn line must not stay: it would swallow the next one
                os.ftruncate(self._fd, before + whole)
        except OSError as error:
            whole = 0
            if not hand_on(error):  # a TimeoutError of the program's may be an OSError too
                self.error = error.strerror or str(error)
        self._waiting = [] if whole == len(data) else [data[whole:]]
        self._retry_at = time.monotonic() + _RETRY_SECONDS if self._waiting else 0.0

    def _size(self) -> int:
        """Size of our file. A program that closed all its descriptors may have our number for a file of its own:
        never write there.
        """
        if not self._is_ours(self._fd):
            again = _descriptor(self._path, 0)
            if not self._is_ours(again):
                os.close(again)
                raise OSError(errno.ESTALE, "symbols.jsonl was replaced by another file")
            self._fd = again
        return os.fstat(self._fd).st_size

    def _is_ours(self, descriptor: int) -> bool:
        if descriptor < 0:
            return False
        try:
            found = os.fstat(descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file


def _descriptor(path: str, flags: int) -> int:
    import fcntl

    low = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o644)
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _FIRST_DESCRIPTOR)
    except OSError:  # so many are not allowed
        return low
    os.close(low)
    return high
