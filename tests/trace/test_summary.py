"""The numbers of ``traincheck trace show``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trace.builders import RELU, STEP, everything
from traincheck.trace import open_trace
from traincheck.trace.build import TraceBuilder
from traincheck.trace.summary import ranges


def test_numbers(tmp_path: Path) -> None:
    trace = open_trace(everything(ranks=2, steps=3).write(tmp_path / "run"))
    found = trace.summary()
    assert (found.calls, found.captures, found.states) == (len(trace.calls), len(trace.captures), len(trace.states))
    assert found.variables == 2
    assert found.command == ["python", "train.py"]
    assert [(p.rank, p.calls, p.open_calls, p.steps, p.last_step, p.threads) for p in found.processes] == [
        (0, 12, 0, 3, 3, 2),
        (1, 13, 1, 3, 3, 2),
    ]
    counts = {f.function: f for f in found.functions}
    assert (counts[RELU].calls, counts["inner"].raised, counts["torch.add"].open) == (6, 6, 1)
    assert (counts[STEP].first_step, counts[STEP].last_step) == (1, 3)
    assert [(s.step, s.stages, s.processes) for s in found.steps] == [
        (1, ["init"], 2),
        (2, ["init", "training"], 2),
        (3, ["training"], 2),
    ]
    assert found.stages == {"init": 8, "training": 17}
    [data] = [c for c in found.coverage if c.attribute == "data" and c.moment == "before"]
    assert (data.variables, data.observations, data.records, data.processes, data.steps) == (2, 6, 12, 2, "1-3")
    assert json.loads(json.dumps(found.to_json()))["schema"] == 1


def test_gaps() -> None:
    builder = TraceBuilder()
    builder.step()
    builder.mark(6, 40)
    [gap] = builder.trace().summary().gaps
    assert (gap.step, gap.lost) == (1, 40)


@pytest.mark.parametrize(
    ("steps", "text"), [([], ""), ([4], "4"), ([3, 1, 2], "1-3"), ([1, 2, 9, 10, 12], "1-2, 9-10, 12"), ([5, 5], "5")]
)
def test_ranges(steps: list[int], text: str) -> None:
    assert ranges(steps) == text
