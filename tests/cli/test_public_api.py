"""``import traincheck`` costs next to nothing, and its names are what they say."""

from __future__ import annotations

import subprocess
import sys

import pytest

import traincheck
from tests.cli.cli_support import plain_environment


def run(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], env=plain_environment(), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_import_is_cheap():
    extra = run(
        "import __future__, sys, typing, importlib, types\n"
        "before = set(sys.modules)\n"
        "import traincheck\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    assert extra == "traincheck"


def test_all_names_are_listed_and_there():
    assert set(traincheck.__all__) <= set(dir(traincheck))
    for name in traincheck.__all__:
        assert getattr(traincheck, name) is not None


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = traincheck.nonsense


@pytest.mark.parametrize("verb", ["collect", "infer", "check"])
@pytest.mark.parametrize("first", ["", "import traincheck.{0}", "from traincheck.{0} import *"])
def test_verbs_can_be_called_however_their_module_was_imported(verb, first):
    program = first.format(verb) + (
        "\nimport traincheck, inspect, types\n"
        f"verb = traincheck.{verb}\n"
        "assert callable(verb), verb\n"
        "assert isinstance(verb, types.ModuleType)\n"
        "assert len(inspect.signature(verb).parameters) > 0\n"
    )
    run(program)


def test_steps_and_stages_are_harmless_without_a_recording():
    run(
        "import traincheck, sys\n"
        "traincheck.step()\n"
        "with traincheck.stage('evaluation'):\n"
        "    pass\n"
        "assert 'torch' not in sys.modules\n"
    )


def test_the_whole_way_in_python(tmp_path):
    program = f"""
import os
os.chdir({str(tmp_path)!r})
import torch
import traincheck

def train(replaced=False):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if replaced:
        model[2] = torch.nn.Linear(4, 1)
    for _ in range(6):
        traincheck.step()
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        optimizer.step()
    with traincheck.stage("evaluation"), torch.no_grad():
        model(torch.randn(8, 4))

with traincheck.collect("good"):
    train()
with traincheck.collect("bad"):
    train(replaced=True)
trace = traincheck.open_trace("good")
assert trace.steps == [1, 2, 3, 4, 5, 6], trace.steps
assert "evaluation" in trace.calls["stage"].unique().to_list()
traincheck.save_invariants(traincheck.infer(["good"]), "good.jsonl")
assert len(traincheck.load_invariants("good.jsonl")) > 0
assert traincheck.check("good", "good.jsonl").exit_code == 0
result = traincheck.check("bad", "good.jsonl")
assert result.exit_code == 3
print([title for title in (finding.title for finding in result.findings) if "did not change" in title][0])
"""
    assert "SGD.step()" in run(program)
