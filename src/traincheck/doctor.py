"""What works on this machine, what does not, and why: each part is tried, not guessed from its presence."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

State = Literal["works", "absent", "broken"]

DEPENDENCIES: Final = ("polars", "pydantic", "xxhash", "numpy", "typer", "rich", "jinja2")

OPTIONAL: Final = {
    "transformers": "steps and stages of its Trainer",
    "accelerate": "runs under accelerate launch",
    "lightning": "steps and stages of its Trainer",
    "deepspeed": "its engines as models and optimizers",
    "torchtitan": "runs of its Trainer",
    "scikit-learn": "the digits example",
}


@dataclass(frozen=True)
class Part:
    """One thing looked at; ``detail`` is what was found or why it fails. Without an ``essential`` one nothing works."""

    name: str
    state: State
    detail: str
    essential: bool = False


@dataclass(frozen=True)
class Report:
    """All parts, in the order they were looked at."""

    parts: tuple[Part, ...]

    @property
    def usable(self) -> bool:
        """Whether everything essential works."""
        return all(part.state == "works" for part in self.parts if part.essential)

    @property
    def verdict(self) -> str:
        """One sentence."""
        failed = [part.name for part in self.parts if part.essential and part.state != "works"]
        if failed:
            return f"TrainCheck cannot work here: {', '.join(failed)}."
        limits = [part.name for part in self.parts if part.state == "broken"]
        return "TrainCheck works here." + (f" Limits: {', '.join(limits)}." if limits else "")

    def as_dict(self) -> dict[str, Any]:
        """As JSON: ``schema``, ``usable``, ``verdict``, ``parts`` (fields of ``Part``)."""
        parts = [asdict(part) for part in self.parts]
        return {"schema": 1, "usable": self.usable, "verdict": self.verdict, "parts": parts}


def examine() -> Report:
    """Look at every part. Never raises for what it finds; imports torch when it is there."""
    return Report(tuple(_parts()))


def _parts() -> Iterator[Part]:
    yield _try("python", _python, essential=True)
    yield _try("compiled core", _core, essential=True)
    for name in DEPENDENCIES:
        yield _try(name, partial(_import, name), essential=True)
    yield _try("temporary files", _temporary)
    torch = _torch()
    yield torch
    yield _try("collecting", _collecting, essential=torch.state == "works")
    yield _try("torch.distributed", _distributed)
    yield _try("CUDA", _cuda)
    for name, use in OPTIONAL.items():
        yield _try(name, partial(_installed, name, use), missing=f"not installed: {use}")


class _AbsentError(Exception):
    """The part is not there, and that is no fault."""


def _try(name: str, look: Callable[[], str], essential: bool = False, missing: str = "not installed") -> Part:
    try:
        return Part(name, "works", look(), essential)
    except _AbsentError as reason:
        return Part(name, "absent", str(reason), essential)
    except PackageNotFoundError:
        return Part(name, "absent", missing, essential)
    except Exception as error:
        # A broken installation raises anything at all, and saying what is the purpose of this command.
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            return Part(name, "absent", missing, essential)
        return Part(name, "broken", f"{type(error).__name__}: {' '.join(str(error).split())}", essential)


def _python() -> str:
    found = (
        f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    if platform.python_implementation() != "CPython" or sys.version_info < (3, 10):
        raise RuntimeError(f"expected CPython 3.10 or newer, found {found}")
    if not sys.platform.startswith("linux"):
        raise RuntimeError(f"expected Linux, found {found}")
    return found


def _core() -> str:
    """Record one call into a real segment."""
    from traincheck.collect import _probe

    if _probe.recording():
        return f"ABI {_probe.ABI}, recording now"
    with tempfile.TemporaryDirectory(prefix="traincheck-doctor-") as folder:
        _probe.open(folder, 1 << 16, lambda kind, thing: 1)
        try:
            probe = _probe.Probe(len, 1)
            if probe([1, 2]) != 2 or _probe.records() < 2:
                raise RuntimeError(f"a probed call left {_probe.records()} records, expected at least 2")
        finally:
            _probe.close()
        size = sum(entry.stat().st_size for entry in os.scandir(folder))
    return f"ABI {_probe.ABI}, recorded a call in {size} bytes"


def _import(name: str) -> str:
    import_module(name)
    return version(name)


def _installed(name: str, use: str) -> str:
    return f"{version(name)}: {use}"


def _temporary() -> str:
    folder = tempfile.gettempdir()
    with tempfile.TemporaryFile() as file:
        file.write(b"\0" * 4096)
    return f"{folder}, {shutil.disk_usage(folder).free >> 20} MiB free"


def _torch() -> Part:
    part = _try("torch", lambda: _import("torch"))
    if part.state == "absent":
        # Traces are read, learned from and checked without it; only collecting needs it.
        return Part(part.name, "absent", "not installed: traces can be checked here, not collected")
    return part


def _loaded_torch() -> Any:
    try:
        return import_module("torch")
    except Exception as error:
        raise _AbsentError("needs torch") from error


_TRAINING = """
import torch
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
"""


def _collecting() -> str:
    """Two training steps in a child process, as ``traincheck collect`` would have them."""
    _loaded_torch()
    from traincheck.collect import runfolder
    from traincheck.collect.activation import environment
    from traincheck.collect.plan import Plan
    from traincheck.trace import open_trace

    command = [sys.executable, "-c", _TRAINING]
    with tempfile.TemporaryDirectory(prefix="traincheck-doctor-") as folder:
        run = Path(folder) / "run"
        runfolder.create(run, Plan(scope="boundary"), command, time.time_ns())
        child = subprocess.run(
            command,
            env=environment(str(run), dict(os.environ)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if child.returncode:
            last = child.stderr.strip().splitlines()[-1:] or ["nothing on standard error"]
            raise RuntimeError(f"the program ended with {child.returncode}: {last[0]}")
        if not any((run / "processes").iterdir()):
            notes = [path.read_text(errors="replace").strip() for path in run.glob("not-watched-*")]
            raise RuntimeError(f"the child process was not watched: {'; '.join(notes) or 'sitecustomize did not run'}")
        trace = open_trace(run)
        if trace.steps != [1, 2]:
            raise RuntimeError(f"expected steps 1 and 2 in the trace, found {trace.steps}")
        return f"2 steps of a child process, {len(trace.calls)} calls and {len(trace.states)} states"


def _distributed() -> str:
    distributed = _loaded_torch().distributed
    if not distributed.is_available():
        raise _AbsentError("this build of torch has none")
    names = [name for name in ("gloo", "nccl", "mpi") if getattr(distributed, f"is_{name}_available")()]
    return f"backends: {', '.join(names) or 'none'}"


def _cuda() -> str:
    torch = _loaded_torch()
    if torch.version.cuda is None:
        raise _AbsentError(f"torch {torch.__version__} is built without it: digests are computed on the CPU")
    if not torch.cuda.is_available():
        raise _AbsentError(
            f"torch {torch.__version__} is built for CUDA {torch.version.cuda}, but no usable device is here"
        )
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"CUDA {torch.version.cuda}: {', '.join(names)} (the CUDA digest has not been run on a GPU by us yet)"
