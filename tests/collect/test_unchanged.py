"""Training is bitwise the same with and without collection, full, boundary and selective; its trace lacks nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.collect.running import has, plain, watched
from traincheck.infer import infer
from traincheck.trace import open_trace

FAST = [("digits_cnn", 1, None, 12), ("gan", 1, None, 6), ("accumulation", 1, None, 4), ("compiled", 1, None, 5)]
SLOW = [
    ("ddp", 2, None, 5),
    ("fsdp2", 2, None, 5),
    ("gpt2_trainer", 1, "transformers", 5),
    ("accelerate_loop", 1, "accelerate", 4),
    ("lightning_fit", 1, "lightning", 16),
    ("deepspeed_zero1", 2, "deepspeed", 5),
]


def the_same(without: list[dict[str, Any]], with_collection: list[dict[str, Any]]) -> None:
    for rank, evidence in enumerate(without):
        for part in evidence:
            assert with_collection[rank][part] == evidence[part], f"{part} of rank {rank} differ"


@pytest.mark.parametrize("scope", ["full", "boundary"])
@pytest.mark.parametrize(
    ("program", "ranks", "needs", "steps"), [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_training_is_bitwise_the_same(
    program: str, ranks: int, needs: str | None, steps: int, scope: str, tmp_path: Path
) -> None:
    if needs is not None and not has(needs):
        pytest.skip(f"{needs} is not installed (pip install -e .[frameworks])")
    without = plain(program, ranks, tmp_path)
    the_same(without, watched(program, ranks, tmp_path, "--scope", scope))

    trace = open_trace(tmp_path / "run")
    assert len(trace.processes) == ranks
    descriptions = [json.loads(p.read_text()) for p in sorted((tmp_path / "run" / "processes").glob("*/process.json"))]
    assert [d["faults"] for d in descriptions] == [[]] * ranks
    assert [d["dropped"] for d in descriptions] == [0] * ranks
    assert trace.calls.height > 0
    updates = trace.marks.filter((pl.col("kind") == "step_end") & (pl.col("process") == 0))
    assert updates["value"].to_list() == list(range(1, steps + 1))
    assert set(trace.states["attribute"].unique()) >= {"data", "grad"}
    assert trace.lacks == []

    if scope == "full":
        learned = infer([trace])
        learned.save(tmp_path / "rules.jsonl")
        chosen = tmp_path / "chosen"
        chosen.mkdir()
        the_same(without, watched(program, ranks, chosen, "-i", str(tmp_path / "rules.jsonl")))
        assert len(learned) > 5
        assert 0 < open_trace(chosen / "run").calls.height <= trace.calls.height
