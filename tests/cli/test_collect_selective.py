"""``traincheck collect -i``: what cannot be observed is an error before the program starts, or is told as such."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

STEP = "torch.optim.sgd.SGD.step"
TRAINING = """
import torch
open("started", "w").close()
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
"""
ALWAYS = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}


def rule(name: str, child: dict[str, Any], clauses: list[dict[str, Any]] | None = None) -> str:
    group = {"inverted": False, "preconditions": [{"clauses": clauses}]} if clauses else ALWAYS
    groups: dict[str, Any] = {"parent_func_call_pre": group}
    return json.dumps(
        {
            "text_description": name,
            "relation": "APIContainRelation",
            "params": [{"param_type": "APIParam", "api_full_name": STEP}, child],
            "precondition": groups,
        }
    )


GOOD = rule("good", {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": "data"})


def api(name: str) -> dict[str, Any]:
    return {"param_type": "APIParam", "api_full_name": name}


BAD = {
    "a function that this torch does not have": (
        rule("bad", api("torch.optim.sgd.turbo_sgd")),
        "torch.optim.sgd.turbo_sgd does not exist in torch",
    ),
    "an argument that this torch does not have": (
        rule(
            "bad",
            {
                **api("torch.optim.sgd.sgd"),
                "arguments": {"args": {"turbo": {"bool": True}}, "func_name": "torch.optim.sgd.sgd"},
            },
        ),
        "torch.optim.sgd.sgd has no argument turbo in torch",
    ),
    "a package that is not installed": (
        rule("bad", api("no_such_package.layers.Layer.forward")),
        "no_such_package is not installed",
    ),
    "a path that cannot be read": (
        rule("bad", api("torch.optim.sgd.sgd"), [{"type": "exist", "prop_name": "captures.1x"}]),
        "a capture path begins with",
    ),
    "an attribute that nobody observes": (
        rule("bad", {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": "hessian"}),
        "hessian is not observed of variables of type torch.nn.Parameter",
    ),
    "a kind of tensor of which this is not observed": (
        rule("bad", {"param_type": "VarTypeParam", "var_type": "mine.sparse.BlockTensor", "attr_name": "blocks"}),
        "blocks is not observed of variables of type mine.sparse.BlockTensor",
    ),
}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return path


@pytest.mark.parametrize("why", BAD)
def test_what_cannot_be_observed_is_an_error_before_training(traincheck, script, tmp_path, why):
    line, words = BAD[why]
    (tmp_path / "rules.jsonl").write_text(f"{GOOD}\n{line}\n")
    result = traincheck("collect", "-o", "run", "-i", "rules.jsonl", "--", sys.executable, script)
    assert result.returncode == 2
    told = " ".join(result.stderr.split())
    assert "error: cannot observe what an invariant needs: bad: " in told
    assert words in told
    assert "--allow-partial" in told
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "run").exists()


def test_partly_each_of_them_is_reported_as_not_observable(traincheck, script, tmp_path):
    lines = [GOOD, *(line.replace('"bad"', f'"bad {n}"') for n, (line, _) in enumerate(BAD.values()))]
    (tmp_path / "rules.jsonl").write_text("\n".join(lines) + "\n")
    result = traincheck("collect", "-o", "run", "-i", "rules.jsonl", "--allow-partial", "--", sys.executable, script)
    assert result.returncode == 0
    assert result.stderr.count("traincheck: not observable: ") == len(BAD)
    checked = traincheck("check", "run", "-i", "rules.jsonl", "--json")
    assert checked.returncode == 0
    answer = json.loads(checked.stdout)
    assert answer["summary"]["not_observable"] == len(BAD)
    good, *bad = answer["outcomes"]
    assert (good["outcome"], good["applications"] > 0) == ("passed", True)
    for outcome, (_, words) in zip(bad, BAD.values(), strict=True):
        assert outcome["outcome"] == "not_observable"
        assert words in outcome["reason"]
