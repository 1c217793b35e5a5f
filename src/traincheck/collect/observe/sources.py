"""Files that weights are loaded from: path, size, digest of the whole content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from xxhash import xxh3_128

from traincheck.collect.observe.tensors import Sheet, Writer

PIECE = 1 << 20
_known: dict[tuple[str, int, int, int], int] = {}


def path_of(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> str | None:
    """The path that a ``load(f)``-like call was given, as an absolute path; None for streams without a file."""
    given: Any = next((arg for arg in args if isinstance(arg, (str, bytes, os.PathLike))), args[0] if args else None)
    for name in ("f", "filename", "path"):
        if given is None and kwargs:
            given = kwargs.get(name)
    if given is not None and not isinstance(given, (str, bytes, os.PathLike)):
        given = getattr(given, "name", None)
    if not isinstance(given, (str, bytes, os.PathLike)):
        return None
    return os.path.abspath(os.fsdecode(given))


def file_digest(path: str) -> tuple[int, int]:
    """(size in bytes, xxh3-128 of the content), read in pieces. Raises OSError. An untouched file is read once a
    process.
    """
    status = os.stat(path)
    key = (path, status.st_ino, status.st_size, status.st_mtime_ns)
    digest = _known.get(key)
    if digest is None:
        hasher = xxh3_128()
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(PIECE):
                hasher.update(piece)
        digest = _known[key] = int(hasher.intdigest())
    return status.st_size, digest


def source_rows(writer: Writer, sheet: Sheet, path: str) -> None:
    """Variable of role ``file``, named by its path: ``size``, ``data``."""
    variable = writer.variable(path, "file", "file", "run")
    try:
        size, digest = file_digest(path)
    except OSError as error:
        sheet.value(variable, "data.missing", f"{type(error).__name__}: {error.strerror}")
        return
    sheet.value(variable, "size", size)
    sheet.digest(variable, "data", digest)
