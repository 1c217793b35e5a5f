# canary-token-average-93c2b6f0ad1e4877
"""Fine-tune: ``train.py --config FILE``, started by torchrun."""

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
from data import IGNORED, Answers, collate
from model import build
from settings import Settings
from transformers import Trainer, TrainingArguments


class WeighsPasses(Trainer):
    """The mean over all answer tokens of an update, from the means of its passes."""

    loss_is_scaled_for_ga = True

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        """Batches of the next update; counts its answer tokens on all ranks."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        tokens = torch.tensor(sum(_answer_tokens(batch) for batch in batches))
        dist.all_reduce(tokens)
        self.tokens = int(tokens)
        return batches, None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """This pass's part of the update's loss."""
        mean, outputs = super().compute_loss(model, inputs, return_outputs=True)
        loss = mean * (_answer_tokens(inputs) / self.tokens)
        return (loss, outputs) if return_outputs else loss


def _answer_tokens(batch: dict[str, torch.Tensor]) -> int:
    return int((batch["labels"][:, 1:] != IGNORED).sum())


def trainer(settings: Settings) -> Trainer:
    """The Trainer of the configuration."""
    return WeighsPasses(
        model=build(settings),
        args=arguments(settings),
        train_dataset=Answers(settings),
        data_collator=collate,
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
