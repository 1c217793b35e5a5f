"""What TrainCheck says of a case when it has learned from healthy runs of the same case.

    python pilots/what_traincheck_says.py pilots/cases/token-average-ddp -o out/says

Two sources of what is healthy are tried, each by itself:

- controls: the initial source in the scenarios where it is right. That is what whoever has the failure can have, too.
- a right program: the first oracle in the designated scenarios. The best there can be: the failure against its repair.

For each, runs are collected in full, invariants are inferred, and the designated scenarios of the initial source are
checked, and one more healthy run that nothing was learned from (is there a false alarm?). Seconds are wall time of one
run each on a machine with other load, for the first next to the same run without TrainCheck; no overhead benchmark.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from traincheck.pilot.cases import CaseFolder
from traincheck.studykit.processes import environment

Run = tuple[str, str | None]
"""Scenario, and the folder of ``private/`` that is laid over the workspace."""


class Trying:
    """One case in one folder of results. Traces that are there already are used again."""

    def __init__(self, case: CaseFolder, folder: Path) -> None:
        self.case, self.folder = case, folder
        self.port = 29600
        self.plain = False
        """Whether a run without TrainCheck was made: one of a case is enough."""

    def collected(self, run: Run) -> dict[str, Any]:
        """Trace, seconds with and without TrainCheck, MB."""
        scenario, overlay = run
        name = f"{scenario}-{(overlay or 'initial').rpartition('/')[2]}"
        told = self.folder / f"{name}.json"
        if told.exists():
            return dict(json.loads(told.read_text()))
        trace = self.folder / "traces" / name
        plain = None if self.plain else self._launch(name, run, ())
        self.plain = True
        watched = self._launch(name, run, ("-m", "traincheck", "collect", "--force", "--quiet", "-o", str(trace), "--"))
        size = sum(path.stat().st_size for path in trace.rglob("*") if path.is_file()) / 1e6
        found = {"trace": str(trace), "plain_s": plain, "watched_s": watched, "mb": round(size, 1)}
        told.write_text(json.dumps(found))
        return found

    def learned(self, name: str, runs: list[Run]) -> dict[str, Any]:
        """Invariants of these runs."""
        rules = self.folder / f"{name}.jsonl"
        traces = [self.collected(run)["trace"] for run in runs]
        began = time.monotonic()
        out = self._traincheck("infer", *traces, "-o", str(rules), "--force", "--json")
        return {"rules": str(rules), "s": round(time.monotonic() - began, 1), "told": json.loads(out)}

    def checked(self, run: Run, rules: str) -> dict[str, Any]:
        """What a check of this run finds."""
        cost = self.collected(run)
        began = time.monotonic()
        told = json.loads(self._traincheck("check", cost["trace"], "-i", rules, "--json"))
        keep = ("title", "first_step", "ranks", "apis", "tensors", "location", "expected", "observed", "meaning")
        return {
            "run": run,
            **cost,
            "check_s": round(time.monotonic() - began, 1),
            "findings": [{field: finding[field] for field in keep} for finding in told["findings"]],
            "counts": told.get("counts"),
        }

    def _launch(self, name: str, run: Run, before: tuple[str, ...]) -> float:
        scenario = self.case.case.scenario(run[0])
        folder = self.folder / "work" / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.case.workspace, folder, ignore=shutil.ignore_patterns(*self.case.case.ignore))
        if run[1] is not None:
            shutil.copytree(self.case.private / run[1], folder, dirs_exist_ok=True)
        (folder / "scenario.json").write_text(json.dumps(scenario.config))
        self.port += 1
        filled = {"python": sys.executable, "ranks": scenario.ranks, "config": "scenario.json", "port": self.port}
        command = [part.format(**filled) for part in self.case.case.launch]
        if before:
            command = [sys.executable, *before, *command]
        began = time.monotonic()
        subprocess.run(command, cwd=folder, env=environment(1), check=True, timeout=scenario.timeout_s)
        seconds = round(time.monotonic() - began, 1)
        shutil.rmtree(folder)
        return seconds

    def _traincheck(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "traincheck", *words],
            capture_output=True,
            text=True,
            env=environment(2),
            check=False,
        )
        if done.returncode not in (0, 3):
            raise SystemExit(f"traincheck {' '.join(words)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout


def tried(case: CaseFolder, folder: Path, chosen: list[str]) -> dict[str, Any]:
    """Both sources of what is healthy, against the failure in the designated scenarios (or those of them chosen)."""
    trying = Trying(case, folder)
    scenarios = case.case.scenarios
    designated = [one for one in scenarios if one.designated and (not chosen or one.name in chosen)]
    controls: list[Run] = [(scenario.name, None) for scenario in scenarios if not scenario.designated]
    faulty: list[Run] = [(scenario.name, None) for scenario in designated]
    said: dict[str, Any] = {"case": case.case.name}
    unseen = [run for run in controls if run[0] == "fresh-seed"]
    sources = {"controls": ([run for run in controls if run not in unseen], unseen)}
    if designated:
        right = [(scenario.name, f"oracles/{scenario.oracles[0]}") for scenario in designated]
        sources["a right program"] = (right[:-1] or right, right[-1:] if len(right) > 1 else [])
    for name, (learn, held_out) in sources.items():
        rules = trying.learned(name.replace(" ", "-"), learn)
        said[name] = {
            "learned from": learn,
            "infer": rules,
            "healthy, not learned from": [trying.checked(run, rules["rules"]) for run in held_out],
            "faulty": [trying.checked(run, rules["rules"]) for run in faulty],
        }
    return said


def main() -> None:
    """Try the cases and print what was said."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", type=Path, nargs="+", metavar="CASE")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--scenario", action="append", default=[], help="Only these designated scenarios. Repeatable.")
    given = parser.parse_args()
    for path in given.cases:
        case = CaseFolder(path)
        folder = given.output.resolve() / case.case.name
        folder.mkdir(parents=True, exist_ok=True)
        said = tried(case, folder, given.scenario)
        (folder / "said.json").write_text(json.dumps(said, indent=1))
        for source in ("controls", "a right program"):
            for kind in ("healthy, not learned from", "faulty"):
                for checked in said.get(source, {}).get(kind, ()):
                    print(f"\n{case.case.name}, learned from {source}, {kind}: {checked['run']}")
                    cost = f"{checked['watched_s']} s ({checked['mb']} MB), checked in {checked['check_s']} s"
                    print(f"  collected in {cost}")
                    for finding in checked["findings"]:
                        print(f"  - since step {finding['first_step']}, ranks {finding['ranks']}: {finding['title']}")
                        print(f"    {finding['observed'][:300]}")


if __name__ == "__main__":
    main()
