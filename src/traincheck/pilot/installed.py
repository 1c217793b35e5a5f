"""Where this interpreter keeps its own TrainCheck: what has to be out of sight for a worker that must not have it."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGE: Final = "traincheck"


def traces() -> tuple[Path, ...]:
    """Package folder, metadata, editable finders and ``.pth`` files, scripts; absolute, sorted, all of them there."""
    found = {*_package(), *_metadata(), *_finders(), *_scripts()}
    return tuple(sorted(path for path in found if path.exists()))


def _package() -> Iterator[Path]:
    spec = find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder).absolute()


def _metadata() -> Iterator[Path]:
    for distribution in metadata.distributions(name=PACKAGE):
        for file in distribution.files or ():
            # The folder once, not each file in it; files elsewhere (scripts, finders) by themselves.
            if file.parts and file.parts[0].endswith((".dist-info", ".egg-info")):
                yield Path(str(distribution.locate_file(file.parts[0]))).absolute()
            elif file.parts and file.parts[0] != PACKAGE:
                yield Path(str(distribution.locate_file(file))).resolve()


def _finders() -> Iterator[Path]:
    """Files that make another folder's package importable: ``__editable__.traincheck….pth`` and what it imports."""
    ours = re.compile(rf"_*(editable_*)?_*{PACKAGE}([-_.].*)?(\.pth|\.py|\.egg-link)$", re.IGNORECASE)
    for folder in _site_folders():
        for path in folder.iterdir():
            named = ours.match(path.name) is not None
            if named or (path.suffix == ".pth" and PACKAGE in path.read_text(errors="replace")):
                yield path


def _scripts() -> Iterator[Path]:
    for folder in {sysconfig.get_path("scripts"), str(Path(sys.executable).parent)}:
        yield Path(folder) / PACKAGE


def _site_folders() -> set[Path]:
    named = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    found = {Path(name) for name in named} | {Path(entry) for entry in sys.path if entry.endswith("-packages")}
    return {folder.absolute() for folder in found if folder.is_dir()}
