"""What a solver can call: ``request_device`` and ``submit_revision``; for ``react`` a shell and files besides."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Final

from inspect_ai.tool import Tool, ToolError, tool
from inspect_ai.util import sandbox, suspend_working_limit

from traincheck.errors import TraincheckError
from traincheck.pilot.device.messages import Result
from traincheck.pilot.inspecting.context import Trial
from traincheck.pilot.sources import SourceError

REQUEST: Final = "request_device"
SUBMIT: Final = "submit_revision"
RECORDED: Final = "recorded"
_MOST: Final = 16_000
"""Characters of a command's output that are shown."""


@tool(name=REQUEST, parallel=True)
def request_device(trial: Trial) -> Tool:
    """Devices, by the queue."""

    async def execute(command: str, devices: int = 1) -> str:
        """Queue for devices, then run a shell command with them on a copy of the workspace as it is now.

        Training runs belong here. Changes that the command makes to files stay in the copy, but for what it writes
        under out/, which is copied back into out/ of the workspace. Waiting does not count as working time.

        Args:
            command: Shell command, started in the workspace's folder.
            devices: Number of devices to hold while it runs.
        """
        call = trial.recorder.take(REQUEST)
        if devices < 1:
            raise ToolError("devices: at least 1")
        source = await _captured(trial)
        with ExitStack() as waiting:
            waiting.enter_context(suspend_working_limit())
            try:
                result = await trial.desk.run(command, devices, source, call, waiting.close)
            except TraincheckError as error:
                raise ToolError(trial.without_paths(f"no devices: {error.message}")) from error
        if "budget" in result.reason and result.status != "not_started":
            trial.exhaust("device_seconds")
        return trial.without_paths(told(result))

    return execute


@tool(name=SUBMIT)
def submit_revision(trial: Trial) -> Tool:
    """A submission."""

    async def execute(note: str) -> str:
        """Submit the workspace as it is now. May be called as often as you like.

        Args:
            note: What you found and changed, in a few words.
        """
        call = trial.recorder.take(SUBMIT)
        source = await _captured(trial)
        trial.recorder.submitted(source, note, call)
        return RECORDED

    return execute


@tool
def bash() -> Tool:
    """A shell in the workspace."""

    async def execute(command: str, timeout: int = 120) -> str:
        """Run a shell command in the workspace's folder.

        Args:
            command: Shell command.
            timeout: Seconds after which it is ended, at most 600.
        """
        try:
            done = await sandbox().exec(["bash", "-c", command], timeout=max(1, min(timeout, 600)), timeout_retry=False)
        except TimeoutError as error:
            raise ToolError(f"ended after {timeout} s") from error
        return _cut(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")

    return execute


@tool
def write_file() -> Tool:
    """A file of the workspace."""

    async def execute(path: str, text: str) -> str:
        """Write a file, replacing what was there.

        Args:
            path: Path, relative to the workspace's folder.
            text: The whole content.
        """
        try:
            await sandbox().write_file(path, text)
        except OSError as error:
            raise ToolError(f"cannot write {path}: {type(error).__name__}") from error
        return "written"

    return execute


def told(result: Result) -> str:
    """A job's result, as an agent is told."""
    if result.status != "ended":
        return f"not run: {result.reason}"
    lines = [f"exit code {result.exit_code}" + ("" if result.reason == "exit" else f", ended: {result.reason}")]
    lines += [result.stdout.text, result.stderr.text]
    if result.files:
        lines.append(f"{len(result.files)} files in out/")
    if result.left_out:
        lines.append(f"{len(result.left_out)} files of out/ were not kept: {next(iter(result.left_out.values()))}")
    return _cut("\n".join(line for line in lines if line))


async def _captured(trial: Trial) -> str:
    try:
        return await asyncio.to_thread(trial.snapshot)
    except SourceError as error:
        raise ToolError(trial.without_paths(f"the workspace can't be captured: {error.message}")) from error


def _cut(text: str) -> str:
    if len(text) <= _MOST:
        return text
    half = _MOST // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
