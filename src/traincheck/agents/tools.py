"""What the MCP server's tools do, without the protocol: each answers with a small object, or raises TraincheckError."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from traincheck.agents import answers, commands
from traincheck.agents.bounds import clip, some, tail
from traincheck.agents.children import Children, Ended
from traincheck.agents.commands import Tell
from traincheck.agents.root import Root
from traincheck.errors import TraincheckError


@dataclass(frozen=True)
class Watching:
    """How a run is observed: the options of ``traincheck collect``."""

    scope: str = "full"
    every: int = 1
    warmup: int = 0
    calls_only: bool = False

    def arguments(self) -> list[str]:
        """As options."""
        given = ["--scope", self.scope, "--every", str(self.every), "--warmup", str(self.warmup)]
        return [*given, "--no-state"] if self.calls_only else given


class Tools:
    """The tools of one server. Paths in answers are relative to its root."""

    def __init__(self, root: Root, children: Children) -> None:
        self.root = root
        self.children = children
        self._taken: set[Path] = set()

    async def collect(
        self,
        command: str,
        tell: Tell,
        *,
        run: str = "",
        cwd: str = ".",
        timeout_s: float = 600,
        invariants: Sequence[str] = (),
        watching: Watching = Watching(),
        replace: bool = False,
        lines: int = 20,
    ) -> dict[str, Any]:
        """Run a command under collection. Its output goes to ``<run>.log``."""
        argv = commands.words(command)
        folder = self.root.output(run) if run else self._free(command)
        place = self.root.path(cwd)
        if not place.is_dir():
            raise TraincheckError(f"expected a folder to run the command in, found none at {cwd}", "cwd")
        options = [*watching.arguments(), *(["--force"] if replace else [])]
        for file in invariants:
            options += ["-i", str(self.root.path(file))]
        if invariants:
            options.append("--allow-partial")
        log = self.root.path(f"{folder}.log")
        if log.exists() and not replace:
            raise TraincheckError(
                f"{self.root.shown(log)}, where the output is to go, exists already", "another run, or replace"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)

        async def report() -> None:
            last = tail(log, 1, 160)
            await tell(f"running{f': {last}' if last else ''}")

        before = self._manifest(folder).get("started_ns")
        ended = await self.children.run(
            commands.traincheck("collect", "--quiet", "-o", str(folder), *options, "--", *argv),
            cwd=place,
            env=commands.environment(),
            out=log,
            err=None,
            timeout_s=timeout_s,
            tell=report,
        )
        manifest = self._manifest(folder)
        if manifest.get("started_ns") in (None, before):  # it did not come to running the command
            failure = commands.failure_in(log, ended.exit_code)
            log.unlink(missing_ok=True)
            raise failure
        return self._collected(folder, log, manifest, ended, lines)

    def _collected(self, folder: Path, log: Path, manifest: dict[str, Any], ended: Ended, lines: int) -> dict[str, Any]:
        from traincheck.collect import runfolder

        accounts = runfolder.accounts(folder)
        processes = [
            {"rank": (one.get("rank") or {}).get("rank"), **{name: one.get(name) for name in ("steps", "end", "exit")}}
            for one in accounts
        ]
        run = self.root.shown(folder)
        told = {
            "exit_code": manifest.get("exit_code"),
            "timed_out": ended.timed_out,
            "wall_s": round(ended.wall_s, 1),
            "run": run,
            "collected": clip(" ".join(runfolder.summary(folder).replace(str(folder), run).split())),
            "processes": some(processes, answers.FEW),
            "log": self.root.shown(log),
            "output_tail": tail(log, lines),
        }
        if accounts:
            told["next"] = (
                f"infer runs=[{run!r}] if it is healthy, else check run={run!r} against what a healthy one gave"
            )
        return told

    async def infer(
        self, runs: Sequence[str], tell: Tell, *, output: str = "", timeout_s: float = 600, replace: bool = False
    ) -> dict[str, Any]:
        """Learn invariants from healthy runs."""
        if not runs:
            raise TraincheckError("expected at least one run", "what `collect` answered as run")
        folders = [self._given(run) for run in runs]
        target = self.root.output(output or f"{folders[0]}.invariants.jsonl")
        arguments = ["infer", *folders, "-o", self.root.shown(target), *(["--force"] if replace else [])]
        found, _ = await self._json(arguments, timeout_s, f"learning from {', '.join(folders)}", tell)
        lacks = [f"{run}: {text}" for run, texts in found["lacks"].items() for text in texts]
        told = {
            "invariants": found["output"],
            "total": found["total"],
            "relations": found["relations"],
            "rejected": found["rejected"],
        }
        if lacks:
            told["lacks"] = some(lacks, answers.FEW)
        if found["total"]:
            told["next"] = f"check invariants=[{found['output']!r}] with the run, or the command, that may be wrong"
        else:
            told["note"] = "nothing was learned: runs of at least 3 training steps are needed"
        return told

    async def check(
        self,
        invariants: Sequence[str],
        tell: Tell,
        *,
        run: str = "",
        command: str = "",
        cwd: str = ".",
        output: str = "",
        timeout_s: float = 600,
        most: int = 5,
    ) -> dict[str, Any]:
        """Hold a run against invariants, or a command, which is run first and observed as far as they need."""
        if bool(run) == bool(command):
            raise TraincheckError("expected either run or command", "the folder of a run, or a command that trains")
        if not invariants:
            raise TraincheckError("expected at least one invariant file", "what `infer` answered as invariants")
        began = time.monotonic()
        collected: dict[str, Any] = {}
        if command:
            collected = await self.collect(command, tell, cwd=cwd, timeout_s=timeout_s, invariants=invariants, lines=10)
            run = collected["run"]
        folder = self._given(run)
        target = self.root.shown(self.root.output(output or f"{folder}-check"))
        files = [self.root.shown(self.root.path(file)) for file in invariants]
        arguments = ["check", folder, *(word for file in files for word in ("-i", file)), "-o", target, "--force"]
        left = max(30.0, timeout_s - (time.monotonic() - began))
        result, code = await self._json(arguments, left, f"checking {folder}", tell)
        told = {"exit_code": code, "check": target, **answers.checked(result, most)}
        if collected:
            kept = ("exit_code", "timed_out", "run", "collected", "log", "output_tail")
            told["program"] = {name: collected[name] for name in kept}
        if result["findings"]:
            told["next"] = f"findings check={target!r} number=0: the rules broken, with evidence"
        return told

    async def findings(
        self, check: str, *, number: int | None = None, offset: int = 0, limit: int = 5
    ) -> dict[str, Any]:
        """The findings of a check in brief, or one in full."""
        result = answers.results(self.root.path(check), check)
        if number is None:
            return answers.listed(result, offset, limit)
        return answers.in_full(result, number, offset, limit)

    async def trace(
        self,
        run: str,
        tell: Tell,
        *,
        other: str = "",
        section: str = "overview",
        contains: str = "",
        offset: int = 0,
        limit: int = 20,
        timeout_s: float = 600,
    ) -> dict[str, Any]:
        """A part of a trace; with ``other``, where the two runs part."""
        folder = self._given(run)
        if other:
            arguments = ["trace", "diff", folder, self._given(other)]
            found, _ = await self._json(arguments, timeout_s, f"comparing {run} and {other}", tell)
            return answers.differed(found, offset, limit)
        found, _ = await self._json(["trace", "show", folder], timeout_s, f"reading {run}", tell)
        return answers.traced(found, section, contains, offset, limit)

    async def doctor(self, tell: Tell) -> dict[str, Any]:
        """What works on this machine."""
        found, _ = await self._json(["doctor"], 300, "looking around", tell)
        return {
            "usable": found["usable"],
            "verdict": found["verdict"],
            "root": str(self.root.folder),
            "parts": {part["name"]: f"{part['state']}: {part['detail']}" for part in found["parts"]},
        }

    async def _json(self, arguments: Sequence[str], timeout_s: float, what: str, tell: Tell) -> tuple[Any, int]:
        return await commands.answer_of(self.children, arguments, self.root.folder, timeout_s, what, tell)

    def _given(self, run: str) -> str:
        """A run's path relative to the root, in a form that is no option."""
        shown = self.root.shown(self.root.path(run))
        return f"./{shown}" if shown.startswith("-") else shown

    def _free(self, command: str) -> Path:
        """``runs/<script>-<n>``, a name that is not taken."""
        named = next((Path(word).stem for word in command.split() if word.endswith((".py", ".sh"))), "run")
        stem = "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in named).strip("-.") or "run"
        for number in count(1):
            folder = self.root.folder / "runs" / f"{stem}-{number}"
            if folder not in self._taken and not (folder.exists() or Path(f"{folder}.log").exists()):
                break
        self._taken.add(folder)
        return self.root.path(str(folder))

    @staticmethod
    def _manifest(folder: Path) -> dict[str, Any]:
        try:
            found = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
