"""A tiny GPT-2 in a loop of one's own: what the Trainer does, where faults can be built in."""

import sys

import torch
from _options import options
from torch import nn
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

o = options(batch=3, width=24, epochs=2, length=17)
fault = o.fault
torch.manual_seed(o.seed)
config = GPT2Config(vocab_size=131, n_positions=64, n_embd=2 * o.width, n_layer=2, n_head=2, resid_pdrop=o.drop)
model = GPT2LMHeadModel(config)
ids = torch.randint(0, 131, (7 * o.batch, o.length))
train = DataLoader(list(ids[: 5 * o.batch]), batch_size=o.batch, shuffle=True)
test = DataLoader(list(ids[5 * o.batch :]), batch_size=o.batch)

if fault == "frozen":
    model.transformer.h[0].mlp.requires_grad_(False)
trained = model.transformer.h[1].parameters() if fault == "wrong_optimizer" else model.parameters()
if fault == "optimizer_of_copy":
    trained = GPT2LMHeadModel(config).parameters()
optimizer = torch.optim.AdamW(trained, lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps)
scheduler = get_linear_schedule_with_warmup(optimizer, 2, 100)

step = 0


def faulty(name):
    return fault == name and step >= o.since


for _ in range(o.epochs):
    model.train()
    for batch in train:
        step += 1
        if o.steps and step > o.steps:
            sys.exit()
        if faulty("eval_mode"):
            model.eval()
        with torch.autocast("cpu", torch.float16 if faulty("autocast_dtype") else torch.bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        if faulty("step_before_backward"):
            optimizer.step()
            scheduler.step()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), o.clip)
        if not faulty("step_before_backward"):
            optimizer.step()
            scheduler.step()
        if faulty("scheduler_twice"):
            scheduler.step()
        if not faulty("no_zero_grad"):
            optimizer.zero_grad()
    if not (fault == "dropout_in_evaluation" and step >= o.since):
        model.eval()
    with torch.no_grad():
        for batch in test:
            with torch.autocast("cpu", torch.bfloat16):
                model(input_ids=batch, labels=batch).loss.item()
