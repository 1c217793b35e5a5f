"""The device service for the time of a ``with``: started, waited for, and stopped with all its jobs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from traincheck.errors import OWN_FAILURE, TraincheckError

_STOP_S: Final = 30


def command(
    socket: Path, *, ledger: Path, store: Path, jobs: Path, devices: int, kind: Literal["cpu", "gpu"] = "cpu"
) -> list[str]:
    """How the service is started."""
    places = {"--socket": socket, "--ledger": ledger, "--store": store, "--jobs": jobs}
    options = [word for name, place in places.items() for word in (name, str(place))]
    return [sys.executable, "-m", "traincheck.pilot.device", *options, "--devices", str(devices), "--kind", kind]


@contextmanager
def service(
    *, ledger: Path, store: Path, jobs: Path, devices: int, kind: Literal["cpu", "gpu"] = "cpu"
) -> Iterator[Path]:
    """Run the service in a process of its own; gives its socket. Raises TraincheckError when it does not start.

    The socket is in a temporary folder that only this user enters: paths of sockets must be short. A signal to the
    caller's group (Ctrl-C) does not reach the service; the end of the ``with`` does, and the caller's own end.
    """
    with tempfile.TemporaryDirectory(prefix="devices-") as folder:
        socket = Path(folder, "socket")
        process = subprocess.Popen(
            [
                *command(socket, ledger=ledger, store=store, jobs=jobs, devices=devices, kind=kind),
                "--until-stdin-ends",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                raise TraincheckError(
                    f"the device service did not start, exit code {process.wait()}",
                    "it said why on stderr",
                    exit_code=OWN_FAILURE,
                )
            yield socket
        finally:
            _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        code = process.wait(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise TraincheckError("the device service did not stop", exit_code=OWN_FAILURE) from None
    finally:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
    if code != 0 and sys.exc_info()[0] is None:
        raise TraincheckError(f"the device service ended with {code}", "it said why on stderr", exit_code=OWN_FAILURE)
