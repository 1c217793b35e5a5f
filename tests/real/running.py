"""Collecting the variants in tests/programs/variants: each (program, options, form) once, into one folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from tests.collect.running import PROGRAMS, clean_environment, has
from traincheck.check import Result, check
from traincheck.infer import Inference, infer

VARIANTS: Final = PROGRAMS / "variants"

RANKS: Final = MappingProxyType({"ddp": 2, "fsdp2": 2})
"""Programs that torchrun starts, and on how many ranks."""

RERUNS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        name: {
            "same seed": (),
            "other seed": ("--seed", "5"),
            "other lr": ("--lr", "0.0123"),
            "other batch": ("--batch", str(batch)),
            "other width": ("--width", str(width)),
            "half the steps": ("--steps", str(half)),
            "one epoch more": more,
        }
        for name, batch, width, half, more in (
            ("digits_cnn", 22, 31, 5, ("--epochs", "3")),
            ("gpt2_trainer", 2, 16, 4, ("--epochs", "3")),
            ("gpt2_loop", 2, 16, 5, ("--epochs", "3")),
            ("ddp", 22, 31, 5, ("--steps", "15")),
            ("fsdp2", 3, 32, 4, ("--steps", "12")),
        )
    }
)
"""Healthy reruns of a program, by name; the reference is the program without options."""

slow = (pytest.mark.slow, pytest.mark.timeout(900))
transformers = pytest.mark.skipif(not has("transformers"), reason="needs transformers")

FAULTY: Final = {
    "digits_cnn": ("--fault", "no_zero_grad", "--since", "3"),
    "gpt2_trainer": ("--fault", "frozen"),
    "ddp": ("--fault", "bypassed", "--since", "3"),
    "fsdp2": ("--fault", "no_zero_grad", "--since", "3"),
}
"""The programs that the laws are tried on, each with one fault."""

every = pytest.mark.parametrize(
    ("program", "options"),
    [
        pytest.param(
            program,
            options,
            id=f"{program}-{'faulty' if options else 'healthy'}",
            marks=() if program == "digits_cnn" else (*slow, transformers) if program == "gpt2_trainer" else slow,
        )
        for program, fault in FAULTY.items()
        for options in ((), fault)
    ],
)
"""Each of them, healthy and faulty; the quick one in the default tests."""


class Failed(AssertionError):
    """A program that should have run did not."""


@dataclass
class Runs:
    """Runs in a folder: what is there is not collected again."""

    folder: Path
    python: str = sys.executable
    inferred: dict[tuple[str, ...], Inference] = field(default_factory=dict)

    def collect(self, program: str, *options: str, rules: Path | None = None) -> Path:
        """Trace folder of a run; with ``rules`` in selective form. Raises ``Failed``."""
        words = [program, *options] if rules is None else [program, *options, "by", rules.stem]
        target = self.folder / "-".join(word.strip("-").replace(" ", "") for word in words)
        if (target / "manifest.json").exists():
            return target
        tool = [self.python, "-m", "traincheck", "collect", "--quiet", "-o", str(target)]
        if rules is not None:
            tool += ["-i", str(rules)]
        script = [str(VARIANTS / f"{program}.py"), *options]
        if program in RANKS:
            script = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS[program]), *script]
        done = subprocess.run(
            [*tool, "--", self.python, *script],
            cwd=self.folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{program} {options}: exit {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
        return target

    def learned(self, *programs: str) -> Inference:
        """What is learned of the reference runs of these programs together."""
        if programs not in self.inferred:
            self.inferred[programs] = infer([self.collect(program) for program in programs])
        return self.inferred[programs]

    def rules(self, *programs: str) -> Path:
        """The file of what is learned."""
        path = self.folder / f"{'+'.join(programs)}.jsonl"
        if not path.exists():
            self.learned(*programs).save(path)
        return path

    def rerun(self, program: str, *options: str, selective: bool = False) -> Result:
        """A rerun held against what the program's reference taught."""
        run = self.collect(program, *options, rules=self.rules(program) if selective else None)
        return check(run, self.rules(program))
