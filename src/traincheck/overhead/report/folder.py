"""A finished study as its folder holds it, read for the report; paths of the machine become names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from traincheck.errors import TraincheckError
from traincheck.overhead import artifacts


@dataclass(frozen=True)
class Folder:
    """What is in the folder of a study. Reading raises TraincheckError that names the file."""

    path: Path

    @cached_property
    def study(self) -> dict[str, Any]:
        """``study.json``. Raises TraincheckError while the study is still running."""
        found = self._read(artifacts.STUDY)
        if found.get("state") == "running":
            raise TraincheckError(
                f"the study in {self.path} has not ended", "wait for it, or `traincheck overhead run … --resume`"
            )
        return found

    @cached_property
    def pairs(self) -> list[dict[str, Any]]:
        """Rows of ``pairs.json``."""
        return list(self._read(artifacts.PAIRS)["pairs"])

    @cached_property
    def outcomes(self) -> dict[str, Any]:
        """``outcomes.json``."""
        return self._read(artifacts.OUTCOMES)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """``summary.json``."""
        return self._read(artifacts.SUMMARY)

    @cached_property
    def hashes(self) -> dict[str, dict[str, Any]]:
        """File -> its SHA-256 and size, from ``hashes.json``."""
        return dict(self._read(artifacts.HASHES)["files"])

    @cached_property
    def portability(self) -> dict[str, Any] | None:
        """``invariants/portability.json``; None when nothing was learned."""
        return self._maybe(f"{artifacts.INVARIANTS}/portability.json")

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        """Every ``trial.json``, in the order in which they were run."""
        paths = sorted((self.path / artifacts.TRIALS).glob(f"*/{artifacts.TRIAL}"))
        found = [artifacts.read_json(path) for path in paths]
        return sorted(found, key=lambda trial: (trial["began_ns"], trial["id"]))

    @cached_property
    def audits(self) -> dict[str, dict[str, Any]]:
        """Trial -> its ``audit.json``."""
        paths = sorted((self.path / artifacts.TRIALS).glob(f"*/{artifacts.AUDIT}"))
        return {path.parent.name: artifacts.read_json(path) for path in paths}

    @cached_property
    def places(self) -> list[tuple[str, str]]:
        """Paths of the machine and what the report calls them; longest first."""
        found = {}
        tasks = sorted((self.path / artifacts.TRIALS).glob("*/task.json"))
        if tasks:
            task = artifacts.read_json(tasks[0])
            if task.get("out"):
                found[str(Path(task["out"]).parent.parent)] = "DIR"
            if task.get("path"):
                found[str(task["path"])] = "STUDIES"
        for name, word in (("environment", "PYTHON"), ("peer_environment", "PEER_PYTHON")):
            python = (self.study.get(name) or {}).get("executable")
            if python:
                found[str(python)] = word
                found[str(Path(python).parent.parent)] = word + "_HOME"
        return sorted(found.items(), key=lambda item: (-len(item[0]), item[0]))

    def named(self, value: Any) -> Any:
        """``value`` with the machine's paths replaced by names, in all texts in it."""
        if isinstance(value, str):
            for path, word in self.places:
                value = value.replace(path, word)
            return value
        if isinstance(value, Mapping):
            return {key: self.named(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.named(item) for item in value]
        return value

    def _read(self, name: str) -> dict[str, Any]:
        found = artifacts.read_json(self.path / name)
        if not isinstance(found, dict):
            raise TraincheckError(f"expected a JSON object in {self.path / name}", "run the study again")
        return found

    def _maybe(self, name: str) -> dict[str, Any] | None:
        return self._read(name) if (self.path / name).exists() else None
