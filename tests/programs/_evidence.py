"""What a training program leaves behind, as bytes: the proof that watching changed nothing."""

import hashlib
import json
import os
import random
import sys

import numpy
import torch

random.seed(0)
numpy.random.seed(0)


def _digest(tensor: torch.Tensor) -> str:
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return hashlib.sha256(data).hexdigest()


def _optimizer_state(optimizer: torch.optim.Optimizer) -> dict:
    state = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for index, parameter in enumerate(parameters):
        for key, value in optimizer.state.get(parameter, {}).items():
            state[f"{index}.{key}"] = _digest(value) if isinstance(value, torch.Tensor) else repr(value)
    return state


def write(models: dict, optimizers: dict, losses: list) -> None:
    """Write the evidence to the file named by argv[1] (with the rank appended when there are several)."""
    evidence = {
        "losses": [float(loss).hex() for loss in losses],
        "parameters": {f"{m}.{n}": _digest(p) for m, model in models.items() for n, p in model.named_parameters()},
        "gradients": {
            f"{m}.{n}": _digest(p.grad) if p.grad is not None else None
            for m, model in models.items()
            for n, p in model.named_parameters()
        },
        "buffers": {f"{m}.{n}": _digest(b) for m, model in models.items() for n, b in model.named_buffers()},
        "optimizers": {name: _optimizer_state(optimizer) for name, optimizer in optimizers.items()},
        "rng": {
            "torch": _digest(torch.get_rng_state()),
            "numpy": hashlib.sha256(repr(numpy.random.get_state()).encode()).hexdigest(),
            "python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest(),
        },
    }
    rank = os.environ.get("RANK", "0")
    with open(f"{sys.argv[1]}.{rank}.json", "w") as file:
        json.dump(evidence, file, indent=1, sort_keys=True)
