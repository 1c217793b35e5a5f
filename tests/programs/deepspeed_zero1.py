"""DeepSpeed ZeRO-1 on gloo with a torch optimizer; started by torchrun."""

import importlib
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import _evidence
import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

# Its shared-memory collectives are built for two minutes at first use; gloo does without.
importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
deepspeed.init_distributed("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 1000,
}
engine, wrapped, _, _ = deepspeed.initialize(
    model=model, optimizer=optimizer, model_parameters=model.parameters(), config=config
)
generator = torch.Generator().manual_seed(1 + rank)
losses = []
for _ in range(5):
    x, y = torch.rand(4, 16, generator=generator), torch.randint(0, 4, (4,), generator=generator)
    loss = F.cross_entropy(engine(x), y)
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
_evidence.write({"model": model}, {"adamw": optimizer}, losses)
dist.barrier()
dist.destroy_process_group()
