"""The model: an embedding, a norm, and a head."""

import torch
from torch import nn


class NextToken(nn.Module):
    """Logits of the next token from the one before it."""

    def __init__(self, vocabulary, width=11, dropout=0.1):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("micro_batches", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens):
        """Logits, sequences x tokens x vocabulary."""
        if self.training:
            self.micro_batches += 1
        return self.head(self.dropout(self.norm(self.embed(tokens))))
