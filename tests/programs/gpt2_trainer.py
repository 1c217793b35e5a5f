"""A tiny GPT-2 with the Transformers Trainer."""

import tempfile

import _evidence
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=2, n_head=2))
data = [{"input_ids": (ids := torch.randint(0, 128, (32,))), "labels": ids.clone()} for _ in range(32)]
losses = []


class Losses(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            losses.append(logs["loss"])


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=5,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Losses()])
    trainer.train()
optimizer = trainer.optimizer
_evidence.write({"model": model}, {"adamw": getattr(optimizer, "optimizer", optimizer)}, losses)
