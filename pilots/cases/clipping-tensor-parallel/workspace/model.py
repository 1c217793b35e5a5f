"""A GPT whose attention heads and MLPs are split over tensor-parallel ranks."""

import torch
import torch.nn.functional as F
from parallel import column, row
from settings import Settings
from torch import nn


class Block(nn.Module):
    """Attention, then MLP, each after a LayerNorm and with a residual connection."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.head = width // settings.heads
        self.attention_norm = nn.LayerNorm(width)
        self.query, self.value = column(width, width), column(width, width)
        self.key = column(width, width, bias=False)  # the softmax does not see what all keys have in common
        self.out = row(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = column(width, 4 * width)
        self.down = row(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x``: (batch, length, width), the same on all ranks."""
        x = x + self.out(self._attend(self.attention_norm(x)))[0]
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))[0]))[0]

    def _attend(self, h: torch.Tensor) -> torch.Tensor:
        batch, length, _ = h.shape  # layers of Megatron give (output, bias that was not added)
        query, key, value = (
            layer(h)[0].view(batch, length, -1, self.head).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return heads.transpose(1, 2).reshape(batch, length, -1)


class GPT(nn.Module):
    """Token ids (batch, length) to logits (batch, length, vocabulary). Embeddings and head are whole on every rank."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        torch.manual_seed(settings.seed)  # the same on all ranks: what is whole is equal, what is split fits together
        self.tokens = nn.Embedding(settings.vocabulary, settings.width)
        self.positions = nn.Embedding(settings.length, settings.width)
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, settings.vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """See the class."""
        h = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))
