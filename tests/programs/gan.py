"""Two models, two optimizers, in turn."""

import _evidence
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
optimizer_d = torch.optim.Adam(critic.parameters(), lr=1e-3)
losses = []
for _ in range(6):
    real, noise = torch.randn(16, 8), torch.randn(16, 4)
    optimizer_d.zero_grad()
    loss_d = F.softplus(-critic(real)).mean() + F.softplus(critic(generator(noise).detach())).mean()
    loss_d.backward()
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g = F.softplus(-critic(generator(noise))).mean()
    loss_g.backward()
    optimizer_g.step()
    losses += [loss_d.item(), loss_g.item()]
_evidence.write({"generator": generator, "critic": critic}, {"g": optimizer_g, "d": optimizer_d}, losses)
