"""Train the GPT: ``train.py --config FILE``, started by torchrun."""

import argparse
from pathlib import Path

import deepspeed
import parallel
import torch
import torch.distributed as dist
import torch.nn.functional as F
from data import batches
from gradients import use_measured_optimizer
from model import GPT
from settings import Settings


def build(settings: Settings, groups: parallel.Groups):
    """DeepSpeed's engine around model and optimizer."""
    use_measured_optimizer()
    model = GPT(settings)
    options = {
        "train_micro_batch_size_per_gpu": settings.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": settings.clip,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
        "steps_per_print": 1_000_000,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=options, mpu=groups)[0]


def main() -> None:
    """Train and log."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    settings = Settings.read(parser.parse_args().config)
    torch.set_num_threads(1)
    groups = parallel.start()
    engine = build(settings, groups)
    torch.manual_seed(settings.seed)
    for step, ids in enumerate(batches(settings)):
        logits = engine(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0:
            norms = {"all": float(engine.get_global_grad_norm()), **engine.optimizer.norms}
            told = ", ".join(f"{name} {norm:.4f}" for name, norm in norms.items())
            print(f"step {step}: loss {loss.item():.4f}, gradient norms: {told}", flush=True)
    parallel.finish()


if __name__ == "__main__":
    main()
