"""A CNN on made-up 8x8 digits: autocast, batch norm, dropout, clipping, scheduler and evaluation, each epoch."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from _options import options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

o = options(epochs=2)
fault = o.fault
torch.manual_seed(o.seed)
templates = torch.rand(10, 1, 8, 8)
labels = torch.randint(0, 10, (5 * o.batch + 2 * o.batch,))
images = templates[labels] + 0.3 * torch.randn(len(labels), 1, 8, 8)
train = DataLoader(TensorDataset(images[: 5 * o.batch], labels[: 5 * o.batch]), batch_size=o.batch, shuffle=True)
test = DataLoader(TensorDataset(images[5 * o.batch :], labels[5 * o.batch :]), batch_size=o.batch)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6)
        self.drop = nn.Dropout(o.drop)
        self.hidden = nn.Linear(6 * 6 * 6, o.width)
        self.head = nn.Linear(o.width, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).flatten(1)
        return self.head(F.relu(self.hidden(self.drop(x))))


model = CNN()
if fault == "frozen":
    model.hidden.requires_grad_(False)
trained = model.head.parameters() if fault == "wrong_optimizer" else model.parameters()
if fault == "optimizer_of_copy":
    trained = CNN().parameters()
optimizer = torch.optim.Adam(trained, lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, gamma=0.9)

step = 0


def faulty(name):
    return fault == name and step >= o.since


def autocast():
    if faulty("no_autocast"):
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=torch.float16 if faulty("autocast_dtype") else torch.bfloat16)


for _ in range(o.epochs):
    model.train()
    for x, y in train:
        step += 1
        if o.steps and step > o.steps:
            sys.exit()
        if faulty("eval_mode"):
            model.eval()
        if not faulty("no_zero_grad"):
            optimizer.zero_grad()
        with autocast():
            loss = F.cross_entropy(model(x), y)
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
        loss.item()
    if not (fault == "dropout_in_evaluation" and step >= o.since):
        model.eval()
    with torch.no_grad():
        for x, y in test:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                F.cross_entropy(model(x), y).item()
