"""Batches of generated tokens, different ones for each rank."""

from collections.abc import Iterator

import torch
from hub import CONFIG
from settings import Settings


def batches(settings: Settings, rank: int) -> Iterator[torch.Tensor]:
    """Token ids (batch, length + 1) of a rank's steps."""
    generator = torch.Generator().manual_seed(1000 * settings.seed + rank)
    for _ in range(settings.steps):
        yield torch.randint(CONFIG.vocab_size, (settings.batch, settings.length + 1), generator=generator)
