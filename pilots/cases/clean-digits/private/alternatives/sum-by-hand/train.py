# canary-clean-digits-e80b57a1c6d94f23
"""Train: ``train.py --config FILE``, started by torchrun."""

import argparse
import time
from pathlib import Path

import optimizer as optimizers
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import updates
from model import Network
from settings import Settings
from torch.nn.parallel import DistributedDataParallel


def update(model: DistributedDataParallel, parts: list, settings: Settings) -> torch.Tensor:
    """Forward and backward of all passes of this rank; gives its sum of losses."""
    total = torch.zeros(())
    with model.no_sync():
        for x, y in parts:
            loss = F.cross_entropy(model(x), y, reduction="sum")
            (loss / settings.batch).backward()
            total += loss.detach()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
    return total


def finish() -> None:
    """Leave the job together: gloo's threads need a moment before the interpreter goes."""
    dist.barrier()
    time.sleep(0.5)
    dist.destroy_process_group()


def main() -> None:
    """Train and log."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    settings = Settings.read(parser.parse_args().config)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    model = DistributedDataParallel(Network(settings))
    optimizer = optimizers.build(model, settings)
    schedule = optimizers.schedule(optimizer, settings)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    torch.manual_seed(settings.seed)
    for step, parts in enumerate(updates(settings, rank, ranks)):
        optimizer.zero_grad()
        total = update(model, parts, settings)
        norm = torch.nn.utils.clip_grad_norm_(trained, settings.clip)
        optimizer.step()
        schedule.step()
        dist.all_reduce(total)
        if rank == 0:
            print(f"step {step}: loss {total.item() / settings.batch:.4f}, gradient norm {norm.item():.4f}", flush=True)
    finish()


if __name__ == "__main__":
    main()
