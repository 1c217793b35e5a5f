"""A trial's side of the device service: what is asked under which key, and what comes back into the workspace."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from traincheck.pilot.canonical import sha256
from traincheck.pilot.device.client import AsyncClient
from traincheck.pilot.device.messages import Request, Result, Workdir
from traincheck.pilot.places import Place
from traincheck.pilot.sources import Objects

PATIENCE_S: Final = 60.0
"""How long a service that is gone is waited for: it may be started again with its ledger."""

_UNPACK: Final = (
    "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|').extractall('out', filter='data')"
)


class Desk:
    """Asks for one trial. A result that the agent was never given is given again, and nothing runs a second time."""

    def __init__(
        self, trial: str, socket: Path, place: Place, objects: Objects, *, timeout_s: float, budget: float
    ) -> None:
        self._trial, self._place, self._objects = trial, place, objects
        self._client = AsyncClient(socket, patience_s=PATIENCE_S)
        self._timeout_s, self._budget = timeout_s, budget
        self._given: Counter[str] = Counter()
        self._asked: dict[str, str] = {}
        """Call -> what was asked, of calls whose answer the agent has not been given."""

    def key(self, content: str, call: str | None) -> str:
        """The idempotency key: what is asked, and how often that was answered (or is being asked by another call)."""
        number = self._given[content] + sum(other == content for name, other in self._asked.items() if name != call)
        if call is not None:
            self._asked[call] = content
        return f"{self._trial}/{content[:20]}/{number}"

    def answered(self, call: str) -> None:
        """The agent was given the answer of a call: asked once more, it runs once more."""
        content = self._asked.pop(call, None)
        if content is not None:
            self._given[content] += 1

    def forget(self) -> None:
        """The solver died: nobody waits for the calls that are open, and the same request is the same again."""
        self._asked.clear()

    async def run(
        self, command: str, devices: int, source: str, call: str | None, granted: Callable[[], None]
    ) -> Result:
        """Run a shell command on a copy of ``source``; ``granted`` is called when the wait is over.

        Raises TraincheckError when the service is gone.
        """
        content = sha256([command, devices, source])
        key = self.key(content, call)
        folder = key.rpartition("/")[0].rpartition("/")[2] + "-" + key.rpartition("/")[2]
        host = self._place.root / "jobs" / folder
        request = Request(
            id=key,
            owner=self._trial,
            purpose="solver",
            devices=devices,
            command=("bash", "-c", command),
            source=source,
            env=self._place.environment(),
            prefix=self._place.job_prefix(),
            workdir=Workdir(host=str(host), inside=self._place.inside(host)),
            timeout_s=self._timeout_s,
            budget_device_seconds=self._budget,
        )
        result = await self._client.run(request, lambda told: granted() if told.event == "granted" else None)
        if result.files:
            await asyncio.to_thread(self._bring_back, result)
        return result

    def _bring_back(self, result: Result) -> None:
        """What the job wrote under ``out/``, into the workspace's. Unpacked by a process in the trial's place:

        the workspace is the agent's, and a link in it must not lead us out of it.
        """
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, held in result.files.items():
                content = self._objects.get(held)
                about = tarfile.TarInfo(name)
                about.size, about.mode = len(content), 0o644
                archive.addfile(about, io.BytesIO(content))
        subprocess.run(
            [*self._place.prefix(), sys.executable, "-I", "-S", "-c", _UNPACK],
            input=packed.getvalue(), capture_output=True, timeout=120, check=False,
        )  # fmt: skip
