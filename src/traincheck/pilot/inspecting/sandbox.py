"""Inspect's view of a trial's place: commands run in it, files are read and written by processes in it."""

from __future__ import annotations

import shlex
from typing import Any, ClassVar, Literal, overload

from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv, subprocess

from traincheck.pilot.places import Place

NAME = "traincheck-pilot"
_OUTPUT_LIMIT = 10 << 20


@sandboxenv(name=NAME)
class PlaceSandbox(SandboxEnvironment):
    """The place of the one trial of this process, which is started before Inspect and stopped after it."""

    place: ClassVar[Place | None] = None

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """The place that is there already."""
        return {"default": cls()}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Nothing: the last audit still looks into the place."""

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command in the place; it has one user."""
        return await subprocess(
            [*self._prefix(cwd, env), *cmd],
            input=input, timeout=timeout, output_limit=_OUTPUT_LIMIT, concurrency=concurrency,
        )  # fmt: skip

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file, folders above it included. Raises PermissionError, IsADirectoryError."""
        name = shlex.quote(file)
        done = await subprocess(
            [*self._prefix(), "sh", "-c", f'mkdir -p "$(dirname {name})" && cat > {name}'], input=contents
        )
        if not done.success:
            raise _error(file, done.stderr)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file. Raises FileNotFoundError, PermissionError, IsADirectoryError, UnicodeDecodeError."""
        done = await subprocess([*self._prefix(), "cat", "--", file], text=False)
        if not done.success:
            raise _error(file, done.stderr.decode(errors="replace"))
        return done.stdout.decode() if text else done.stdout

    def _prefix(self, cwd: str | None = None, env: dict[str, str] | None = None) -> list[str]:
        place = type(self).place
        assert place is not None, "the trial sets it"
        work = place.folders()["work"]
        return place.prefix(work if cwd is None else cwd if cwd.startswith("/") else f"{work}/{cwd}", env)


def _error(file: str, words: str) -> OSError:
    if "Is a directory" in words:
        return IsADirectoryError(file)
    if "No such file" in words:
        return FileNotFoundError(file)
    return PermissionError(f"{file}: {words.strip()[-200:]}")
