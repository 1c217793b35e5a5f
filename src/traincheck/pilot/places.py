"""Where a trial's processes run: a jail where the kernel allows one, else this machine as it is, loudly."""

from __future__ import annotations

import shutil
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from traincheck.errors import TraincheckError
from traincheck.marked import carrying, send
from traincheck.pilot.packets import PLACES, environment

Kind = Literal["jail", "local", "docker"]


class Place(ABC):
    """A place for one trial, whose folders (``packets.PLACES``) lie under ``root`` on the host."""

    kind: Kind

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    @abstractmethod
    def start(self) -> None:
        """Make it ready. Raises TraincheckError."""

    @abstractmethod
    def stop(self) -> None:
        """End every process in it."""

    @abstractmethod
    def enter(self) -> list[str]:
        """The words before a command that make it run in here, up to and without ``env``."""

    @abstractmethod
    def folders(self) -> dict[str, str]:
        """Folder name -> its path as processes in here see it."""

    @property
    def tools(self) -> tuple[str, ...]:
        """More folders for PATH, as processes in here see them."""
        return ()

    def environment(self) -> dict[str, str]:
        """All variables of a process in here."""
        found = environment(self.folders(), sys.executable)
        if self.tools:
            found["PATH"] = ":".join((*self.tools, found["PATH"]))
        return found

    def prefix(self, folder: str | None = None, more: Mapping[str, str] | None = None) -> list[str]:
        """The words before a command: in here, in ``folder`` (as seen in here), with exactly the trial's variables."""
        variables = {**self.environment(), **(more or {})}
        where = folder or self.folders()["work"]
        return [
            *self.enter(),
            "/usr/bin/env",
            "-i",
            "-C",
            where,
            *(f"{name}={value}" for name, value in variables.items()),
        ]

    def job_prefix(self) -> tuple[str, ...]:
        """The same for a job of the device service, which fills in ``{cwd}`` and ``{env}``."""
        return (*self.enter(), "/usr/bin/env", "-i", "-C", "{cwd}", "{env}")

    def inside(self, path: Path) -> str:
        """The path in here of a path on the host. Raises PermissionError outside."""
        for name, top in self.folders().items():
            if path.is_relative_to(self.root / name):
                return str(PurePosixPath(top) / path.relative_to(self.root / name))
        raise PermissionError(f"{path} is not a folder of this trial")


class Local(Place):
    """This machine as it is: scrubbed variables and folders of its own, and nothing is out of reach."""

    kind = "local"

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """End every process that has this trial's HOME; one that gave itself another is not found."""
        send(signal.SIGKILL, carrying(f"HOME={self.root / 'home'}"))

    def enter(self) -> list[str]:
        """No words."""
        return []

    def folders(self) -> dict[str, str]:
        """The host's own paths."""
        return {name: str(self.root / name) for name in PLACES}


def choose(wanted: str, root: Path, hide: Sequence[Path] = (), tools: Sequence[Path] = ()) -> Place:
    """The place that a plan's ``sandbox`` names; ``auto``: a jail where there can be one, else ``local``.

    ``hide``: files and folders out of sight. ``tools``: folders with programs that a solver needs besides.
    Raises TraincheckError when the place that is named can't be had.
    """
    from traincheck.pilot import jail

    support = jail.available()
    if wanted == "jail" and not support.ok:
        raise TraincheckError(
            f"the plan wants a jail and there can't be one here: {support.reason}", "sandbox = 'auto'"
        )
    if wanted == "docker":
        found = "docker is on this machine" if shutil.which("docker") else "there is no docker on this machine"
        raise TraincheckError(
            f"sandbox = 'docker' is not built ({found}): a container would need the case's modules in an image",
            "sandbox = 'jail' gives the same without an image",
        )
    if wanted == "local" or not support.ok:
        return Local(root)
    return jail.Jail(root, hide=hide, tools=tools)


def warning(place: Place) -> str | None:
    """What has to be said aloud of a place that isolates nothing."""
    if place.kind != "local":
        return None
    from traincheck.pilot import jail

    why = jail.available().reason
    return (
        "NO ISOLATION: trials run on this machine as it is. An agent can reach the network, the package, the private"
        " folders of the cases and the results of other trials; a control arm proves nothing here."
        + (f" A jail can't be had: {why}." if why else "")
    )
