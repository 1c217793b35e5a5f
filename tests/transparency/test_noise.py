"""What is not training is not recorded, and what tells nothing is not either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from tests.collect.running import clean_environment
from tests.transparency.watching import SCOPES, Watched, watching


class Model(nn.Module):
    """A small Transformer with an embedding, a recurrent layer and a checkpointed block."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
        self.embedding = nn.Embedding(10, 8)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        hidden = self.encoder(self.embedding(tokens), mask=mask)
        hidden = torch.utils.checkpoint.checkpoint(self.recurrent, hidden, use_reentrant=False)[0]
        return self.head(hidden)


def train(model: nn.Module, steps: int = 3) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(steps):
        tokens = torch.randint(0, 10, (2, 5))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()


TELLS_NOTHING = (
    ".is_",
    ".get_world_size",
    ".get_rank",
    "register_",
    "nesting",
    "_autocast_enabled",
    ".check_",
    ".expected_",
    ".__iter__",
    ".current_accelerator",
    "torch.serialization.",
    "torch.cpu.",
)


def test_a_transformers_step_in_full_scope(tmp_path: Path) -> None:
    with watching(tmp_path / "run") as watched:
        model = Model()
        train(model)
        model.eval()
        with torch.no_grad():
            model(torch.randint(0, 10, (2, 5)))
        torch.save(model.state_dict(), tmp_path / "state.pt")
        model.load_state_dict(torch.load(tmp_path / "state.pt"))
    kept = ("DataLoader.__iter__", "Sampler.__iter__", "torch.serialization.save", "torch.serialization.load")
    names = {str(name) for name in watched.calls["function"]}
    noise = [n for n in names if any(word in n for word in TELLS_NOTHING) and not n.endswith(kept)]
    assert noise == []
    step = watched.by_step()[2]
    layers = 2
    parameters = len(list(model.parameters()))
    assert step["torch.nn.modules.module.Module.__call__"] == 1
    assert step["torch.nn.modules.linear.Linear.forward"] == 2 * layers + 1
    assert step["torch._C._nn.linear"] == 4 * layers + 1
    assert step["torch.nn.modules.rnn.LSTM.forward"] == 2  # again in the recomputation, inside backward
    assert step["torch._C.TensorBase.addcdiv_"] == parameters
    assert sum(step.values()) < 16 * parameters  # eight calls a parameter are Adam's
    assert watched.count("Module.eval") == 1
    assert watched.count("Module.train") == 1  # of eval, not of every submodule
    assert watched.count("Module.state_dict") == 1
    assert watched.count("init.xavier_uniform_") == 1
    assert watched.count("_VariableFunctionsClass.lstm") == 2 * 3 + 1


@pytest.mark.parametrize("scope", SCOPES)
def test_boundary_and_full_agree_on_the_boundary(scope: str, tmp_path: Path) -> None:
    wanted = {
        "torch.nn.modules.module.Module.__call__": 1,
        "torch.optim.optimizer.Optimizer.zero_grad": 1,
        "torch._tensor.Tensor.backward": 1,
        "torch.autograd.backward": 1,
        "torch.nn.utils.clip_grad.clip_grad_norm_": 1,
        "torch.optim.adam.Adam.step": 1,
        "torch.optim.lr_scheduler.LRScheduler.step": 1,
        "torch.amp.autocast_mode.autocast.__enter__": 1,
        "torch.amp.autocast_mode.autocast.__exit__": 1,
        "torch.amp.autocast_mode.autocast.__init__": 1,
        "torch.utils.checkpoint.checkpoint": 1,
    }
    with watching(tmp_path / "run", scope=scope) as watched:
        train(Model())
    step = watched.by_step()[2]
    recomputing = 2  # checkpointing restores the autocast state, once on the way forward and once back
    for name, count in wanted.items():
        assert step[name] in (count, count + recomputing), name


IMPORTS = """
import sys, torch
from torch import nn
import traincheck
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
sys.path.insert(0, sys.argv[2])
with traincheck.collect(sys.argv[1], packages=("torch", "lazy_user")):
    for step in range(4):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if step == 1:
            import torch.distributions
            import torch.nn.utils.parametrizations
            import torch.fx.experimental.symbolic_shapes
            import torch.distributed.tensor
            import torch.nn.utils.prune
            import lazy_user
            assert lazy_user.TABLE is not None
            lazy_user.work()
        torch.nn.utils.prune.is_pruned(model) if step > 1 else None
        torch.distributions.Normal(0.0, 1.0).rsample() if step > 1 else None
"""

LAZY_USER = """
import torch, torch.nn.functional as F
TABLE = torch.add(torch.ones(2), 1)
F.relu(TABLE)
def work():
    return F.relu(TABLE)
"""


def test_imports_are_not_training(tmp_path: Path) -> None:
    (tmp_path / "lazy_user.py").write_text(LAZY_USER)
    script = tmp_path / "program.py"
    script.write_text(IMPORTS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path / "run"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    watched = Watched(tmp_path / "run")
    steps = watched.by_step()
    extra = steps[2] - steps[1]
    assert dict(extra) == {
        "lazy_user.work": 1,
        "torch.nn.functional.relu": 1,
        "torch._VariableFunctionsClass.relu": 1,
    }
    assert watched.count("distributions.normal.Normal.rsample") == 2  # what came late has probes


FSDP = """
import sys, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
import traincheck
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}.rendezvous", rank=0, world_size=1)
with traincheck.collect(sys.argv[1], scope=sys.argv[2]):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2))
    mesh = init_device_mesh("cpu", (1,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("scope", SCOPES)
def test_sharded_training(scope: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FSDP, str(tmp_path / "run"), scope],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    watched = Watched(tmp_path / "run")
    assert watched.process()["faults"] == []
    steps = watched.by_step()
    assert steps[2] == steps[5]
    # The first step makes the optimizer's state and FSDP's buffers; DTensor also works out how to shard every operator.
    makes = {"empty", "as_strided", "tensor", "zeros_like"}
    assert {name.rpartition(".")[2] for name in steps[1] - steps[2]} <= makes
    names: set[Any] = {name for counts in steps.values() for name in counts}
    inner = ("fake", "dynamo", "inductor", "torch.fx", "pytree", "sympy", "_subclasses", "sharding", "broadcast_shapes")
    assert [name for name in names if any(word in name for word in inner)] == []
    if scope == "full":
        assert sum(steps[2].values()) < 300
