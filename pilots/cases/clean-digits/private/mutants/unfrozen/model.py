# canary-clean-digits-e80b57a1c6d94f23
"""The network."""

import torch
from settings import Settings
from torch import nn


class Network(nn.Module):
    """Images (examples, 64) to logits (examples, 10)."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        torch.manual_seed(settings.seed)
        self.project = nn.Linear(64, settings.features)
        self.norm = nn.LayerNorm(settings.features)
        self.hidden = nn.Linear(settings.features, settings.width)
        self.out = nn.Linear(settings.width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        h = self.norm(torch.relu(self.project(x)))
        return self.out(torch.relu(self.hidden(h)))
