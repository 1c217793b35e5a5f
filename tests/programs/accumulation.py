"""Gradient accumulation, activation checkpointing, a custom autograd function, hooks, and autocast."""

import _evidence
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 16))

    def forward(self, x):
        return x + Scale.apply(checkpoint(self.inner, x, use_reentrant=False), 0.5)


torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(16, 4))
seen = []
model[0].register_forward_hook(lambda module, args, out: seen.append(out.shape))
model[2].weight.register_hook(lambda grad: grad * 1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
losses = []
for step in range(12):
    x, y = torch.rand(8, 16), torch.randint(0, 4, (8,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x).float(), y) / 3
    loss.backward()
    losses.append(loss.item())
    if step % 3 == 2:
        optimizer.step()
        optimizer.zero_grad()
_evidence.write({"model": model}, {"sgd": optimizer}, losses)
