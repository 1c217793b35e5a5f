"""The 0.x tool as a trial: the same program in an environment of its own, watched with that tool's own commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traincheck.overhead.policy import Mode

SCRIPT = """\
import sys
import torch
from overhead_program.main import Run

def begin():
    from traincheck.instrumentor.control import start_step
    start_step()

run = Run(sys.argv[1], on_step=begin)
run.train()
"""
"""It rewrites the script it is given, and instruments what the script imports: hence ``import torch``.

Steps are counted by a call that it puts into the training loops of the script; here a trainer owns the loop, so the
same call is made as each step begins, before its clock.
"""

MODEL_SCRIPT = SCRIPT.replace("on_step=begin)", "on_step=begin, model_first=True)\nmodel = run.model")
"""For subclass tracking the script itself must assign the model, and before an optimizer holds its parameters."""


def command(
    mode: Mode, python: str, folder: Path, program: Path, task: Path, ranks: int, rules: Path | None
) -> list[str]:
    """Its command. It takes no arguments for the program: a shell script does, which it runs in the output folder."""
    entry = folder / "peer" / "train.py"
    entry.parent.mkdir(exist_ok=True)
    (entry.parent / "overhead_program").symlink_to(os.path.relpath(program / "overhead_program", entry.parent))
    entry.write_text(MODEL_SCRIPT if mode.kind == "peer-subclass" else SCRIPT)
    words = [python, str(entry), str(task)]
    if ranks > 1:
        words[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    shell = folder / "peer" / "run.sh"
    shell.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
    shell.chmod(0o755)
    tool = Path(python).parent / "traincheck-collect"
    found = [str(tool), "-p", str(entry), "-s", str(shell), "--output-dir", str(folder / "trace"), "-t", "torch"]
    if mode.kind == "peer-subclass":
        found += ["--models-to-track", "model", "--model-tracker-style", "subclass"]
    elif mode.kind == "peer-selective":
        sampling = ["--sampling-interval", str(mode.sampling_interval), "--warm-up-steps", str(mode.warm_up_steps or 1)]
        found += ["--invariants", str(rules), *sampling]
    return found


def described(trace: Path) -> dict[str, Any]:
    """Size of a trace of the 0.x tool."""
    files: Sequence[Path] = [path for path in trace.rglob("*") if path.is_file()] if trace.is_dir() else []
    traces = [path for path in files if path.name.startswith("trace_") or path.name == "proxy_log.json"]
    return {
        "records": sum(path.read_bytes().count(b"\n") for path in traces),
        "bytes": sum(path.stat().st_size for path in traces),
        "calls": None,
    }


def infer(python: str, trace: Path, rules: Path) -> list[str]:
    """Its command that learns from one of its traces."""
    return [str(Path(python).parent / "traincheck-infer"), "-f", str(trace), "-o", str(rules)]
