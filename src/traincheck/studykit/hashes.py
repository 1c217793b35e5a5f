"""SHA-256 of files and folders, by which a changed file of a study is known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            hasher.update(piece)
    return hasher.hexdigest()


def sha256_tree(folder: Path) -> str:
    """One SHA-256 of a folder: names and contents of all its files."""
    lines = [f"{sha256_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in files_of(folder)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def files_of(folder: Path) -> Iterator[Path]:
    """All files under ``folder`` in a fixed order, compiled Python left out."""
    yield from sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
