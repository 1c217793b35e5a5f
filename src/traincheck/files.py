"""Files that readers see whole: the old content or the new, never half of it, whenever the writer is stopped."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def write_whole(files: Mapping[Path, str]) -> None:
    """Write texts (UTF-8), each whole or not at all; nothing is replaced before all of them are on the disk.

    A link stays a link; what is no ordinary file (``/dev/stdout``, a pipe) is written to as it is. Half a surrogate
    pair (of a file name that is not UTF-8) is written as its escape, which JSON reads back. Raises OSError, with
    nothing left behind.
    """
    written: dict[Path, Path] = {}
    try:
        for path, text in files.items():
            place = path.resolve()
            # Asked of the path: what /dev/stdout leads to may have no name (``pipe:[123]``).
            if path.exists() and not path.is_file():
                path.write_text(text, encoding="utf-8", errors="backslashreplace")
                continue
            new = place.with_name(f".{place.name}.{os.getpid()}.next")
            written[new] = place
            new.write_text(text, encoding="utf-8", errors="backslashreplace")
        for new, place in written.items():
            new.replace(place)
    finally:
        for new in written:
            new.unlink(missing_ok=True)
