"""One source in one scenario: replays until there is a verdict or the cap is reached, every attempt kept.

    <folder>/attempt-1/verdict.json     what this replay came to
    <folder>/attempt-1/out.log, err.log, config.json, records/   what it left; contents of tensors are deleted

A replay that is done is not run again: its verdict is read, if it is of the same source, scenario, oracles and
evaluator.
"""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.pilot.canonical import sha256
from traincheck.pilot.cases import Scenario
from traincheck.pilot.grading import records
from traincheck.pilot.grading.comparison import Comparison, compare
from traincheck.pilot.grading.judging import judge
from traincheck.pilot.grading.replaying import Setting, replay
from traincheck.pilot.grading.variants import variant
from traincheck.pilot.sources import SourceMap
from traincheck.pilot.verdicts import Attempt, Replay
from traincheck.strictjson import dumps
from traincheck.studykit.hashes import files_of, sha256_file
from traincheck.studykit.strict import Strict

_TOLD = 20
"""Differences that a verdict file lists."""

Say = Callable[[str], None]


class Held(Strict):
    """One replay against one oracle, as a verdict file has it."""

    oracle: str
    matches: bool
    differences: int
    first: tuple[str, ...]
    """The first of them, in words, in the order in which they came about."""
    missing: tuple[str, ...]
    errors: dict[str, list[float | str | None]]
    """Category -> relative L2 error of each step over all tensors and ranks; ``inf`` as text."""


class VerdictFile(Strict):
    """``verdict.json`` of one attempt."""

    schema_: int = Field(alias="schema", default=1)
    key: str
    """Hash of everything that the replay and its verdict rest on."""
    source: str
    scenario: str
    attempt: Attempt
    exit_code: int
    ended: str
    seconds: float
    put_back: tuple[str, ...] = ()
    """Paths of the world outside, or in its place, where the source had something else than the replay."""
    against: tuple[Held, ...]


class CaseJudge:
    """Judges sources of one case; keeps the records of its oracles, each computed once. Threads may share it."""

    def __init__(
        self, setting: Setting, oracles: Path, attempts: int, prefix: str, used: Iterable[str] = (),
        say: Say | None = None,
    ) -> None:  # fmt: skip
        """``oracles`` is where records of oracles are kept, ``prefix`` begins the ids of requests.

        ``used`` are request ids that the ledger has already.
        """
        self.setting, self.attempts, self.prefix = setting, attempts, prefix
        self.say: Say = say or (lambda text: None)
        self._folder = oracles
        self._held: dict[tuple[str, str], records.Records] = {}
        self._sources: dict[str, SourceMap] = {}
        self._requests = _Requests(prefix, used)
        self._lock = threading.Lock()
        self._turns: dict[tuple[str, str], threading.Lock] = {}

    def judged(self, source: SourceMap, scenario: Scenario, folder: Path) -> Replay:
        """The verdict on ``source`` in ``scenario``; attempts are kept in ``folder``.

        Only replays that are unknown for a reason of the machine are tried again, up to the cap. Raises
        TraincheckError when an oracle can't be replayed, SourceError, OSError.
        """
        key = self.key(source, scenario)
        kept: list[Attempt] = []
        for number in range(1, self.attempts + 1):
            path = folder / f"attempt-{number}"
            found = _read(path, key)
            if found is None:
                self.say(f"{source.hash[:12]} in {scenario.name}, attempt {number}")
                found = self._attempt(source, scenario, path, number, key)
            kept.append(found.attempt)
            if not found.attempt.infrastructure:
                break
        last = kept[-1]
        return Replay(verdict=last.verdict, reason=last.reason, oracle=last.oracle, attempts=tuple(kept))

    def key(self, source: SourceMap, scenario: Scenario) -> str:
        """Hash of what a verdict rests on: source, scenario, launch, tolerance, oracles, code of the evaluator."""
        case = self.setting.case.case
        return sha256(
            {
                "source": source.hash,
                "scenario": scenario.model_dump(mode="json"),
                "launch": list(case.launch),
                "tolerance": case.tolerance.model_dump(mode="json"),
                "inputs": list(case.inputs),
                "outside": list(case.outside),  # their content is that of the oracles' sources
                "oracles": [self.oracle_source(name).hash for name in scenario.oracles],
                "evaluator": evaluator_hash(),
            }
        )

    def oracle_source(self, name: str) -> SourceMap:
        """The source of an oracle."""
        with self._lock:
            if name not in self._sources:
                self._sources[name] = variant(self.setting.case, self.setting.objects, "oracles", name)
            return self._sources[name]

    def oracle(self, name: str, scenario: Scenario) -> records.Records:
        """Records of an oracle in a scenario, from this run or an earlier one.

        Raises TraincheckError when they are not complete after all attempts.
        """
        with self._lock:
            turn = self._turns.setdefault((name, scenario.name), threading.Lock())
        with turn:  # who comes second finds what the first one computed
            if (name, scenario.name) not in self._held:
                self._held[name, scenario.name] = self._oracle(name, scenario)
            return self._held[name, scenario.name]

    def drop_contents(self) -> None:
        """Delete the contents of the oracles' tensors; digests stay."""
        records.drop_contents(self._folder)
        self._held.clear()

    def compared(self, found: records.Records, scenario: Scenario) -> list[Comparison]:
        """Records against every oracle of the scenario."""
        case = self.setting.case.case
        return [
            compare(
                found, self.oracle(name, scenario), name=name, ranks=scenario.ranks, steps=scenario.steps,
                tolerance=case.tolerance, inputs=case.inputs,
            )
            for name in scenario.oracles
        ]  # fmt: skip

    def _attempt(self, source: SourceMap, scenario: Scenario, path: Path, number: int, key: str) -> VerdictFile:
        for name in scenario.oracles:
            self.oracle(name, scenario)  # before the replay: what can't be judged is not run
        _keep(path)
        request = self._requests.fresh(f"{source.hash[:12]}.{scenario.name}.{number}")
        found = replay(self.setting, source, scenario, path, request)
        comparisons = self.compared(found.records, scenario)
        said = judge(found.done, found.records, comparisons, scenario.ranks)
        reason = said.reason
        if found.put_back:
            reason += f" ({', '.join(found.put_back)} as the case has it: the world outside is not the program's)"
        written = VerdictFile(
            key=key,
            source=source.hash,
            scenario=scenario.name,
            attempt=Attempt(
                number=number, verdict=said.verdict, reason=reason, oracle=said.oracle,
                infrastructure=said.infrastructure, request=request,
            ),
            exit_code=found.done.exit_code,
            ended=found.done.reason,
            seconds=found.done.seconds,
            put_back=found.put_back,
            against=tuple(_held(one) for one in comparisons),
        )  # fmt: skip
        records.drop_contents(path)
        write_whole({path / "verdict.json": dumps(written.model_dump(mode="json", by_alias=True))})
        return written

    def _oracle(self, name: str, scenario: Scenario) -> records.Records:
        source = self.oracle_source(name)
        case = self.setting.case.case
        key = sha256(
            {
                "source": source.hash,
                "scenario": scenario.model_dump(mode="json"),
                "launch": list(case.launch),
                "evaluator": evaluator_hash(),
            }
        )
        folder = self._folder / name / scenario.name
        mark = folder / "oracle.json"
        if _text(mark) == key and any(folder.rglob("*.pt")):
            return records.load(folder / "records")
        lacks: list[str] = []
        for number in range(1, self.attempts + 1):
            self.say(f"oracle {name} in {scenario.name}, attempt {number}")
            found = replay(
                self.setting, source, scenario, folder, self._requests.fresh(f"oracle.{name}.{scenario.name}.{number}")
            )
            held = found.records
            lacks = [*held.missing(scenario.ranks, scenario.steps), *held.faults, *_nothing(held)]
            lacks += held.extra(scenario.ranks, scenario.steps)
            lacks += [f"it raised {one.raised.type}: {one.raised.text}" for one in held.processes
                      if one.raised is not None and not one.raised.by_launcher]  # fmt: skip
            if not lacks:
                write_whole({mark: key})
                return held
        raise TraincheckError(
            f"case {case.name}: oracle {name} is not complete in scenario {scenario.name}: {'; '.join(lacks[:3])}",
            f"what it printed is in {folder}",
        )


