"""Batches of generated tokens, the same on all ranks: they work on one model together."""

from collections.abc import Iterator

import torch
from settings import Settings


def batches(settings: Settings) -> Iterator[torch.Tensor]:
    """Token ids (batch, length + 1): each token depends on the one before it, with noise."""
    generator = torch.Generator().manual_seed(1000 + settings.seed)
    successor = torch.randperm(settings.vocabulary, generator=generator)
    for _ in range(settings.steps):
        columns = [torch.randint(settings.vocabulary, (settings.batch,), generator=generator)]
        for _ in range(settings.length):
            noise = torch.randint(settings.vocabulary, (settings.batch,), generator=generator)
            surprise = torch.rand(settings.batch, generator=generator) < 0.2
            columns.append(torch.where(surprise, noise, successor[columns[-1]]))
        yield torch.stack(columns, dim=1)
