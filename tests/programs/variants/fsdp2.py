"""FSDP2 (fully_shard, DTensor parameters) on gloo; started by torchrun."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from _options import options
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

o = options(batch=5, width=52, steps=8, length=11)
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
torch.manual_seed(o.seed)
model = nn.Sequential(nn.Embedding(64, o.width), nn.Linear(o.width, 2 * o.width), nn.ReLU(), nn.Linear(2 * o.width, 64))
if o.fault == "frozen":
    model[1].requires_grad_(False)
for layer in model:
    if list(layer.parameters()):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps)
generator = torch.Generator().manual_seed(1000 * o.seed + rank)
for step in range(1, o.steps + 1):
    ids = torch.randint(0, 64, (o.batch, o.length), generator=generator)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), o.clip)
    optimizer.step()
    if not (o.fault == "no_zero_grad" and step >= o.since):
        optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
