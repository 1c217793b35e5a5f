"""Scripted solvers: what a pilot is tried out with, offline, before an agent is paid for.

They are no agents. They get the case's known repairs (``private/alternatives``, else an oracle) and known wrong ones
(``private/mutants``) and play them through the same tools, the same queue and the same ledger as an agent would.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    Model,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.tool import Tool, ToolCall, ToolChoice, ToolDef, ToolInfo

from traincheck.errors import TraincheckError
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.inspecting.context import Trial
from traincheck.pilot.inspecting.tools import REQUEST, SUBMIT
from traincheck.pilot.places import Place

MODEL: Final = "mockllm/model"
HELD_S: Final = 1.5
"""How long one of the two jobs of ``waits-in-queue`` holds its devices, at least."""


@dataclass(frozen=True)
class Call:
    """The model's answer is a tool call."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Lost:
    """There is no answer: the connection is gone."""


Step = Call | tuple[Call, ...] | Lost
"""Several calls are made side by side."""


@dataclass(frozen=True)
class Material:
    """What scripts play with."""

    case: CaseFolder
    temporary: str
    """Folder for files that are no source."""
    manual: str
    """Path that the manual has, where the arm has one."""
    devices: int
    """All that the service has."""

    def right(self) -> Iterator[Step]:
        """Write a known repair."""
        alternatives = _folders(self.case.private / "alternatives")
        yield from self._overlay((alternatives or _folders(self.case.private / "oracles"))[0])

    def wrong(self, which: int = 0) -> Iterator[Step]:
        """Write a known wrong repair: the first, or the one that ``which`` says."""
        mutants = _folders(self.case.private / "mutants")
        if mutants:
            yield from self._overlay(mutants[which])

    def _overlay(self, folder: Path) -> Iterator[Step]:
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
            # The canary stands in every private file; what a solver writes must not have it.
            kept = [line for line in path.read_text().splitlines(True) if self.case.case.canary not in line]
            yield Call("write_file", {"path": path.relative_to(folder).as_posix(), "text": "".join(kept)})

    def training(self) -> Iterator[Step]:
        """Train in the first scenario, as the workspace's README says: with its configuration, on its devices."""
        scenario = self.case.case.scenarios[0]
        config = f"{self.temporary}/config.json"
        filled = {"python": sys.executable, "ranks": scenario.ranks, "config": config, "port": 29517}
        words = [word.format(**filled) for word in self.case.case.launch]
        text = json.dumps(scenario.config)
        yield on_devices(
            f"printf %s {shlex.quote(text)} > {config}; {shlex.join(words)} 2>&1 | tail -n 20", scenario.ranks
        )


def on_devices(command: str, devices: int = 1) -> Call:
    """Ask for devices."""
    return Call(REQUEST, {"command": command, "devices": devices})


def submit(note: str) -> Call:
    """Submit."""
    return Call(SUBMIT, {"note": note})


def shell(command: str) -> Call:
    """A shell command."""
    return Call("bash", {"command": command})


FINISH: Final = Call("finish", {"answer": "done"})
_IMPORT: Final = f"{shlex.quote(sys.executable)} -c 'import traincheck; print(traincheck.__version__)'"


def repairs_second(given: Material) -> Iterator[Step]:
    """Looks, trains, submits the source as it is, repairs it, trains, submits again."""
    yield shell("ls; cat README.md | head -n 20")
    yield from given.training()
    yield submit("as it is")
    yield from given.right()
    yield from given.training()
    yield submit("repaired")
    yield FINISH


def wrong_then_right(given: Material) -> Iterator[Step]:
    """Submits a repair that is nearly right, then one that is; then the same again."""
    yield from given.wrong()
    yield submit("first idea")
    yield from given.right()
    yield submit("second idea")
    yield submit("second idea, nothing changed")
    yield FINISH


def breaks_a_control(given: Material) -> Iterator[Step]:
    """Submits a change that makes a healthy scenario fail, and leaves it at that."""
    yield from given.wrong(-1)
    yield submit("repaired")
    yield FINISH


def never_submits(given: Material) -> Iterator[Step]:
    """Looks and ends."""
    yield shell("ls")
    yield on_devices(f"{shlex.quote(sys.executable)} -c 'print(1 + 1)'")
    yield FINISH


def dies_and_resumes(given: Material) -> Iterator[Step]:
    """Its program ends while it is given a job's result, and later the connection is lost in the middle of a turn."""
    job = on_devices(f"{shlex.quote(sys.executable)} -c 'print(6 * 7)'")
    yield job
    yield job
    yield submit("as it is")
    yield Lost()
    yield from given.right()
    yield submit("repaired")
    yield FINISH


def waits_in_queue(given: Material) -> Iterator[Step]:
    """Asks twice at once for more than half of the devices, so that one of the two waits for the other."""
    yield on_devices(f"sleep {HELD_S}", given.devices), on_devices(f"sleep {HELD_S}; echo second", given.devices)
    yield from given.right()
    yield submit("repaired")
    yield FINISH


