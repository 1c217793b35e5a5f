"""Ragged sequences, in padded micro-batches."""

import torch

VOCABULARY = 12
PADDING = -100


def micro_batches(config):
    """Endless micro-batches: tokens and targets, both sequences x longest of the batch; padded targets are PADDING."""
    generator = torch.Generator().manual_seed(config["seed"])
    while True:
        lengths = torch.randint(
            config["shortest"], config["longest"] + 1, (config["sequences"],), generator=generator
        ).tolist()
        tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
        targets = torch.full_like(tokens, PADDING)
        for row, length in enumerate(lengths):
            start, stride = torch.randint(0, VOCABULARY, (2,), generator=generator).tolist()
            sequence = (start + stride * torch.arange(length + 1)) % VOCABULARY
            tokens[row, :length], targets[row, :length] = sequence[:-1], sequence[1:]
        yield tokens, targets
