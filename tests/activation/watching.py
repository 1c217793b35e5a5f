"""Running small programs under ``traincheck collect`` and without it, and looking at what they left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAIN = """
import torch
torch.manual_seed(0)
def train(steps=2):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
    return loss.item()
"""
"""The start of most programs here: ``train(steps)`` returns the last loss."""


@dataclass(frozen=True)
class Done:
    """A program that has ended. ``run``: where its trace is."""

    code: int
    out: bytes
    err: bytes
    run: Path

    @property
    def accounts(self) -> list[dict[str, Any]]:
        """process.json of every process, by start."""
        found = [json.loads(p.read_text()) for p in (self.run / "processes").glob("*/process.json")]
        return sorted(found, key=lambda account: account["started_ns"])

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "manifest.json").read_text())
        return found

    @property
    def said(self) -> list[str]:
        """What TrainCheck itself said, a line each."""
        return [line.decode().rstrip("\n") for line, ours in self._lines() if ours]

    @property
    def err_of_program(self) -> bytes:
        """Standard error without what TrainCheck said."""
        return b"".join(line for line, ours in self._lines() if not ours)

    def _lines(self) -> list[tuple[bytes, bool]]:
        found: list[tuple[bytes, bool]] = []
        ours = False
        for line in self.err.splitlines(keepends=True):
            ours = line.startswith(b"traincheck: ") or (ours and line.startswith(b" " * 12))
            found.append((line, ours))
        return found

    def fine(self) -> Done:
        """Itself, when the program ended with 0."""
        assert self.code == 0, self.err.decode()
        return self


def environment(**more: str) -> dict[str, str]:
    """The environment of tests: this one without what an outer run or launcher has set."""
    left_out = ("TRAINCHECK_RUN", "RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONPATH")
    keep = {key: value for key, value in os.environ.items() if key not in left_out}
    return {**keep, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **more}


def collecting(run: Path, command: list[str], *options: str) -> list[str]:
    """The command line that collects ``command`` into ``run``; boundary scope, which starts fastest, if none is given.

    ``-I``: as the ``traincheck`` script, it looks for modules neither in the current folder nor on PYTHONPATH.
    """
    if "--scope" not in options:
        options = ("--scope", "boundary", *options)
    return [sys.executable, "-I", "-m", "traincheck", "collect", "-o", str(run), *options, "--", *command]


def watched(
    folder: Path, command: list[str], *options: str, stdin: bytes = b"", timeout: float = 120, **env: str
) -> Done:
    """Run under collection in ``folder``, into ``folder/run``."""
    run = folder / "run"
    done = subprocess.run(
        collecting(run, command, *options),
        cwd=folder,
        input=stdin,
        capture_output=True,
        env=environment(**env),
        timeout=timeout,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, run)


def plain(folder: Path, command: list[str], stdin: bytes = b"", timeout: float = 120, **env: str) -> Done:
    """Run without us."""
    done = subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, env=environment(**env), timeout=timeout, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr, folder / "none")


def script(folder: Path, text: str, name: str = "program.py") -> list[str]:
    """Write a program, and give the command that runs it."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return [sys.executable, name]
