"""canary-source-consistency-2d7f4a18c95b4be0: hashes of what ranks load and train, and where each tensor is from."""

import hashlib

import hub
import torch
import train
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

from traincheck.pilot.showing import report

REVISIONS = {"a": "4c1e90b7", "b": "d82a55f3"}
told: dict = {"models": []}
sharded: list[FullyShardedDataParallel] = []


def digest(tensors) -> str:
    """SHA-256 over tensors, in order."""
    return hashlib.sha256(b"".join(t.detach().clone().numpy().tobytes() for t in tensors)).hexdigest()[:16]


def full(model) -> dict[str, torch.Tensor]:
    """The full model's parameters by name."""
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        return {
            name.replace("_fsdp_wrapped_module.", ""): parameter.detach().clone()
            for name, parameter in model.named_parameters()
        }


def origin(tensors: dict[str, torch.Tensor]) -> dict[str, int]:
    """How many tensors are of either revision, mixed inside (each element of one of them), or of neither."""
    published = {name: dict(hub.weights(revision).named_parameters()) for name, revision in REVISIONS.items()}
    counts = {"a": 0, "b": 0, "mixed inside": 0, "neither": 0}
    for name, tensor in tensors.items():
        a, b = published["a"][name], published["b"][name]
        if torch.equal(tensor, a):
            counts["a"] += 1
        elif torch.equal(tensor, b):
            counts["b"] += 1
        else:
            counts["mixed inside" if bool(((tensor == a) | (tensor == b)).all()) else "neither"] += 1
    return counts


def shard(model):
    """The workspace's, and a look before and after."""
    told["loaded"] = digest(model.parameters())
    told["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    told["tensors"] = len(list(model.parameters()))
    result = original(model)
    sharded.append(result)
    tensors = full(result)
    told["models"].append(digest(tensors.values()))
    told["origin"] = origin(tensors)
    return result


def after(optimizer, arguments, given) -> None:
    """After each update."""
    told["models"].append(digest(full(sharded[0]).values()))


original = train.shard
train.shard = shard
register_optimizer_step_post_hook(after)
leave = train.finish


def finish() -> None:
    """Tell before leaving."""
    report(told)
    leave()


train.finish = finish
train.main()
