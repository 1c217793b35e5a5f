"""JSON files that readers see whole: the old content or the new, never half of it; also on a disk that is full by then.

Standard library only; used by the launcher and inside the training process.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from typing import Any

NEXT = ".next"
"""Ending of the file in which room is kept for the next content."""


def write_json(path: str, data: dict[str, Any]) -> None:
    """Write ``data`` to ``path`` atomically. Raises OSError, with the old content still there."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        _fill(temporary, text_of(data), os.O_CREAT | os.O_TRUNC)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def keep_room(path: str, size: int) -> None:
    """Reserve ``size`` bytes on the disk for the next content of ``path``. Raises OSError, with nothing left behind."""
    kept = path + NEXT
    if beyond_limit(size):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), kept)
    descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(kept)
        raise
    finally:
        os.close(descriptor)


def write_into_room(path: str, data: dict[str, Any]) -> None:
    """Write ``data`` to ``path`` atomically, into the room kept for it where there is one. Raises OSError."""
    kept = path + NEXT
    try:
        _fill(kept, text_of(data), 0)
        os.replace(kept, path)
    except FileNotFoundError:
        write_json(path, data)


def drop_room(path: str) -> None:
    """Give back what ``keep_room`` reserved, if it is still there. Raises nothing."""
    with contextlib.suppress(OSError):
        os.unlink(path + NEXT)


def text_of(data: dict[str, Any]) -> bytes:
    """``data`` as the file holds it: JSON in ASCII, one field a line."""
    return (json.dumps(data, indent=1, default=str) + "\n").encode("ascii")


def beyond_limit(size: int) -> bool:
    """Whether a file of ``size`` bytes is larger than this process may make one: trying to would raise a signal that
    can end it.
    """
    import resource

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return limit != resource.RLIM_INFINITY and size > limit


def _fill(path: str, content: bytes, flags: int) -> None:
    if beyond_limit(len(content)):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o644)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
