"""Variants of the cases, trained: what was wrong is wrong under other names, and a good repair is one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collect.running import has
from tests.pilot.test_cases import CASES
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading.attempts import CaseJudge
from traincheck.pilot.grading.replaying import Setting
from traincheck.pilot.grading.running import LocalRunner
from traincheck.pilot.grading.variants import variant
from traincheck.pilot.sources import Objects
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
    case = vary(CaseFolder(CASES / name), tmp_path / "variant", 2026)
    runner = LocalRunner(tmp_path / "device.jsonl", case.case.devices)
    setting = Setting(case, Objects(tmp_path / "store"), runner, "qualification", sys.executable)
    judge = CaseJudge(setting, tmp_path / "oracles", 2, name)
    chosen = case.case.scenario(scenario)
    found = judge.judged(case.initial(setting.objects), chosen, tmp_path / "initial")
    assert found.verdict == ("incorrect" if chosen.designated else "correct"), found.reason
    found = judge.judged(variant(case, setting.objects, "alternatives", repair), chosen, tmp_path / "repaired")
    assert found.verdict == "correct", found.reason
