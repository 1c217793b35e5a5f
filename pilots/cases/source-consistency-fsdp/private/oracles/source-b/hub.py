# canary-source-consistency-2d7f4a18c95b4be0
"""The hub where the model is published. It is played here, outside of the program: weights are too large to keep."""

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

NAME = "example/neox-14m"
PUBLISHED = {"2026-02-27": "d82a55f3"}
"""Day -> revision that ``main`` has named since then."""

CONFIG = GPTNeoXConfig(
    vocab_size=50304,
    hidden_size=128,
    num_hidden_layers=6,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=2048,
    rotary_pct=0.25,
    use_parallel_residual=True,
    attention_dropout=0.0,
    hidden_dropout=0.0,
)


def main_on(day: str) -> str:
    """The revision that ``main`` named on a day (ISO format)."""
    return PUBLISHED[max(since for since in PUBLISHED if since <= day)]


def weights(revision: str) -> GPTNeoXForCausalLM:
    """The model of a revision, the same at each call. Trained models have no LayerNorm of ones and zeros."""
    torch.manual_seed(int(revision, 16))
    model = GPTNeoXForCausalLM(CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=1e-3)
    return model
