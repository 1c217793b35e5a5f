"""Inspect's view of a trial's place: commands run in it, files are read and written by processes in it."""

from __future__ import annotations

import asyncio
import shlex
from typing import Any, ClassVar, Literal, overload
from uuid import uuid4

import anyio
from inspect_ai.util import ExecResult, SandboxEnvironment, sandboxenv, subprocess

from traincheck.pilot.device import keeper
from traincheck.pilot.places import Place

NAME = "traincheck-pilot"
_OUTPUT_LIMIT = 10 << 20
_PARTING_S = 10.0


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
        """Run a command in the place; it has one user. Raises TimeoutError.

        A command that is ended early is ended with all it started: what is left of it would hold its pipes, and
        Inspect would wait for that.
        """
        token = uuid4().hex
        work = asyncio.ensure_future(
            subprocess(
                [*self._prefix(cwd, {**(env or {}), keeper.MARK: token}), *cmd],
                input=input, output_limit=_OUTPUT_LIMIT, concurrency=concurrency,
            )
        )  # fmt: skip
        try:
            done, _ = await asyncio.wait({work}, timeout=timeout)
            if done:
                return work.result()
            raise TimeoutError(f"it was not done after {timeout} s")
        except (TimeoutError, asyncio.CancelledError):
            if not work.done():
                with anyio.CancelScope(shield=True):
                    await asyncio.to_thread(keeper.end_all, token)
                    await asyncio.wait({work}, timeout=_PARTING_S)
                    work.cancel()
            raise

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
