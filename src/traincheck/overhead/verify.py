"""Is a finished study still what was measured? Everything is computed again from the raw artifacts and compared.

Hashes tell what was changed after the study; the recomputation tells what never followed from the evidence, also when
someone made the hashes fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, Final

from traincheck.errors import TraincheckError
from traincheck.overhead import artifacts, outcomes, portability, report, schedule, summary, verify_trial
from traincheck.overhead.policy import Policy, load_policy
from traincheck.overhead.trial import Trial
from traincheck.overhead.verify_pieces import Fault, Said

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many parts are done, and of how many."""

_REPORTS: Final = frozenset(report.FILES)
_CHECKED: Final = ("full", "selective")
"""Kinds of modes whose traces are held against the invariants."""


@dataclass
class Verification:
    """What was found. ``faults`` is empty when all holds; ``counts`` says what was looked at."""

    study: str
    faults: list[Fault] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {
            "schema": artifacts.SCHEMA,
            "study": self.study,
            "holds": not self.faults,
            "counts": self.counts,
            "faults": [fault.to_json() for fault in self.faults],
        }


def verify(folder: Path, quick: bool = False, say: Progress | None = None) -> Verification:
    """Verify the study in ``folder``. ``quick``: learning and checking are not repeated.

    Raises TraincheckError when the folder holds no ended study.
    """
    study = artifacts.read_json(folder / artifacts.STUDY)
    if not isinstance(study, dict) or study.get("state") == "running":
        raise TraincheckError(f"the study in {folder} has not ended", "traincheck overhead run … --resume")
    return _Work(folder, study, quick, say or (lambda what, done, total: None)).all()


