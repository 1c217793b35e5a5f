"""One trial from the inside: build, take evidence, train under the clock, take evidence, write it down.

``python train.py TASK.json``. Phases are told apart by CLOCK_MONOTONIC, which the process that started this one reads
too. Writes ``rank-<N>.json`` whole or not at all: an incomplete trial has none.
"""

from __future__ import annotations

import json
import os
import platform
import random
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

SCHEMA = 1
BUILT_IN = {
    "digits-cnn": ".digits:DigitsCnn",
    "gpt2-trainer": ".gpt2:Gpt2Trainer",
    "torchtitan-llama-debug": ".titan:LlamaDebug",
}


class Phases:
    """Begin of each phase: monotonic ns, realtime ns, CPU ns of this process so far."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def begin(self, name: str) -> None:
        """What comes now is ``name``, until the next."""
        row = {
            "name": name,
            "monotonic_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC),
            "realtime_ns": time.time_ns(),
            "cpu_ns": time.process_time_ns(),
        }
        self.rows.append(row)


def workload_class(name: str, folder: str | None = None) -> Any:
    """The class of a workload: one of ``BUILT_IN``, or ``module:Class``, searched in ``folder`` too."""
    if folder and folder not in sys.path:
        sys.path.append(folder)
    module, _, cls = BUILT_IN.get(name, name).partition(":")
    return getattr(import_module(module, __package__), cls)


def seed(number: int) -> None:
    """Seed every generator that training may draw from; a workload may seed again as its framework does."""
    import torch

    random.seed(number)
    torch.manual_seed(number)
    try:
        numpy = import_module("numpy")
    except ImportError:
        return
    numpy.random.seed(number % (1 << 32))


class Run:
    """A trial from its task file to its evidence.

    ``model_first``: make only the model now and the rest in ``train``, so that a script can replace its parameters in
    between; for workloads that have ``build_model``. ``on_step`` is called when a step begins, before its clock.
    """

    def __init__(self, task_file: str, *, model_first: bool = False, on_step: Callable[[], Any] | None = None) -> None:
        self._phases = Phases()
        self._phases.begin("import")
        self._task = task = json.loads(Path(task_file).read_text())
        import torch

        torch.set_num_threads(task["threads"])
        from .steps import Steps
        from .workload import Task

        self._steps = Steps(on_step)
        self._rank = int(os.environ.get("RANK", "0"))
        self._out = Path(task["out"])
        scratch = self._out / f"scratch-{self._rank}"
        scratch.mkdir(parents=True, exist_ok=True)
        cls = workload_class(task["workload"], task.get("path"))
        self._phases.begin("set_up")
        seed(task["seed"])
        self._work = cls(Task(task["seed"], task["steps"], Path(task["assets"]), scratch, task.get("options", {})))
        self._built = not model_first
        if self._built:
            self._work.build()
        else:
            self.model = self._work.build_model()

    def train(self) -> None:
        """Take evidence, train, take evidence, and write it all down. What training raises is raised after that."""
        from . import evidence

        work, phases = self._work, self._phases
        if not self._built:
            work.build()
        phases.begin("evidence_before")
        with evidence.unseen():
            initial = evidence.models(work.models())
            before = evidence.identities(work.models())
            rng_before = evidence.generators()

        phases.begin("training")
        failure: Exception | None = None
        try:
            work.train(self._steps)
        except Exception as error:  # the evidence of the steps that went before is told all the same
            failure = error

        phases.begin("evidence_after")
        with evidence.unseen():
            found: dict[str, Any] = {
                "rng_before": rng_before,
                "rng_after": evidence.generators(),
                "initial": initial,
                "final": evidence.models(work.models()),
                "optimizers": evidence.optimizers(work.optimizers()),
            }
            after = evidence.identities(work.models())
            found["moved"] = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
            parameters = sum(p.numel() for model in work.models().values() for p in model.parameters())

        phases.begin("close")
        facts = work.facts()
        work.close()
        phases.begin("done")
        self._write(found, failure, facts, parameters)
        if failure is not None:
            raise failure

    def _write(self, found: dict[str, Any], failure: Exception | None, facts: Any, parameters: int) -> None:
        import torch

        result = {
            "schema": SCHEMA,
            "rank": self._rank,
            "pid": os.getpid(),
            "workload": self._task["workload"],
            "seed": self._task["seed"],
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "facts": facts,
            "parameters": parameters,
            "phases": self._phases.rows,
            "steps": self._steps.done,
            "error": f"{type(failure).__name__}: {failure}"[:500] if failure is not None else None,
            "evidence": found,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        path = self._out / f"rank-{self._rank}.json"
        new = path.with_suffix(".next")
        new.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
        new.replace(path)


def run(task_file: str) -> None:
    """Run the trial that the file describes, and write what happened beside it."""
    Run(task_file).train()


def prepare(task_file: str) -> None:
    """Write the assets of a study."""
    task = json.loads(Path(task_file).read_text())
    assets = Path(task["assets"])
    assets.mkdir(parents=True, exist_ok=True)
    workload_class(task["workload"], task.get("path")).prepare(assets, task.get("options", {}))


def look(task_file: str) -> None:
    """Print, as JSON, what this environment has and the workload needs. Nothing is trained."""
    from importlib import metadata
    from importlib.util import find_spec

    task = json.loads(Path(task_file).read_text())
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "versions": {d.metadata["Name"]: d.version for d in metadata.distributions() if d.metadata["Name"]},
    }
    try:
        cls = workload_class(task["workload"], task.get("path"))
    except ModuleNotFoundError as error:
        if task["workload"] not in BUILT_IN:
            found["error"] = f"{type(error).__name__}: {error}"
        found["missing"] = [error.name]
    except (ImportError, AttributeError, ValueError) as error:
        found["error"] = f"{type(error).__name__}: {error}"
    else:
        found["missing"] = [name for name in getattr(cls, "needs", ()) if find_spec(name) is None]
        found["model_first"] = hasattr(cls, "build_model")
        found["options"] = list(getattr(cls, "options", ()))
        found["ranks"] = list(getattr(cls, "ranks", (1,)))
    print(json.dumps(found))


def main() -> None:
    """``[--look | --prepare] TASK.json``."""
    verbs = {"--look": look, "--prepare": prepare}
    verbs.get(sys.argv[1], run)(sys.argv[-1])
