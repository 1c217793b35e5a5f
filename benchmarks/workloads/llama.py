"""A 6-layer, dim-256 Llama-style model (6,163,712 parameters), sequence 256, batch 1. argv: OUT.json STEPS"""

import sys

import torch
import torch.nn.functional as F
from timing import Steps
from torch import nn

DIM, LAYERS, HEADS, VOCAB, HIDDEN, LENGTH = 256, 6, 16, 2048, 768, 256


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))

    def forward(self, x, rotation):
        batch, length, _ = x.shape
        q, k, v = (w(x).view(batch, length, HEADS, -1) for w in (self.wq, self.wk, self.wv))
        q, k = rotate(q, rotation), rotate(k, rotation)
        out = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, DIM))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(DIM), nn.RMSNorm(DIM)
        self.w1, self.w3 = nn.Linear(DIM, HIDDEN, bias=False), nn.Linear(DIM, HIDDEN, bias=False)
        self.w2 = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x, rotation):
        x = x + self.attention(self.attention_norm(x), rotation)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM)
        self.output = nn.Linear(DIM, VOCAB, bias=False)
        angles = torch.outer(torch.arange(LENGTH), 1e4 ** (-torch.arange(0, DIM // HEADS, 2) / (DIM // HEADS)))
        self.register_buffer("rotation", torch.stack([angles.cos(), angles.sin()]), persistent=False)

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for layer in self.layers:
            x = layer(x, self.rotation)
        return self.output(self.norm(x))


def rotate(x, rotation):
    cos, sin = rotation[0][None, : x.shape[1], None], rotation[1][None, : x.shape[1], None]
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


if __name__ == "__main__":
    steps = Steps(sys.argv[1])
    torch.manual_seed(0)
    model = Llama()
    assert sum(p.numel() for p in model.parameters()) == 6_163_712
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    for _ in range(int(sys.argv[2])):
        ids = torch.randint(0, VOCAB, (1, LENGTH + 1), generator=generator)
        with steps:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    steps.write()
