"""A case: a folder that holds a neutral task, a complete workspace, how it is launched, and a private oracle.

    case.toml       this file's fields
    task.md         what the agent is told; the same words whether there is a fault or not
    workspace/      the initial source, complete
    private/        never shown to an agent:
      README.md       what the failure is, where it comes from, what kind of reproduction this is
      oracles/<name>/       files laid over the workspace: a program known to be right
      alternatives/<name>/  other repairs known to be good, which must pass
      mutants/<name>/       repairs that are nearly right, which must fail
      qualify.py            shows fault and fix with numbers

The contract with an agent, told in the workspace's README: the launch command stays as it is.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, model_validator

from traincheck.errors import TraincheckError
from traincheck.pilot.canonical import sha256
from traincheck.pilot.sources import Objects, SourceMap, capture
from traincheck.studykit import toml
from traincheck.studykit.strict import Strict

SCHEMA = 1
Value = int | float | str | bool | list[int] | list[str]
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Options = Annotated[tuple[Name, ...], Field(min_length=1)]


class Scenario(Strict):
    """``[[scenarios]]``: one way in which every submitted source is run by the grader."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    about: str
    ranks: int = Field(default=1, ge=1)
    steps: int = Field(ge=1)
    """Optimizer steps; records are wanted of every rank and step."""
    config: dict[str, Value] = Field(default_factory=dict)
    """Written to the JSON file that replaces ``{config}`` in the launch command."""
    required: bool = True
    """Whether a repair has to be right here."""
    designated: bool = False
    """Whether the initial source must fail here: the expected failure, registered before any trial."""
    oracles: tuple[str, ...] = ("fixed",)
    """Programs of ``private/oracles``. A source is right when all its state is that of *one* of them."""
    timeout_s: int = Field(default=300, ge=1)


class Tolerance(Strict):
    """``[tolerance]``: how far a tensor may be from the oracle's, as relative L2 error. 0: the same bits."""

    parameters: float = Field(default=0.0, ge=0)
    gradients: float = Field(default=0.0, ge=0)
    optimizer: float = Field(default=0.0, ge=0)
    buffers: float = Field(default=0.0, ge=0)
    absolute: float = Field(default=0.0, ge=0)
    """L2 norm below which both count as zero."""


class Variation(Strict):
    """``[variation]``: what may differ in a variant that nobody has published (``varying``)."""

    modules: dict[Name, Options] = Field(default_factory=dict)
    """Module of the workspace, imported by ``from … import`` only -> names that it may have."""
    names: dict[Name, Options] = Field(default_factory=dict)
    """Word that stands only in code, or in prose for that very thing -> words that may stand there."""
    config: dict[str, Annotated[tuple[Value, ...], Field(min_length=1)]] = Field(default_factory=dict)
    """Field of the configuration that no scenario sets -> values; one is drawn for all scenarios."""
    seeds: tuple[str, ...] = ()
    """Fields of the configuration whose integers are drawn anew: equal ones stay equal."""


