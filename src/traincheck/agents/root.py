"""The folder an MCP server works in: paths that lead out of it are refused."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from traincheck.errors import TraincheckError


@dataclass(frozen=True)
class Root:
    """A folder, resolved. It bounds what tools read and write; programs they are asked to run are not confined."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> Root:
        """The root at an existing folder. Raises TraincheckError."""
        if not folder.is_dir():
            raise TraincheckError(f"expected a folder for --root, found nothing of that kind at {folder}", "its path")
        return cls(folder.resolve())

    def path(self, text: str) -> Path:
        """The absolute path that ``text`` (relative to the root, or absolute) names, links followed.

        Raises TraincheckError when it is not in the root.
        """
        if not text or "\0" in text:
            raise TraincheckError(f"expected a path, found {text!r}", "a path relative to the server's root")
        found = Path(os.path.realpath(self.folder / text))
        if not found.is_relative_to(self.folder):
            raise TraincheckError(
                f"{text} is outside of this server's root, {self.folder}",
                "a path inside of it, or another server: traincheck mcp --root DIR",
            )
        return found

    def output(self, text: str) -> Path:
        """As ``path``, of what is to be written; the root itself is refused as well. Raises TraincheckError."""
        found = self.path(text)
        if found == self.folder:
            raise TraincheckError(f"expected an output below the root, found {text}, the root itself", "another name")
        return found

    def shown(self, path: Path) -> str:
        """``path`` as answers write it: relative to the root."""
        return path.relative_to(self.folder).as_posix()