@dataclass
class _Work:
    """One verification under way."""

    folder: Path
    study: Mapping[str, Any]
    quick: bool
    say: Progress
    said: Said = field(default_factory=Said)
    counts: dict[str, int] = field(default_factory=dict)

    def all(self) -> Verification:
        """Every step; a step that a damaged file stops is a fault of that step, and the next goes on."""
        said = self.said
        self.say("hashes", 0, 1)
        said.of(artifacts.HASHES, self._hashes)
        policy = said.of(artifacts.POLICY, self._policy)
        if policy is not None:
            self._rest(policy)
        name = str(self.study.get("name"))
        return Verification(name, said.faults, self.counts)

    def _rest(self, policy: Policy) -> None:
        said = self.said
        said.of(artifacts.STUDY, lambda: self._study(policy))
        wanted = self._wanted(policy)
        said.of(artifacts.TRIALS, lambda: self._trials(wanted))
        records: list[dict[str, Any]] = []
        for number, trial in enumerate(wanted):
            self.say(trial.id, number, len(wanted))
            place = f"{artifacts.TRIALS}/{trial.id}"
            if not (self.folder / place / artifacts.TRIAL).exists():
                continue  # told with the trials
            record = said.of(place, partial(verify_trial.verify, self.folder, trial, policy, said))
            if record is not None:
                records.append(record)
                self._count("trials")
                self._count("traces", int((self.folder / place / artifacts.AUDIT).exists()))
        said.of(artifacts.TRIALS, lambda: self._order(records))
        self.say("invariants", len(wanted), len(wanted))
        said.of(artifacts.INVARIANTS, lambda: self._invariants(records))
        for record in records:
            said.of(f"{artifacts.TRIALS}/{record['id']}/{artifacts.RESULTS}", partial(self._results, record, policy))
        self._sums(policy, records)
        said.of("report", self._report)

    # --- what was there ----------------------------------------------------------------------------------------------

    def _hashes(self) -> None:
        """Every file is as it was when the study ended."""
        known = artifacts.read_json(self.folder / artifacts.HASHES)["files"]
        here = {
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        } - {artifacts.HASHES, *_REPORTS}
        for name, entry in known.items():
            if name not in here:
                self.said.add("missing", name, "it was there when the study ended")
                continue
            seen = artifacts.sha256_file(self.folder / name)
            if seen != entry["sha256"]:
                self.said.add("changed", name, f"its SHA-256 is {seen}, the study recorded {entry['sha256']}")
        for name in sorted(here - set(known)):
            self.said.add("extra", name, "it was not there when the study ended")
        self.counts["files"] = len(known)

    def _policy(self) -> Policy:
        """The study file, and what the study says it made of it."""
        path = self.folder / artifacts.POLICY
        seen = artifacts.sha256_file(path)
        if seen != self.study["policy_sha256"]:
            wanted = self.study["policy_sha256"]
            self.said.add("changed", artifacts.POLICY, f"its SHA-256 is {seen}, study.json says {wanted}")
        policy = load_policy(path)
        if self.study["quick"]:
            policy = policy.quickened()
        policy = policy.only(tuple(mode["name"] for mode in self.study["policy"]["modes"]))
        self.said.differ(artifacts.STUDY, "policy", self.study["policy"], policy.to_json(), "policy.toml comes to")
        return policy

    def _study(self, policy: Policy) -> None:
        """Hashes and schedule in ``study.json``."""
        folder, study = self.folder, self.study
        trees = {"program_sha256": artifacts.PROGRAM, "assets_sha256": artifacts.ASSETS}
        for name, place in trees.items():
            if study[name] is not None and study[name] != (seen := artifacts.sha256_tree(folder / place)):
                self.said.add("changed", place, f"the folder's SHA-256 is {seen}, study.json says {study[name]}")
        rules = f"{artifacts.INVARIANTS}/{artifacts.RULES}"
        if study["invariants_sha256"] is not None:
            seen = artifacts.sha256_file(folder / rules)
            if seen != study["invariants_sha256"]:
                wanted = study["invariants_sha256"]
                self.said.add("changed", rules, f"its SHA-256 is {seen}, study.json says {wanted}")
        planned = {
            "schedule": [[one.id, other.id] for one, other in schedule.pairs(policy)],
            "planned": schedule.planned(policy),
        }
        for name, value in planned.items():
            self.said.differ(artifacts.STUDY, name, study[name], value, "the policy gives")

    def _wanted(self, policy: Policy) -> list[Trial]:
        """All trials of the study, in the order in which they are run."""
        found = schedule.references(policy)
        if any(mode.kind == "peer-selective" for mode in policy.modes):
            found.append(schedule.peer_reference(policy))
        return found + [trial for pair in schedule.pairs(policy) for trial in pair]

    def _trials(self, wanted: list[Trial]) -> None:
        """There are the trials that were planned, and no others."""
        folder = self.folder / artifacts.TRIALS
        names = [trial.id for trial in wanted]
        here = sorted(path.name for path in folder.iterdir())
        for name in here:
            if name not in names:
                self.said.add("extra", f"{artifacts.TRIALS}/{name}", "the study has no such trial")
        for name in names:
            if not (folder / name / artifacts.TRIAL).exists() and self.study["state"] == "finished":
                self.said.add("missing", f"{artifacts.TRIALS}/{name}/{artifacts.TRIAL}", "the study ran that trial")

    def _order(self, records: list[dict[str, Any]]) -> None:
        """Trials were run one after the other, in the order of the schedule."""
        for before, after in pairwise(records):
            if after["began_ns"] < before["ended_ns"]:
                place = f"{artifacts.TRIALS}/{after['id']}/{artifacts.TRIAL}"
                self.said.add("inconsistent", place, f"it began before {before['id']} had ended")

    # --- invariants and outcomes -------------------------------------------------------------------------------------

    def _invariants(self, records: list[dict[str, Any]]) -> None:
        """The audit of constants, and (not if quick) learning, give what was recorded."""
        folder = self.folder / artifacts.INVARIANTS
        rules = folder / artifacts.RULES
        if not rules.exists() and self.study["invariants_sha256"] is None:
            return  # interrupted before it learned
        told = artifacts.read_json(folder / "portability.json")
        learned = artifacts.read_json(folder / "learned.json")
        runs = [self.folder / artifacts.TRIALS / name / artifacts.TRACE for name in learned["references"]]
        again = portability.audit(rules, runs)
        where = f"{artifacts.INVARIANTS}/portability.json"
        self.said.differ(where, "", told, again, "the audit gives")
        facts = {
            "invariants": again["invariants"],
            "sha256": again["sha256"],
            "portable": not again["faults"],
            "not_portable": len(again["faults"]),
            "references": [record["id"] for record in records if record["mode"] == "reference"],
        }
        recorded = {name: learned.get(name) for name in facts}
        self.said.differ(
            f"{artifacts.INVARIANTS}/learned.json", "", recorded, facts, "the invariants and references give"
        )
        if self.quick:
            return
        from traincheck.infer import infer
        from traincheck.invariants import load_invariants

        self.say("learning again", 0, 1)
        held = [invariant.to_json() for invariant in load_invariants(rules)]
        found = [invariant.to_json() for invariant in infer(runs).invariants]
        self._count("learned again")
        name = f"{artifacts.INVARIANTS}/{artifacts.RULES}"
        if len(held) != len(found):
            self.said.add("inconsistent", name, f"it has {len(held)} invariants, learning again gives {len(found)}")
        else:
            self.said.differ(name, "invariant", held, found, "learning again gives")

    def _results(self, record: Mapping[str, Any], policy: Policy) -> None:
        """The outcomes of a trial are of its own trace and, unless quick, checking again gives the same."""
        where = f"{artifacts.TRIALS}/{record['id']}/{artifacts.RESULTS}"
        path = self.folder / where
        kinds = {mode.name: mode.kind for mode in policy.modes}
        if kinds.get(record["mode"]) not in _CHECKED or not record["valid"]:
            if path.exists():
                self.said.add("extra", where, "no such trial is checked")
            return
        if not path.exists():
            if self.study["state"] == "finished":
                self.said.add("missing", where, "the trial was checked")
            return
        told = artifacts.read_json(path)
        trace = f"{artifacts.TRIALS}/{record['id']}/{artifacts.TRACE}"
        if not str(told["run"]).endswith(trace):
            self.said.add("inconsistent", where, f"it holds the outcomes of {told['run']}, not of {trace}")
        if self.quick:
            return
        from traincheck.check import check

        self.say(f"checking {record['id']} again", 0, 1)
        again = check(self.folder / trace, self.folder / artifacts.INVARIANTS / artifacts.RULES).to_json()
        self._count("checked again")
        self.said.differ(where, "", _unplaced(told), _unplaced(again), "checking again gives")

    # --- what follows from it ----------------------------------------------------------------------------------------

    def _sums(self, policy: Policy, records: list[dict[str, Any]]) -> None:
        """Pairs, outcomes and summary, from the trials."""
        said, folder = self.said, self.folder
        pairs = said.of(artifacts.PAIRS, lambda: summary.pairs_of(folder, records))
        found = said.of(artifacts.OUTCOMES, lambda: outcomes.all_of(folder, policy, records))
        if pairs is not None:
            value = {"schema": artifacts.SCHEMA, "pairs": pairs}
            self._recomputed(artifacts.PAIRS, value)
            self.counts["pairs"] = len(pairs)
            invalid = sum(not pair["valid"] for pair in pairs)
            if invalid:
                self.counts["pairs that do not count"] = invalid
        if found is not None:
            self._recomputed(artifacts.OUTCOMES, found)
        if pairs is None or found is None:
            return
        path = folder / artifacts.INVARIANTS / "learned.json"
        learned = artifacts.read_json(path) if path.exists() else None
        whole = said.of(
            artifacts.SUMMARY, lambda: summary.summarize(policy, self.study, records, pairs, found, learned)
        )
        if whole is not None:
            self._recomputed(artifacts.SUMMARY, whole)

    def _recomputed(self, name: str, value: Any) -> None:
        def compare() -> None:
            told = artifacts.read_json(self.folder / name)
            self.said.differ(name, "", told, value, "the raw artifacts give")

        self.said.of(name, compare)

    def _report(self) -> None:
        """Reports in the folder say what the study says."""
        here = [name for name in report.FILES if (self.folder / name).exists()]
        if not here:
            return
        content, texts = report.texts(self.folder)
        for name in here:
            text = (self.folder / name).read_text(encoding="utf-8")
            if text == texts[name]:
                continue
            if name == report.JSON:
                self.said.differ(name, "", artifacts.read_json(self.folder / name), content, "the study gives")
            if not any(fault.piece == name for fault in self.said.faults):
                line = next((n for n, (a, b) in enumerate(_lines(text, texts[name]), start=1) if a != b), 0)
                text = f"line {line} is not what the study gives (of an older TrainCheck, write it again)"
                self.said.add("inconsistent", name, text)
        self._count("reports", len(here))

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number


def _unplaced(results: Mapping[str, Any]) -> dict[str, Any]:
    """Results without the paths in them: a study may have been moved."""
    kept = {name: results[name] for name in ("facts", "summary", "never_called", "lacks")}
    rows = [{key: value for key, value in row.items() if key != "file"} for row in results["outcomes"]]
    titles = [finding["title"] for finding in results["findings"]]
    return {**kept, "outcomes": rows, "findings": titles}


def _lines(one: str, other: str) -> list[tuple[str | None, str | None]]:
    return list(zip_longest(one.splitlines(), other.splitlines()))
