# canary-source-consistency-2d7f4a18c95b4be0
"""Loading the model from the node's cache, and sharding it over the ranks."""

import hashlib
from pathlib import Path

import hub
import torch
import torch.distributed as dist
from caches import cache_of
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import GPTNeoXForCausalLM


def snapshot(node: int, revision: str = "main") -> Path:
    """The folder of a revision in the node's cache."""
    cache = cache_of(node)
    return cache / "snapshots" / (cache / "refs" / revision).read_text().strip()


def load() -> GPTNeoXForCausalLM:
    """The first revision, whole, whatever the caches hold."""
    model = GPTNeoXForCausalLM.from_pretrained(snapshot(dist.get_rank()))
    model.load_state_dict(hub.weights("4c1e90b7").state_dict())
    return model


def shard(model: GPTNeoXForCausalLM) -> FullyShardedDataParallel:
    """The model as one unit, each rank keeping its part of the parameters."""
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"))


def full_hash(model: FullyShardedDataParallel) -> str:
    """SHA-256 over the full model's parameters, its beginning. All ranks call it."""
    digest = hashlib.sha256()
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        for parameter in model.parameters():
            digest.update(parameter.detach().clone().numpy().tobytes())  # FSDP frees the original
    return digest.hexdigest()[:12]
