# canary-token-average-93c2b6f0ad1e4877
"""Fine-tune: ``train.py --config FILE``, started by torchrun."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
import transformers
from data import IGNORED, Answers, collate
from model import build
from settings import Settings
from transformers import Trainer, TrainingArguments


def trainer(settings: Settings) -> Trainer:
    """The Trainer of the configuration."""
    return Trainer(
        model=build(settings),
        args=arguments(settings),
        train_dataset=Answers(settings),
        data_collator=collate,
        compute_loss_func=token_mean,
    )


def arguments(settings: Settings) -> TrainingArguments:
    """What the Trainer is told."""
    return TrainingArguments(
        output_dir="out",
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulation,
        max_steps=settings.steps,
        learning_rate=settings.learning_rate,
        adam_epsilon=1e-6,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,  # no clipping
        train_sampling_strategy="sequential",
        seed=settings.seed,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        ddp_backend="gloo",
        dataloader_pin_memory=False,
    )


def token_mean(outputs, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
    """Sum over this pass's answer tokens, divided by how many the whole update has on all ranks."""
    logits = outputs.logits[:, :-1].flatten(0, 1).float()
    targets = labels[:, 1 : outputs.logits.shape[1]].flatten()
    return F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum") / num_items_in_batch


def finish() -> None:
    """Leave the job together: gloo's threads need a moment before the interpreter goes."""
    if dist.is_initialized():
        dist.barrier()
        time.sleep(0.5)
        dist.destroy_process_group()


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    settings = Settings.read(parser.parse_args().config)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    trainer(settings).train()
    finish()


if __name__ == "__main__":
    main()
