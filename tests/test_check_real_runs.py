"""Learning and checking on real torch runs: clean reruns are silent, bugs are named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from traincheck.check import Result, check
from traincheck.infer import Inference, infer

PROGRAM = """
import sys
import torch
from torch import nn

options = dict(word.split("=") for word in sys.argv[1:])
torch.manual_seed(int(options.get("seed", 0)))
body = nn.Sequential(nn.Linear(8, 16), nn.Tanh())
model = nn.Sequential(body, nn.Linear(16, 4))
if "frozen" in options:
    model[0][0].requires_grad_(False)
parameters = model[1].parameters() if "head" in options else model.parameters()
optimizer = torch.optim.AdamW(parameters, lr=float(options.get("lr", 1e-3)))
size = int(options.get("batch", 32))
for step in range(int(options.get("steps", 8))):
    x = torch.randn(size, 8)
    if "nozero" not in options:
        optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), x.argmax(1) % 4)
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    (folder / "train.py").write_text(PROGRAM)
    return folder


def collect(folder: Path, *options: str) -> Path:
    target = folder / ("run-" + "-".join(options).replace("=", "_"))
    if not target.exists():
        tool = [sys.executable, "-m", "traincheck", "collect", "--quiet", "-o", str(target), "--scope", "full", "--"]
        command = [*tool, sys.executable, "train.py", *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=120)
    return target


@pytest.fixture(scope="module")
def learned(folder: Path) -> Inference:
    return infer([collect(folder)])


def checked(folder: Path, learned: Inference, *options: str) -> Result:
    run = collect(folder, *options)
    whole = check(run, learned)
    assert check(run, learned, by_step=True).to_json() == whole.to_json()
    return whole


def test_the_rules_of_training_are_learned(learned: Inference) -> None:
    texts = [invariant.text_description for invariant in learned]
    assert "Adam.step() changes every Parameter.data: non-None --> non-None" in texts
    assert "Tensor.backward() changes every Parameter.grad: None --> non-None" in texts
    assert "Optimizer.zero_grad() changes every Parameter.grad: non-None --> None where grad is non-None" in texts
    assert any(text.startswith("Adam.step() always calls ") for text in texts)


@pytest.mark.parametrize("options", [["seed=0"], ["seed=5"], ["lr=0.01"], ["batch=12"], ["steps=4"], ["steps=12"]])
def test_clean_reruns_are_silent(folder: Path, learned: Inference, options: list[str]) -> None:
    result = checked(folder, learned, *options)
    assert result.summary["violated"] == 0
    assert result.summary["error"] == 0
    assert result.summary["passed"] > result.summary["total"] / 2


@pytest.mark.parametrize(
    ("option", "first_step", "tensor", "api", "words"),
    [
        ("nozero=1", 2, "0.0.weight", "backward", "zero_grad() is missing"),
        ("frozen=1", 1, "0.0.bias", "backward", "frozen"),
        ("head=1", 1, "0.0.weight", "step", "not in the optimizer"),
    ],
)
def test_bugs_are_named(
    folder: Path, learned: Inference, option: str, first_step: int, tensor: str, api: str, words: str
) -> None:
    result = checked(folder, learned, option)
    assert result.exit_code == 3
    # That zero_grad() was never called is seen of the order of calls at step 1, of the gradients at step 2.
    assert result.findings[0].first_step in (first_step - 1, first_step)
    finding = next(finding for finding in result.findings if tensor in finding.tensors)
    assert finding.first_step == first_step
    assert finding.apis[0].endswith(api)
    assert words in finding.meaning
    assert "train.py:" in str(finding.location)
