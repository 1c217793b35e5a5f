"""Fine-tune: ``train.py --config FILE``, started by torchrun."""

import argparse
import time
from pathlib import Path

import caches
import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from data import batches
from settings import Settings
from weights import full_hash, load, shard


def finish() -> None:
    """Leave the job together: gloo's threads need a moment before the interpreter goes."""
    dist.barrier()
    time.sleep(0.5)
    dist.destroy_process_group()


def main() -> None:
    """Train and log."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    config = parser.parse_args().config
    settings = Settings.read(config)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    caches.fill(config)  # the world before the job
    dist.init_process_group("gloo")

    model = shard(load())
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    torch.manual_seed(settings.seed)
    for step, ids in enumerate(batches(settings, dist.get_rank())):
        optimizer.zero_grad()
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        dist.all_reduce(mean := loss.detach().clone())
        name = full_hash(model)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item() / dist.get_world_size():.4f}, model {name}", flush=True)
    finish()


if __name__ == "__main__":
    main()