class _Requests:
    """Request ids that no ledger has yet: an interrupted replay is asked for again under another one."""

    def __init__(self, prefix: str, used: Iterable[str]) -> None:
        self._prefix, self._used = prefix, set(used)
        self._lock = threading.Lock()

    def fresh(self, label: str) -> str:
        base = name = f"{self._prefix}.{label}"
        again = 0
        with self._lock:
            while name in self._used:
                again += 1
                name = f"{base}.again-{again}"
            self._used.add(name)
        return name


_EVALUATOR: Final = ("observer", "records.py", "comparison.py", "judging.py", "outside.py", "replaying.py")
"""What a verdict rests on. The rest collects verdicts: a fault there is mended without training anything again."""


@functools.cache
def evaluator_hash() -> str:
    """SHA-256 of the code that decides what a replay is worth; one for the whole life of this process."""
    here = Path(__file__).parent
    paths = [path for path in files_of(here) if path.relative_to(here).parts[0] in _EVALUATOR]
    lines = [f"{sha256_file(path)}  {path.relative_to(here).as_posix()}\n" for path in paths]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _held(comparison: Comparison) -> Held:
    return Held(
        oracle=comparison.oracle,
        matches=comparison.matches,
        differences=len(comparison.differences),
        first=tuple(str(one) for one in comparison.differences[:_TOLD]),
        missing=tuple(comparison.missing),
        errors={category: [*values] for category, values in comparison.errors.items()},
    )


def read_verdict(path: Path) -> VerdictFile | None:
    """The verdict file of an attempt's folder; None when there is none, or none that can be read."""
    try:
        return VerdictFile.model_validate(json.loads((path / "verdict.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError):
        return None


def _nothing(held: records.Records) -> list[str]:
    """Parts of the state of which a right program has none at all: with them, everything would agree."""
    steps = [step for process in held.ranks.values() for step in process.steps.values()]
    seen = {
        "parameters": all(step.after.parameters or step.after.masters for step in steps),
        "gradients": all(any(entry is not None for entry in step.gradients.values()) for step in steps),
        "inputs": any(step.inputs for step in steps),
    }
    return [f"the observer sees no {name}" for name, there in seen.items() if not there]


def _keep(path: Path) -> None:
    """Set a verdict of another evaluator, tolerance or oracle aside, as ``earlier-<n>.attempt-<n>``."""
    if read_verdict(path) is not None:
        number = 1
        while (aside := path.with_name(f"earlier-{number}.{path.name}")).exists():
            number += 1
        path.rename(aside)


def _read(path: Path, key: str) -> VerdictFile | None:
    found = read_verdict(path)
    return found if found is not None and found.key == key else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