def imports_package(given: Material) -> Iterator[Step]:
    """Imports TrainCheck in the shell and on devices: works in the arms that have it, fails in the others."""
    yield shell(f"cat {given.manual} | head -n 5; {_IMPORT}")
    yield on_devices(_IMPORT)
    yield from given.right()
    yield submit("repaired")
    yield FINISH


def collects(given: Material) -> Iterator[Step]:
    """Reads the manual and has TrainCheck watch a training, in the arms that have it."""
    (job,) = given.training()
    command = str(job.arguments["command"]) if isinstance(job, Call) else ""
    watched = command.replace("; ", "; traincheck collect -o out/run -- ", 1)
    yield shell(f"cat {given.manual}")
    yield on_devices(watched, given.case.case.scenarios[0].ranks)
    yield shell("traincheck trace show out/run")
    yield from given.right()
    yield submit("repaired")
    yield FINISH


def never_ends(given: Material) -> Iterator[Step]:
    """Goes on until a budget is used up."""
    yield submit("as it is")
    while True:
        yield shell("true")


def dies_and_never_ends(given: Material) -> Iterator[Step]:
    """Loses its connection, goes on, and then on and on."""
    yield shell("true")
    yield Lost()
    yield from never_ends(given)


def sleeps(given: Material) -> Iterator[Step]:
    """Works for an hour, in one command after another."""
    while True:
        yield shell("sleep 30")


def holds_devices(given: Material) -> Iterator[Step]:
    """Asks for devices for an hour."""
    while True:
        yield on_devices("sleep 30")


def dies_for_good(given: Material) -> Iterator[Step]:
    """Never gets an answer."""
    while True:
        yield Lost()


SCRIPTS: Final[dict[str, Callable[[Material], Iterator[Step]]]] = {
    "repairs-second": repairs_second,
    "wrong-then-right": wrong_then_right,
    "breaks-a-control": breaks_a_control,
    "never-submits": never_submits,
    "dies-and-resumes": dies_and_resumes,
    "waits-in-queue": waits_in_queue,
    "imports-package": imports_package,
    "collects": collects,
    "never-ends": never_ends,
    "dies-and-never-ends": dies_and_never_ends,
    "sleeps": sleeps,
    "holds-devices": holds_devices,
    "dies-for-good": dies_for_good,
}
"""By the name that a plan's ``script`` gives."""


def model(name: str, given: Material) -> Model:
    """Inspect's mock model, playing a script. Raises TraincheckError for a name that there is not."""
    if name not in SCRIPTS:
        raise TraincheckError(f"there is no script {name!r}", f"one of {', '.join(SCRIPTS)}")
    steps = SCRIPTS[name](given)
    count = 0

    def answer(
        messages: list[ChatMessage], tools: list[ToolInfo], choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        nonlocal count
        step = next(steps, FINISH)
        count += 1
        if isinstance(step, Lost):
            raise ConnectionError("the connection was lost")
        calls = step if isinstance(step, tuple) else (step,)
        made = [
            ToolCall(id=f"call-{count}-{number}", function=call.tool, arguments=dict(call.arguments))
            for number, call in enumerate(calls)
        ]
        said = ChatMessageAssistant(content=f"Step {count}: {calls[0].tool}.", tool_calls=made, model=MODEL)
        output = ModelOutput(model=MODEL, choices=[ChatCompletionChoice(message=said, stop_reason="tool_calls")])
        fresh, cached, written = 100 + count, 10 * len(messages), 20 + count
        output.usage = ModelUsage(
            input_tokens=fresh, input_tokens_cache_read=cached, output_tokens=written, reasoning_tokens=5,
            total_tokens=fresh + cached + written,
        )  # fmt: skip
        return output

    return get_model(MODEL, custom_outputs=answer, memoize=False)


def material(case: CaseFolder, place: Place, devices: int) -> Material:
    """What the script of a trial in ``place`` plays with."""
    folders = place.folders()
    return Material(case, folders["tmp"], f"{folders['manual']}/manual.md", devices)


def fitted(trial: Trial, tools: list[Tool]) -> list[Tool]:
    """The tools as a script needs them: the solver of ``dies-and-resumes`` dies when it is given its first result."""
    if trial.solver.script != "dies-and-resumes":
        return tools
    died = False

    def dying(tool: Tool) -> Tool:
        known = ToolDef(tool)
        if known.name != REQUEST:
            return tool

        async def execute(command: str, devices: int = 1) -> Any:
            nonlocal died
            result = await tool(command=command, devices=devices)
            if not died:
                died = True
                raise RuntimeError("the agent's program ended")
            return result

        return ToolDef(execute, name=known.name, description=known.description, parameters=known.parameters).as_tool()

    return [dying(tool) for tool in tools]


def _folders(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if path.is_dir()) if top.is_dir() else []
