"""Commands of TrainCheck as child processes: their JSON, or their error with its hint."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

from traincheck.agents.bounds import clip, plain, tail
from traincheck.agents.children import Children
from traincheck.errors import BAD_INPUT, OWN_FAILURE, VIOLATIONS, TraincheckError

Tell = Callable[[str], Awaitable[None]]
"""Gets what is being done, now and then."""

_SYNTAX: Final = set("|&;<>()$`\n*?[]{}~!#")


def words(command: str) -> list[str]:
    """A command line as words: plain ones are split, those with shell syntax are run by ``sh``.

    Raises TraincheckError.
    """
    try:
        split = shlex.split(command)
    except ValueError as error:
        raise TraincheckError(f"the command can't be read: {error}", "balance its quotes") from error
    if not split:
        raise TraincheckError("there is no command to run", "for example: python train.py")
    assigns = "=" in split[0].split("/")[0]
    return ["sh", "-c", command] if assigns or _SYNTAX & set(command) else split


def environment() -> dict[str, str]:
    """What children see: ours, with this Python's folder first in PATH, so that ``python`` is the one with TrainCheck.

    As in an activated virtual environment.
    """
    here = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": path if path.split(os.pathsep)[0] == here else here + os.pathsep + path}


def traincheck(*arguments: str) -> list[str]:
    """The command line of one of our commands."""
    return [sys.executable, "-m", "traincheck", *arguments]


async def answer_of(
    children: Children, arguments: Sequence[str], cwd: Path, timeout_s: float, what: str, tell: Tell
) -> tuple[Any, int]:
    """(JSON that ``traincheck ARGUMENTS --json`` prints, its exit code).

    Raises TraincheckError with what the command said when it failed or took too long.
    """

    async def report() -> None:
        await tell(what)

    with tempfile.TemporaryDirectory(prefix="traincheck-mcp-") as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        ended = await children.run(
            traincheck(*arguments, "--json"),
            cwd=cwd,
            env=environment(),
            out=out,
            err=err,
            timeout_s=timeout_s,
            tell=report,
        )
        if ended.timed_out:
            raise TraincheckError(f"{what} took longer than {timeout_s:g} s and was ended", "a larger timeout_s")
        said = err.read_text(encoding="utf-8", errors="replace")
        try:
            return json.loads(out.read_bytes()), ended.exit_code
        except ValueError:
            raise failure(said, ended.exit_code) from None


def failure(said: str, code: int) -> TraincheckError:
    """What a command of ours said on standard error, as the error it was."""
    message = hint = None
    for line in plain(said).splitlines():
        if line.startswith("error: "):
            message, hint = line.removeprefix("error: "), None
        elif line.startswith("try: "):
            hint = line.removeprefix("try: ")
    if message is None:
        last = clip(said.strip(), 300) or "it said nothing"
        return TraincheckError(f"traincheck ended with {code} and no answer: {last}", None, OWN_FAILURE)
    return TraincheckError(message, hint, code if code in (OWN_FAILURE, BAD_INPUT, VIOLATIONS) else OWN_FAILURE)


def failure_in(log: Path, code: int) -> TraincheckError:
    """The same from a file that holds a program's output too."""
    return failure(tail(log, 12), code)
