"""A tiny GPT-2 with the Transformers Trainer: bfloat16, accumulation, evaluation each epoch."""

import tempfile

import torch
from _options import options
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

o = options(batch=3, width=24, epochs=2, length=17)
torch.manual_seed(o.seed)
config = GPT2Config(vocab_size=131, n_positions=64, n_embd=2 * o.width, n_layer=2, n_head=2, resid_pdrop=o.drop)
model = GPT2LMHeadModel(config)
if o.fault == "frozen":
    model.transformer.h[0].mlp.requires_grad_(False)
optimizers = (None, None)
if o.fault == "wrong_optimizer":
    optimizers = (torch.optim.AdamW(model.transformer.h[1].parameters(), lr=o.lr), None)


def rows(count):
    ids = [torch.randint(0, 131, (o.length,)) for _ in range(count)]
    return [{"input_ids": row, "labels": row.clone()} for row in ids]


train, test = rows(8 * o.batch), rows(2 * o.batch)
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder,
        learning_rate=o.lr,
        adam_beta1=o.beta1,
        adam_beta2=o.beta2,
        adam_epsilon=o.eps,
        max_grad_norm=o.clip,
        per_device_train_batch_size=o.batch,
        per_device_eval_batch_size=o.batch,
        gradient_accumulation_steps=2,
        num_train_epochs=o.epochs,
        max_steps=o.steps or -1,
        eval_strategy="epoch",
        logging_steps=1,
        save_strategy="no",
        seed=o.seed,
        bf16=True,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    Trainer(model=model, args=arguments, train_dataset=train, eval_dataset=test, optimizers=optimizers).train()