class Case(Strict):
    """``case.toml``."""

    schema_: Literal[1] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str
    kind: Literal["failure", "bug-free"]
    reproduction: str = Field(min_length=20)
    """What kind of reproduction this is, in words: component, one host, logical nodes."""
    modules: dict[str, str] = Field(default_factory=dict)
    """Distributions the workspace needs, with exact versions."""
    devices: int = Field(ge=1)
    """What a full launch takes."""
    launch: tuple[str, ...] = Field(min_length=1)
    """Command, in the workspace. ``{python}``, ``{ranks}``, ``{config}``, ``{port}`` are filled in."""
    roots: tuple[str, ...] = (".",)
    ignore: tuple[str, ...] = ("__pycache__", "*.pyc", ".git", "out", ".claude", ".codex")
    outside: tuple[str, ...] = ()
    """Files of the workspace that stand for the world outside of the program: every replay has the case's own."""
    canary: str = Field(min_length=16)
    """A string that stands in every private file and nowhere else: where it is seen, something leaked."""
    public_names: tuple[str, ...] = ()
    """Words by which an agent shows that it knows the public issue, e.g. ``#1801``."""
    inputs: tuple[str, ...] = ()
    """Inputs of the model, by name, that have to be the oracle's bit by bit; empty: all of them."""
    tolerance: Tolerance = Tolerance()
    variation: Variation | None = None
    scenarios: tuple[Scenario, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _scenarios(self) -> Case:
        names = [scenario.name for scenario in self.scenarios]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"scenarios: {name!r} is there twice")
        designated = [scenario.name for scenario in self.scenarios if scenario.designated]
        if (self.kind == "failure") != bool(designated):
            raise ValueError("a case of kind failure has designated scenarios, a bug-free one has none")
        variation = self.variation or Variation()
        for field in variation.config:
            if setting := next((one.name for one in self.scenarios if field in one.config), None):
                raise ValueError(f"variation.config: scenario {setting!r} sets {field!r}, so it can't vary")
        for module in variation.modules:
            if f"{module}.py" in self.outside:
                raise ValueError(f"variation.modules: {module}.py is of the world outside, so it can't vary")
            if any(f"{module}.py" in part for part in self.launch):
                raise ValueError(f"variation.modules: {module}.py is in the launch command, which stays as it is")
        for field in variation.seeds:
            if not any(isinstance(one.config.get(field), int) for one in self.scenarios):
                raise ValueError(f"variation.seeds: no scenario has an integer for {field!r}")
        for path in self.outside:
            if PurePosixPath(path).as_posix() != path or PurePosixPath(path).is_absolute() or ".." in path.split("/"):
                raise ValueError(f"outside: {path!r} is no plain path in the workspace")
        return self

    def scenario(self, name: str) -> Scenario:
        """The scenario of that name."""
        return next(scenario for scenario in self.scenarios if scenario.name == name)


class CaseFolder:
    """A case on disk. Raises TraincheckError when something that a case needs is missing or wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / "case.toml"
        if not path.exists():
            raise TraincheckError(f"{folder} is no case: there is no case.toml", "the shipped ones are in pilots/cases")
        self.case = toml.validated(
            Case, toml.read(path, "a case", "the shipped ones in pilots/cases are examples"), str(path),
            newest=SCHEMA, see="docs/pilot.md",
        )  # fmt: skip
        wanted = ["task.md", "workspace", *(f"workspace/{name}" for name in self.case.outside)]
        wanted += [f"private/oracles/{name}" for name in self.oracles()]
        for name in wanted:
            if not (folder / name).exists():
                raise TraincheckError(f"{path}: the case has no {name}", "see docs/pilot.md for what a case holds")

    @property
    def task(self) -> str:
        """What the agent is told."""
        return (self.folder / "task.md").read_text(encoding="utf-8")

    @property
    def workspace(self) -> Path:
        """The initial source."""
        return self.folder / "workspace"

    @property
    def private(self) -> Path:
        """What no agent sees."""
        return self.folder / "private"

    def oracles(self) -> tuple[str, ...]:
        """Names of all oracles that scenarios use."""
        return tuple(dict.fromkeys(name for scenario in self.case.scenarios for name in scenario.oracles))

    def initial(self, objects: Objects) -> SourceMap:
        """The source that every trial of the case starts from.

        Raises SourceError, and TraincheckError when a file that the case declares as outside is not in it.
        """
        source = capture(self.workspace, objects, roots=self.case.roots, ignore=self.case.ignore)
        for path in self.case.outside:
            if path not in source.entries or source.entries[path].kind != "file":
                raise TraincheckError(
                    f"{self.folder}/case.toml: {path} is declared as outside, but the initial source has no such file",
                    "files under the case's roots, by their path in the workspace, not ignored",
                )
        return source

    def hashes(self, objects: Objects) -> dict[str, str]:
        """What a plan freezes: ``case`` (case.toml), ``task``, ``workspace``, ``evaluator`` (everything private)."""
        private = capture(self.private, objects, ignore=("__pycache__", "*.pyc"))
        return {
            "case": sha256((self.folder / "case.toml").read_text(encoding="utf-8")),
            "task": sha256(self.task),
            "workspace": self.initial(objects).hash,
            "evaluator": private.hash,
        }
