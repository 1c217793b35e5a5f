# traincheck-canary-tiny-accumulation-c41d7e0a92f8
"""Fault and fix, natively: gradients of the first update against the mean over all of its tokens.

Needs nothing of the grader: ``update`` of the initial program and of the right one, next to the plain definition.
"""

import importlib.util
import json
import sys
from pathlib import Path

import torch
from torch.nn import functional

CASE, OUT = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(CASE / "workspace"))

from data import PADDING, VOCABULARY, micro_batches  # noqa: E402
from model import NextToken  # noqa: E402


def program(path):
    """The program at a path as a module."""
    spec = importlib.util.spec_from_file_location(path.parent.name.replace("-", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gradients(config, work):
    """All gradients as one vector after ``work(model, batches)``; dropout is seeded."""
    torch.manual_seed(config["seed"])
    model = NextToken(VOCABULARY)
    work(model, micro_batches(config))
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).double()


def by_program(module, config):
    """What a program's ``update`` leaves."""
    return gradients(
        config, lambda model, batches: module.update(
            model, torch.optim.SGD(model.parameters(), lr=0.0), batches, config["accumulation"]
        )
    )  # fmt: skip


def by_definition(config):
    """The mean over all tokens of the update, as one sum."""

    def work(model, batches):
        held = [next(batches) for _ in range(config["accumulation"])]
        losses = [
            functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=PADDING, reduction="none")
            for x, y in held
        ]
        count = sum(int((y != PADDING).sum()) for _, y in held)
        (torch.cat(losses).sum() / count).backward()

    return gradients(config, work)


def main():
    """Relative L2 error of either program in every scenario."""
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib
    case = tomllib.loads((CASE / "case.toml").read_text())
    numbers, checks = [], []
    for scenario in case["scenarios"]:
        right = by_definition(scenario["config"])
        for name, path in (("initial", "workspace/train.py"), ("fixed", "private/oracles/fixed/train.py")):
            error = float((by_program(program(CASE / path), scenario["config"]) - right).norm() / right.norm())
            numbers.append(
                {"name": f"gradient error, {name}, {scenario['name']}", "value": error, "unit": "relative L2, update 1"}
            )
            faulty = name == "initial" and scenario.get("designated", False)
            checks.append(
                {
                    "name": f"{name} in {scenario['name']}",
                    "wanted": "above 0.05" if faulty else "below 1e-6",
                    "found": f"{error:.3g}",
                    "holds": error > 0.05 if faulty else error < 1e-6,
                }
            )
    (OUT / "numbers.json").write_text(json.dumps({"numbers": numbers, "checks": checks}, indent=1) + "\n")


if __name__ == "__main__":
    main()
