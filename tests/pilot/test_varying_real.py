"""Variants of the cases, trained: what was wrong is wrong under other names, and a good repair is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collect.running import has
from tests.pilot.judges import judge_of
from tests.pilot.test_cases import CASES
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading.variants import variant
from traincheck.pilot.varying import vary

slow = (pytest.mark.slow, pytest.mark.timeout(900))


def needs(*modules: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not all(map(has, modules)), reason=f"needs {', '.join(modules)}")


@pytest.mark.parametrize(
    ("name", "scenario", "repair"),
    [
        pytest.param("tiny-accumulation", "ragged", "weighted-means"),
        pytest.param("clipping-tensor-parallel", "base", "clip-by-factor",
                     marks=[*slow, needs("deepspeed", "megatron")]),
        pytest.param("token-average-ddp", "gpt2-accumulated", "weighted-means", marks=[*slow, needs("transformers")]),
        pytest.param("source-consistency-fsdp", "mixed", "broadcast-last", marks=[*slow, needs("transformers")]),
        pytest.param("clean-digits", "base", "weighted-means", marks=slow),
    ],
)  # fmt: skip
def test_a_variant_fails_and_is_repaired_as_its_case(name: str, scenario: str, repair: str, tmp_path: Path) -> None:
    case, setting, judge = judge_of(vary(CaseFolder(CASES / name), tmp_path / "variant", 2026), tmp_path)
    chosen = case.case.scenario(scenario)
    found = judge.judged(case.initial(setting.objects), chosen, tmp_path / "initial")
    assert found.verdict == ("incorrect" if chosen.designated else "correct"), found.reason
    found = judge.judged(variant(case, setting.objects, "alternatives", repair), chosen, tmp_path / "repaired")
    assert found.verdict == "correct", found.reason
