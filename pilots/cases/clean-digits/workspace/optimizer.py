"""What is trained, and how fast."""

import math

import torch
from settings import Settings
from torch import nn


def build(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """AdamW over what is trained; matrices are decayed, vectors are not."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": settings.decay},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate)


def schedule(optimizer: torch.optim.Optimizer, settings: Settings) -> torch.optim.lr_scheduler.LambdaLR:
    """Linear rise, then half a cosine; it moves once per update."""

    def factor(update: int) -> float:
        if update < settings.warmup:
            return (update + 1) / settings.warmup
        return 0.5 + 0.5 * math.cos(math.pi * (update - settings.warmup) / max(1, settings.steps - settings.warmup))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
