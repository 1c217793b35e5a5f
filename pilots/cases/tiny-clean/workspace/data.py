"""Noisy samples of a smooth function."""

import torch

INPUTS = 8


def samples(config):
    """Endless updates: inputs (samples x 8) and values (samples x 1)."""
    generator = torch.Generator().manual_seed(config["seed"])
    mixing = torch.randn(INPUTS, 1, generator=generator)
    while True:
        inputs = torch.randn(config["samples"], INPUTS, generator=generator)
        noise = 0.05 * torch.randn(config["samples"], 1, generator=generator)
        yield inputs, torch.sin(inputs @ mixing) + noise
