"""The real cases, trained: the fault shows where it should and nowhere else, good repairs pass, near misses fail.

One designated and one healthy scenario of each; `traincheck pilot qualify` runs all of them, and the numbers are in
docs/measurements/pilot-cases.md.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from tests.collect.running import clean_environment, has
from tests.pilot.judges import judge_of
from tests.pilot.test_cases import CASES
from traincheck.check import check
from traincheck.infer import infer
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading.variants import names, variant
from traincheck.pilot.showing import shown

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FAILURES = (
    pytest.param(
        "clipping-tensor-parallel", "base", "tp1", "clip-by-factor",
        marks=pytest.mark.skipif(not (has("deepspeed") and has("megatron")), reason="needs deepspeed, megatron-core"),
    ),
    pytest.param(
        "token-average-ddp", "gpt2-accumulated", "equal", "weighted-means",
        marks=pytest.mark.skipif(not has("transformers"), reason="needs transformers"),
    ),
    pytest.param(
        "source-consistency-fsdp", "mixed", "one-node", "broadcast-last",
        marks=pytest.mark.skipif(not has("transformers"), reason="needs transformers"),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("name", "designated", "healthy", "alternative"), FAILURES)
def test_fault_repair_and_near_misses_are_told_apart(name, designated, healthy, alternative, tmp_path):
    case, setting, judge = judge_of(CaseFolder(CASES / name), tmp_path)
    bad, good = case.case.scenario(designated), case.case.scenario(healthy)
    initial = case.initial(setting.objects)
    assert bad.designated
    assert not good.designated

    found = judge.judged(initial, bad, tmp_path / "initial-bad")
    assert found.verdict == "incorrect", found.reason
    found = judge.judged(initial, good, tmp_path / "initial-good")
    assert found.verdict == "correct", found.reason

    repaired = variant(case, setting.objects, "alternatives", alternative)
    found = judge.judged(repaired, bad, tmp_path / "repaired")
    assert found.verdict == "correct", found.reason
    assert found.oracle in bad.oracles

    for mutant in names(case, "mutants"):
        source = variant(case, setting.objects, "mutants", mutant)
        found = judge.judged(source, bad, tmp_path / mutant)
        assert found.verdict == "incorrect", f"{mutant}: {found.reason}"


def test_the_other_revision_is_as_right_as_the_first(tmp_path):
    if not has("transformers"):
        pytest.skip("needs transformers")
    case, setting, judge = judge_of(CaseFolder(CASES / "source-consistency-fsdp"), tmp_path)
    swapped = case.case.scenario("swapped")
    oracles = {}
    for name in ("broadcast", "broadcast-last"):
        source = variant(case, setting.objects, "alternatives", name)
        found = judge.judged(source, swapped, tmp_path / name)
        assert found.verdict == "correct", found.reason
        oracles[name] = found.oracle
    assert oracles == {"broadcast": "source-b", "broadcast-last": "source-a"}


def test_the_bug_free_case_has_nothing_to_repair(tmp_path):
    case, setting, judge = judge_of(CaseFolder(CASES / "clean-digits"), tmp_path)
    initial = case.initial(setting.objects)
    for scenario in case.case.scenarios:
        found = judge.judged(initial, scenario, tmp_path / scenario.name)
        assert found.verdict == "correct", found.reason
    base = case.case.scenario("base")
    for kind, wanted in (("alternatives", "correct"), ("mutants", "incorrect")):
        for name in names(case, kind):
            found = judge.judged(variant(case, setting.objects, kind, name), base, tmp_path / name)
            assert found.verdict == wanted, f"{name}: {found.reason}"


@pytest.mark.skipif(not has("transformers"), reason="needs transformers")
def test_numbers_of_the_token_average():
    case = CaseFolder(CASES / "token-average-ddp")
    probe = case.private / "probe.py"
    faulty = shown(case, probe, "llama")
    fixed = shown(case, probe, "llama", "oracles/fixed")
    assert 0.3 < faulty[0]["error"] < 0.42
    assert fixed[0]["error"] < 1e-6
    for ranks in (faulty, fixed):
        assert ranks[0]["gradients"] == ranks[1]["gradients"]
        assert ranks[0]["parameters"] == ranks[1]["parameters"]


@pytest.mark.skipif(not has("transformers"), reason="needs transformers")
def test_numbers_of_source_consistency():
    case = CaseFolder(CASES / "source-consistency-fsdp")
    ranks = shown(case, case.private / "probe.py", "mixed")
    assert ranks[0]["parameters"] == 14_067_712
    assert ranks[0]["tensors"] == 76
    assert ranks[0]["origin"] == {"a": 38, "b": 38, "mixed inside": 0, "neither": 0}
    assert ranks[0]["loaded"] != ranks[1]["loaded"]
    assert ranks[0]["models"] == ranks[1]["models"]
    assert len(ranks[0]["models"]) == 3


@pytest.mark.skipif(not (has("deepspeed") and has("megatron")), reason="needs deepspeed, megatron-core")
def test_numbers_of_clipping():
    case = CaseFolder(CASES / "clipping-tensor-parallel")
    probe = case.private / "probe.py"
    differ = {
        name: [step["differ"] for step in shown(case, probe, scenario, overlay)[0]["steps"]]
        for name, scenario, overlay in (
            ("fault", "base", None), ("fix", "base", "oracles/fixed"), ("off", "clipping-disabled", None)
        )
    }  # fmt: skip
    assert all(differ["fault"])
    assert differ["fix"] == differ["off"] == [0, 0, 0, 0]


@pytest.mark.skipif(not (has("deepspeed") and has("megatron")), reason="needs deepspeed, megatron-core")
def test_traincheck_names_what_is_not_clipped(tmp_path):
    """Learned from the control that whoever has the failure can run too: clipping switched off."""
    case = CaseFolder(CASES / "clipping-tensor-parallel")
    workspace = tmp_path / "workspace"
    shutil.copytree(case.workspace, workspace)

    def collected(name, *rules):
        config = tmp_path / f"{name}.json"
        config.write_text(json.dumps(case.case.scenario(name).config))
        run = tmp_path / "-".join((name, *(rule.stem for rule in rules)))
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
        options = [word for rule in rules for word in ("-i", str(rule))]
        collect = [sys.executable, "-m", "traincheck", "collect", "-q", "-o", str(run), *options, "--"]
        subprocess.run(
            [*collect, *launch, "--config", str(config)],
            cwd=workspace, env=clean_environment(), capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        return run

    rules = tmp_path / "control.jsonl"
    control = collected("clipping-disabled")
    infer([control]).save(rules)
    for run in (collected("base"), collected("base", rules)):
        result = check(run, rules)
        data, grad = sorted(result.findings, key=lambda finding: finding.first_step)
        assert (data.first_step, grad.first_step) == (1, 2)
        assert data.title.startswith("data of ")
        assert "Tensor-parallel ranks hold these parameters whole" in data.meaning
        assert {"blocks.0.attention_norm.bias", "blocks.1.mlp_norm.bias"} <= set(data.tensors)
        assert not [name for name in data.tensors if name.endswith(("query.weight", "up.weight"))]


def test_two_runs_are_the_same_bits():
    case = CaseFolder(CASES / "clean-digits")
    runs = [shown(case, case.private / "probe.py", "base") for _ in range(2)]
    assert json.dumps(runs[0]) == json.dumps(runs[1])
