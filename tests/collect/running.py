"""Running the programs in tests/programs, with and without collection."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent.parent / "programs"


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def clean_environment() -> dict[str, str]:
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("TRAINCHECK", "RANK", "WORLD"))}
    return {
        **keep,
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }


def command(program: str, ranks: int, out: Path) -> list[str]:
    script = str(PROGRAMS / f"{program}.py")
    if ranks == 1:
        return [sys.executable, script, str(out)]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        script,
        str(out),
    ]


def run(words: list[str], cwd: Path, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=cwd, env=clean_environment(), capture_output=True, text=True, timeout=timeout, check=False
    )


def plain(program: str, ranks: int, folder: Path) -> list[dict[str, Any]]:
    """Evidence of each rank of an unwatched run."""
    done = run(command(program, ranks, folder / "plain"), folder)
    return _evidence(folder / "plain", ranks, done)


def watched(program: str, ranks: int, folder: Path, *options: str) -> list[dict[str, Any]]:
    """Evidence of each rank of a run collected into ``folder/run``."""
    out = folder / "watched"
    words = [sys.executable, "-m", "traincheck", "collect", "-o", str(folder / "run"), *options, "--"]
    done = run(words + command(program, ranks, out), folder)
    return _evidence(out, ranks, done)


def _evidence(out: Path, ranks: int, done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    # Judged by what was written: gloo may abort a process after everything is done.
    found = []
    for rank in range(ranks):
        path = Path(f"{out}.{rank}.json")
        assert path.exists(), (
            f"rank {rank} wrote nothing; exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        )
        found.append(json.loads(path.read_text()))
    return found
