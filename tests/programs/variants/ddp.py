"""DistributedDataParallel on gloo, with evaluation of the bare module; started by torchrun."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from _options import options
from torch import nn
from torch.nn.parallel import DistributedDataParallel

o = options(steps=10)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(o.seed)
net = nn.Sequential(nn.Linear(16, o.width), nn.LayerNorm(o.width), nn.ReLU(), nn.Dropout(o.drop), nn.Linear(o.width, 4))
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps)
generator = torch.Generator().manual_seed(1000 * o.seed + rank)
for step in range(1, o.steps + 1):
    x, y = torch.rand(o.batch, 16, generator=generator), torch.randint(0, 4, (o.batch,), generator=generator)
    optimizer.zero_grad()
    trained = model.module if o.fault == "bypassed" and step >= o.since else model
    loss = F.cross_entropy(trained(x), y)
    loss.backward()
    optimizer.step()
    loss.item()
    if step % 5 == 0:
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()
dist.barrier()
dist.destroy_process_group()
