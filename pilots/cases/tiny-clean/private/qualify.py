# traincheck-canary-tiny-clean-8be5d3176f20
"""That the program does what its README says, natively: decay by group, and the norm after clipping."""

import importlib.util
import json
import sys
from pathlib import Path

import torch

CASE, OUT = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(CASE / "workspace"))
spec = importlib.util.spec_from_file_location("program", CASE / "workspace" / "train.py")
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)

config = {"samples": 32, "seed": 21}
torch.manual_seed(config["seed"])
model = program.Network(program.INPUTS)
inputs, values = next(program.samples(config))
torch.nn.functional.mse_loss(model(inputs), values).backward()
gradients = [parameter.grad for parameter in model.parameters()]
before = float(torch.cat([gradient.flatten() for gradient in gradients]).double().norm())
torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
after = float(torch.cat([gradient.flatten() for gradient in gradients]).double().norm())
decay, none = (sorted({one.dim() for one in group["params"]}) for group in program.groups(model, 0.1))
checks = [
    {
        "name": "norm after clipping to 0.25",
        "wanted": "0.25, from more",
        "found": f"{after:.6f}, from {before:.4f}",
        "holds": before > 0.25 and abs(after - 0.25) < 1e-5,
    },
    {
        "name": "decay",
        "wanted": "matrices only",
        "found": f"tensors of {decay} dimensions, not those of {none}",
        "holds": (decay, none) == ([2], [1]),
    },
]
numbers = [
    {"name": "parameters", "value": sum(parameter.numel() for parameter in model.parameters()), "unit": ""},
    {"name": "norm before clipping", "value": before, "unit": "L2"},
]
(OUT / "numbers.json").write_text(json.dumps({"numbers": numbers, "checks": checks}, indent=1) + "\n")
