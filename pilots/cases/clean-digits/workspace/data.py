"""The digits, and which of them a rank takes in which pass."""

from collections.abc import Iterator

import torch
from settings import Settings
from sklearn.datasets import load_digits

Part = tuple[torch.Tensor, torch.Tensor]


def updates(settings: Settings, rank: int, ranks: int) -> Iterator[list[Part]]:
    """For each update, a rank's parts, one for each pass: images (examples, 64) in [0, 1], labels (examples)."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    generator = torch.Generator().manual_seed(100 + settings.seed)
    for _ in range(settings.steps):
        chosen = torch.randperm(len(x), generator=generator)[: settings.batch]  # the same on all ranks
        yield [(x[part], y[part]) for part in chosen[rank::ranks].tensor_split(settings.passes)]
