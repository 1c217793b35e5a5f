"""canary-clipping-5b0e9d7c41fa4d2e: after each step, which parameters that all ranks hold differ between them."""

import deepspeed
import torch
import torch.distributed as dist
import train
from deepspeed.runtime.utils import is_model_parallel_parameter

from traincheck.pilot.showing import report

told: dict = {"steps": []}
original = deepspeed.DeepSpeedEngine.step


def differing(model: torch.nn.Module) -> tuple[list[str], float]:
    """Names of such parameters that are not the same bits on all ranks, and the largest difference."""
    names, largest = [], 0.0
    for name, parameter in model.named_parameters():
        if is_model_parallel_parameter(parameter):
            continue
        copies = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(copies, parameter.detach().contiguous())
        if not all(torch.equal(copies[0], copy) for copy in copies):
            names.append(name)
            largest = max(largest, *((copies[0].float() - copy.float()).abs().max().item() for copy in copies))
    return names, largest


def step(engine, *arguments, **options):
    """The engine's step, then a look at the parameters."""
    original(engine, *arguments, **options)
    names, largest = differing(engine.module)
    shared = [p for p in engine.module.parameters() if not is_model_parallel_parameter(p)]
    told["shared_parameters"] = len(shared)
    told["steps"].append(
        {
            "norm": float(engine.get_global_grad_norm()),
            "differ": len(names),
            "largest": largest,
            "examples": names[:4],
        }
    )


deepspeed.DeepSpeedEngine.step = step
leave = train.parallel.finish


def finish() -> None:
    """Tell before leaving."""
    report(told)
    leave()


train.parallel.finish = finish
train.main()
