"""The service's socket: who may speak to it is who may open the file. One operation a connection.

{"op": "run", "request": {…}}       -> queued, granted, done       (the job goes on when the client leaves)
{"op": "fetch", "request": ID}      -> the same for a request that came before
{"op": "cancel", "request": ID}     -> ok
{"op": "state"}                     -> state
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from pydantic import ValidationError

from traincheck.errors import TraincheckError
from traincheck.pilot.device.broker import Broker, Settings, Told
from traincheck.pilot.device.messages import LINE_LIMIT, Request, Result

SOCKET_PATH_LIMIT: Final = 107
_PARTING_S: Final = 2.0


async def serve(path: Path, settings: Settings, *, until_stdin_ends: bool = False) -> None:
    """Serve until SIGTERM or SIGINT, then end all jobs. Prints ``ready`` when clients may come.

    ``until_stdin_ends``: stop too when the other end of stdin is closed, so that the service ends with its caller.

    Raises TraincheckError when another service has the ledger, and whatever kept the service from going on.
    """
    lock = _locked(settings.ledger)
    try:
        listening = _listening(path)
        broker = Broker(settings)
        over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        if until_stdin_ends:
            asyncio.get_running_loop().add_reader(0, over.set)
        clients = _Clients(broker)
        server = await asyncio.start_unix_server(clients.serve, sock=listening, limit=LINE_LIMIT)
        print("ready", flush=True)
        wanted = asyncio.ensure_future(over.wait())
        either: list[asyncio.Future[Any]] = [wanted, broker.failed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()
        asyncio.get_running_loop().remove_reader(0)
        server.close()
        await broker.stop()
        await clients.part()
        if broker.failed.done():
            broker.failed.result()
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        lock.close()


class _Clients:
    """Everybody who is connected."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._served(reader, writer)
        except (OSError, asyncio.CancelledError):  # gone
            pass
        finally:
            self._tasks.discard(task)
            with suppress(OSError, RuntimeError):
                writer.close()

    async def part(self) -> None:
        """Give all a moment to hear what became of their requests."""
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=_PARTING_S)
            for task in late:
                task.cancel()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await reader.readline()
            if not line:
                return
            message = json.loads(line)
            if not isinstance(message, dict):
                raise ValueError("no object")
            await self._answered(message, reader, writer)
        except TraincheckError as error:
            await _send(writer, {"event": "error", "message": error.message, "hint": error.hint})
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            await _send(writer, {"event": "error", "message": f"the request is wrong: {faults}", "hint": None})
        except ValueError as error:
            await _send(writer, {"event": "error", "message": f"this is no message: {error}", "hint": None})

    async def _answered(
        self, message: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match message.get("op"):
            case "run":
                await self._follow(Request.model_validate(message.get("request")), reader, writer)
            case "fetch":
                await self._follow(str(message.get("request")), reader, writer)
            case "cancel":
                self._broker.cancel(str(message.get("request")))
                await _send(writer, {"event": "ok"})
            case "state":
                await _send(writer, {"event": "state", "state": self._broker.state().model_dump(mode="json")})
            case other:
                raise TraincheckError(f"there is no operation {other!r}", "run, fetch, cancel or state")

    async def _follow(self, wanted: Request | str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell what happens to a request until it is over or the client is gone."""
        told: asyncio.Queue[Told] = asyncio.Queue()
        listener = told.put_nowait
        if isinstance(wanted, Request):
            name = wanted.id
            self._broker.ask(wanted, listener)
        else:
            name = wanted
            self._broker.attach(name, listener)
        gone = asyncio.ensure_future(reader.read(1))  # a client says nothing more
        try:
            while True:
                news = asyncio.ensure_future(told.get())
                await asyncio.wait([news, gone], return_when=asyncio.FIRST_COMPLETED)
                if not news.done():
                    news.cancel()
                    return
                one = news.result()
                if isinstance(one, Result):
                    await _send(writer, {"event": "done", "result": one.model_dump(mode="json")})
                    return
                await _send(writer, one.model_dump(mode="json"))
        finally:
            gone.cancel()
            self._broker.leave(name, listener)


async def _send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
    await writer.drain()


def _locked(ledger: Path) -> BinaryIO:
    """Hold the ledger for this service; the system lets go of it when the process ends, however it ends."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    file = ledger.with_name(f"{ledger.name}.lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise TraincheckError(f"another device service writes {ledger}", "stop it, or use another ledger") from error
    return file


def _listening(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise TraincheckError(
            f"{path} is too long for a socket: {len(os.fsencode(path))} bytes, {SOCKET_PATH_LIMIT} are possible",
            "a shorter path, e.g. in the folder for temporary files",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(os.fspath(path))
    except OSError:  # nobody listens
        with suppress(FileNotFoundError):
            path.unlink()
    else:
        made.close()
        raise TraincheckError(f"another service listens at {path}", "stop it, or use another socket")
    made.close()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        made.bind(os.fspath(path))
    finally:
        os.umask(before)
    made.listen(64)
    made.setblocking(False)
    return made
