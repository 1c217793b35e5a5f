"""canary-clean-digits-e80b57a1c6d94f23: the first update's gradient against one pass over all its examples."""

import copy
import hashlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
import train

from traincheck.pilot.showing import report

told: dict = {}
plain_update = train.update


def digest(tensors) -> str:
    """SHA-256 over tensors, in order."""
    return hashlib.sha256(b"".join(t.detach().contiguous().numpy().tobytes() for t in tensors)).hexdigest()


def update(model, parts, settings):
    """The workspace's, measured the first time."""
    total = plain_update(model, parts, settings)
    if not told:
        every: list = [None] * dist.get_world_size()
        dist.all_gather_object(every, parts)
        alone = copy.deepcopy(model.module)
        alone.zero_grad()
        x, y = (torch.cat([part[field] for rank in every for part in rank]) for field in (0, 1))
        F.cross_entropy(alone(x), y).backward()
        both = zip(model.module.parameters(), alone.parameters(), strict=True)
        pairs = [(p.grad, q.grad) for p, q in both if q.grad is not None]
        error = sum((found - right).square().sum() for found, right in pairs).sqrt()
        told["error"] = float(error / sum(right.square().sum() for _, right in pairs).sqrt())
        told["parts"] = [[len(part[1]) for part in rank] for rank in every]
    told["model"] = model
    return total


def finish() -> None:
    """Tell before leaving."""
    report({**told, "model": digest(told["model"].parameters())})
    leave()


train.update = update
leave = train.finish
train.finish = finish
train.main()
