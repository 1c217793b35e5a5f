"""Modes: what is put before the training command, and which workload can't have which mode, said before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from traincheck.overhead.policy import Mode, WorkloadChoice


def refusal(mode: Mode, workload: WorkloadChoice) -> str | None:
    """Why the workload can't be measured in this mode, or None."""
    if mode.kind == "live":
        return "live checking does not exist yet"
    if mode.kind != "peer-subclass":
        return None
    if workload.ranks > 1:
        return "0.x subclass tracking replaces parameters, which FSDP owns as DTensors"
    if workload.name not in (None, "digits-cnn"):
        return "0.x tracks only models that the script itself makes; here the trainer makes or keeps the model"
    return None


def command(mode: Mode, python: str, run: Path, rules: Path | None, train: Sequence[str]) -> list[str]:
    """The command of a watched trial of ours: ``traincheck collect`` as any user would write it."""
    words = [python, "-m", "traincheck", "collect", "-q", "-o", str(run)]
    if mode.kind == "api":
        words.append("--no-state")
    elif mode.kind == "selective":
        words += ["-i", str(rules)]
    if mode.sampling_interval > 1 or mode.warm_up_steps:
        words += ["--every", str(mode.sampling_interval), "--warmup", str(mode.warm_up_steps)]
    return [*words, "--", *train]


def tracking(mode: Mode) -> str:
    """What the report says about state in this mode."""
    if mode.kind == "api":
        return "disabled: API records only, no model and no other state"
    if mode.kind == "peer-api":
        return "disabled: API records only, no model"
    if mode.kind == "full":
        return "enabled; of DTensors the local shard"
    if mode.kind == "peer-subclass":
        return "enabled: parameters as subclass instances"
    if mode.kind == "peer-selective":
        return "disabled: learned from API records only"
    return "as the invariants need; of DTensors the local shard"
