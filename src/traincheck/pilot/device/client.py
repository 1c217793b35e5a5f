"""Asking the device service for devices: ``Client`` waits, ``AsyncClient`` lets others work meanwhile.

A request is safe to repeat under its id: it never runs twice. That is what ``patience_s`` is for: when the service is
gone in the middle (or not there yet), the same request is sent again until that many seconds have passed.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from traincheck.errors import TraincheckError
from traincheck.pilot.device.messages import LINE_LIMIT, Progress, Request, Result, State

Told = Callable[[Progress], None]
_AGAIN_S: Final = 0.1


class ServiceGoneError(TraincheckError):
    """The device service cannot be reached, or went away before it answered.

    Remedy: start it again with the same ledger and ask again with the same request id.
    """


class Client:
    """A client that waits."""

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        """``path`` is the service's socket."""
        self.path, self.patience_s = path, patience_s

    def run(self, request: Request, told: Told | None = None) -> Result:
        """Ask for devices and wait for the job's end. Raises ServiceGoneError, TraincheckError."""
        return self._result({"op": "run", "request": request.model_dump(mode="json")}, told)

    def fetch(self, request: str, told: Told | None = None) -> Result:
        """Wait for a request that was asked before. Raises ServiceGoneError, TraincheckError."""
        return self._result({"op": "fetch", "request": request}, told)

    def cancel(self, request: str) -> None:
        """Take a request out of the queue, or end its job. Raises ServiceGoneError, TraincheckError."""
        self._once({"op": "cancel", "request": request}, None)

    def clear(self, beginning: str) -> list[str]:
        """End every request whose id begins so, and wait until their devices are free; gives those ids.

        For what a requester left behind that died. Raises ServiceGoneError.
        """
        state = self.state()
        left = [name for name in (*state.queued, *state.running) if name.startswith(beginning)]
        for name in left:
            self.cancel(name)
        for name in left:
            self.fetch(name)
        return left

    def state(self) -> State:
        """What the service is doing. Raises ServiceGoneError."""
        return State.model_validate(self._once({"op": "state"}, None)["state"])

    def _result(self, message: dict[str, Any], told: Told | None) -> Result:
        until = time.monotonic() + self.patience_s
        while True:
            try:
                return Result.model_validate(self._once(message, told)["result"])
            except ServiceGoneError:
                if time.monotonic() >= until:
                    raise
                time.sleep(_AGAIN_S)

    def _once(self, message: dict[str, Any], told: Told | None) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            try:
                connection.connect(os.fspath(self.path))
                connection.sendall(_line(message))
                with connection.makefile("rb") as lines:
                    for line in lines:
                        answer = _answer(line, told)
                        if answer is not None:
                            return answer
            except OSError as error:
                raise _gone(self.path, error) from error
        raise _gone(self.path, None)


class AsyncClient:
    """The same for asyncio. Cancelling the task that waits is leaving: a queued request is cancelled by it."""

    def __init__(self, path: Path, patience_s: float = 0.0) -> None:
        """``path`` is the service's socket."""
        self.path, self.patience_s = path, patience_s

    async def run(self, request: Request, told: Told | None = None) -> Result:
        """Ask for devices and wait for the job's end. Raises ServiceGoneError, TraincheckError."""
        return await self._result({"op": "run", "request": request.model_dump(mode="json")}, told)

    async def fetch(self, request: str, told: Told | None = None) -> Result:
        """Wait for a request that was asked before. Raises ServiceGoneError, TraincheckError."""
        return await self._result({"op": "fetch", "request": request}, told)

    async def cancel(self, request: str) -> None:
        """Take a request out of the queue, or end its job. Raises ServiceGoneError, TraincheckError."""
        await self._once({"op": "cancel", "request": request}, None)

    async def state(self) -> State:
        """What the service is doing. Raises ServiceGoneError."""
        return State.model_validate((await self._once({"op": "state"}, None))["state"])

    async def _result(self, message: dict[str, Any], told: Told | None) -> Result:
        until = time.monotonic() + self.patience_s
        while True:
            try:
                return Result.model_validate((await self._once(message, told))["result"])
            except ServiceGoneError:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(_AGAIN_S)

    async def _once(self, message: dict[str, Any], told: Told | None) -> dict[str, Any]:
        try:
            reader, writer = await asyncio.open_unix_connection(os.fspath(self.path), limit=LINE_LIMIT)
            try:
                writer.write(_line(message))
                await writer.drain()
                while line := await reader.readline():
                    answer = _answer(line, told)
                    if answer is not None:
                        return answer
            finally:
                with suppress(OSError):
                    writer.close()
        except OSError as error:
            raise _gone(self.path, error) from error
        raise _gone(self.path, None)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _answer(line: bytes, told: Told | None) -> dict[str, Any] | None:
    """The last answer; None when more will follow."""
    if not line.endswith(b"\n"):  # the service went away while it wrote
        return None
    answer: dict[str, Any] = json.loads(line)
    if answer["event"] == "error":
        raise TraincheckError(answer["message"], answer["hint"])
    if answer["event"] not in ("queued", "granted"):
        return answer
    if told is not None:
        told(Progress.model_validate(answer))
    return None


def _gone(path: Path, error: OSError | None) -> ServiceGoneError:
    why = f": {error.strerror or error}" if error is not None else " before it answered"
    return ServiceGoneError(
        f"the device service at {path} is gone{why}",
        "start it again with the same ledger, and ask again with the same request id",
    )
