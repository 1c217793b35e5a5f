"""Names and owners through wrappers: DDP, FSDP, tensor parallel, torch.compile, checkpointing, front optimizers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fake import FakeRecorder, observing
from torch import nn
from xxhash import xxh3_128_intdigest

from traincheck.collect.observe import ranks
from traincheck.collect.observe.models import Models, unwrap
from traincheck.collect.observe.optimizers import wraps
from traincheck.events import Moment

dist = torch.distributed


def digest(tensor: torch.Tensor) -> tuple[str, int]:
    return "digest", xxh3_128_intdigest(tensor.detach().contiguous().numpy().tobytes())


def params(state: dict[Any, Any], attribute: str = "data") -> dict[str, Any]:
    return {n: v[attribute] for (o, r, n), v in state.items() if o == "model" and r == "parameter" and attribute in v}


@pytest.fixture
def gloo() -> Iterator[None]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


NAMES = {"0.weight", "0.bias", "2.weight", "2.bias"}


def run(model: nn.Module, parameters: nn.Module | None = None) -> FakeRecorder:
    with observing() as (recorder, _):
        optimizer = torch.optim.AdamW((parameters or model).parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).sum().backward()
            optimizer.step()
    assert recorder.faults == []
    assert len(recorder.at("step", Moment.AFTER)) == 2
    for state in recorder.at("step"):
        assert not any(name.startswith("param.") for _, _, name in state)
    return recorder


@pytest.mark.usefixtures("gloo")
def test_ddp() -> None:
    model = net()
    recorder = run(nn.parallel.DistributedDataParallel(model), model)
    assert params(recorder.at("step")[-1]) == {name: digest(tensor) for name, tensor in model.state_dict().items()}
    process = recorder.at("process")[-1]["run", "process", "process"]
    assert (process["rank"], process["world_size"], process["backend"]) == (0, 1, "gloo")
    assert ranks.coordinates() == {"rank": 0, "world_size": 1, "backend": "gloo"}


@pytest.mark.usefixtures("gloo")
def test_module_called_bare_before_it_is_wrapped() -> None:
    with observing() as (recorder, _):
        model = net()
        model(torch.randn(1, 4))
        wrapped = nn.parallel.DistributedDataParallel(model)
        wrapped(torch.randn(1, 4))
    assert len(recorder.at("baseline")) == 1


@pytest.mark.usefixtures("gloo")
@pytest.mark.parametrize("reshard", [True, False])
def test_fsdp2(reshard: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = net()
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    with observing() as (recorder, _):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for _ in range(2):
            model(torch.randn(5, 4)).sum().backward()
            model.unshard()  # at an observation point the unsharded guests may stand in the modules
            optimizer.step()
            model.reshard()
            optimizer.zero_grad()
    assert recorder.faults == []
    (_, before), (_, after) = recorder.at("step", Moment.BEFORE), recorder.at("step", Moment.AFTER)
    locals_ = {name: digest(p.to_local()) for name, p in model.named_parameters()}
    assert params(after) == locals_
    assert params(before) != locals_
    assert all(grad is not None for grad in params(before, "grad").values())
    facts = before["model", "parameter", "0.weight"]
    assert facts["placements"].startswith("S(")
    assert (facts["mesh.dp"], facts["mesh_size.dp"]) == (0, 1)
    assert facts["in_optimizer"] == "optimizer/0"
    assert facts["local_shape"] == torch.Size([6, 4])
    state = after["optimizer", "optimizer_state", "0.weight"]
    assert state["exp_avg"][0] == "digest"


@pytest.mark.usefixtures("gloo")
@pytest.mark.parametrize("original", [True, False])
def test_fsdp1(original: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    model = FSDP(net(), device_id=torch.device("cpu"), use_orig_params=original)
    recorder = run(model)
    found = params(recorder.at("step", Moment.AFTER)[-1])
    assert set(found) == (NAMES if original else {"_flat_param"})
    assert len({tuple(sorted(params(state).items())) for state in recorder.at("step")}) == 3


@pytest.mark.usefixtures("gloo")
def test_tensor_parallel() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    model = parallelize_module(net(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    recorder = run(model)
    facts = params(recorder.at("baseline")[0], "placements")
    assert facts["0.weight"] == "S(0)"
    assert facts["2.weight"] == "S(1)"
    assert params(recorder.at("baseline")[0], "mesh.tp")["0.weight"] == 0


def test_compiled_and_checkpointed_names() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    inner = net()
    inner[0] = checkpoint_wrapper(inner[0])
    compiled = torch.compile(inner, backend="eager")
    assert unwrap(compiled) is inner
    model = Models(FakeRecorder()).discover(compiled)
    assert model is not None
    assert {place.name for place, _ in model.entries()} == NAMES


def test_data_parallel_and_script() -> None:
    run(nn.DataParallel(net()))
    scripted = torch.jit.script(net())
    model = Models(FakeRecorder()).discover(scripted)
    assert model is not None
    assert {place.name for place, _ in model.entries()} == NAMES
    assert all(isinstance(tensor, torch.Tensor) for _, tensor in model.entries())


def test_front_optimizers_are_passed_over() -> None:
    inner = torch.optim.SGD(net().parameters(), lr=0.1)

    class Front(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

        @property
        def param_groups(self) -> Any:
            return self.optimizer.param_groups

        def step(self, closure: Any = None) -> Any:
            return self.optimizer.step(closure)

    assert wraps(Front(inner))
    assert not wraps(inner)
    with observing(torch.optim.SGD, Front) as (recorder, _):
        model = net()
        optimizer = Front(torch.optim.SGD(model.parameters(), lr=0.1))
        model(torch.randn(1, 4)).sum().backward()
        optimizer.step()
    assert len(recorder.at("step")) == 2
    assert recorder.faults == []


TWO_RANKS = """
import json, sys, torch
sys.path.insert(0, sys.argv[1])
from fake import observing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from traincheck.collect.observe.models import loaded
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1))
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
for layer in (model[0], model[2], model):
    fully_shard(layer, mesh=mesh)
def train():
    torch.manual_seed(1 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).sum().backward()
        optimizer.step()
with observing() as (recorder, observer):
    train()
assert recorder.faults == [], recorder.faults
last = recorder.at("step")[-1]
from xxhash import xxh3_128_intdigest
for name, p in model.named_parameters():
    local = p.to_local().detach().contiguous()
    assert last["model", "parameter", name]["data"] == ("digest", xxh3_128_intdigest(local.numpy().tobytes())), name
before = recorder.at("step")[-2]
facts = before["model", "parameter", "0.weight"]
assert facts["mesh.dp"] == rank and facts["mesh_size.dp"] == 2
assert facts["local_shape"] == torch.Size([3 - rank, 4]), facts
assert before["model", "parameter", "2.weight"]["local_shape"] == torch.Size([1 - rank, 5])
assert observer.process_facts()["rank"]["mesh"] == {"dp": rank}, observer.process_facts()
print(json.dumps({"rank": rank, "names": sorted(n for _, r, n in last if r == "parameter")}))
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_fsdp2_two_ranks(tmp_path: Path) -> None:
    script = tmp_path / "two_ranks.py"
    script.write_text(TWO_RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(script), str(Path(__file__).parent)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count('["0.bias", "0.weight", "2.bias", "2.weight"]') == 2
