"""What is observed where: names, owners, points, on real torch objects."""

from __future__ import annotations

import copy
import gc
import struct
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from fake import FakeRecorder, observing
from torch import nn
from xxhash import xxh3_128_intdigest

from traincheck.collect.observe.observer import Observer
from traincheck.collect.observe.policy import DATA, FULL, GRAD, HAS_GRAD, PRESENT, Policy
from traincheck.events import Moment


def digest(tensor: torch.Tensor) -> tuple[str, int]:
    return "digest", xxh3_128_intdigest(tensor.detach().contiguous().numpy().tobytes())


def params(state: dict[Any, Any], attribute: str = "data", owner: str = "model") -> dict[str, Any]:
    return {
        name: values[attribute]
        for (o, role, name), values in state.items()
        if o == owner and role in ("parameter", "buffer") and attribute in values
    }


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embed(x)))  # type: ignore[no-any-return]


def step(model: nn.Module, optimizer: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()


X, Y = torch.arange(6), torch.arange(6)


def test_baseline_then_step() -> None:
    with observing() as (recorder, _):
        torch.manual_seed(0)
        model = Net()
        initial = copy.deepcopy(model.state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        step(model, optimizer, X, Y)
    assert recorder.faults == []
    (baseline,) = recorder.at("baseline")
    expected = {name: digest(tensor) for name, tensor in initial.items()}
    assert params(baseline) == expected
    assert params(baseline, "tied_to")["head.weight"] == "embed.weight"
    assert params(baseline, "tied_to")["embed.weight"] is None
    assert set(params(baseline, "in_optimizer").values()) == {"optimizer/0"}
    assert params(baseline, "shape")["norm.weight"] == torch.Size([4])
    (before,), (after,) = recorder.at("step", Moment.BEFORE), recorder.at("step", Moment.AFTER)
    assert params(before)["embed.weight"] == expected["embed.weight"]
    assert params(before)["norm.running_mean"] != expected["norm.running_mean"]
    assert params(before, "grad")["norm.bias"] == digest(model.norm.bias.grad)  # type: ignore[arg-type]
    assert params(after) == {name: digest(tensor) for name, tensor in model.state_dict().items()}
    state = after["optimizer", "optimizer_state", "norm.bias"]
    assert state == {"momentum_buffer": digest(optimizer.state[model.norm.bias]["momentum_buffer"])}
    group = after["optimizer", "optimizer_group", "group.0"]
    assert (group["lr"], group["momentum"], group["parameters"]) == (0.5, 0.9, 3)
    reasons = [reason for reason, _, _ in recorder.seen]
    assert reasons.index("optimizer") < reasons.index("baseline") < reasons.index("loss") < reasons.index("step")


def test_unchanged_is_recorded_as_well() -> None:
    with observing() as (recorder, _):
        model = nn.Linear(3, 2)
        model.bias.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer, torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
        step(model, optimizer, torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    states = recorder.at("step")
    assert len(states) == 4
    assert len({params(state)["bias"] for state in states}) == 1
    assert len({params(state)["weight"] for state in states}) == 3
    assert {params(state, "requires_grad")["bias"] for state in recorder.at("step", Moment.BEFORE)} == {False}


def test_zero_grad_and_backward() -> None:
    with observing() as (recorder, _):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.zero_grad()  # before the model was ever called: nothing has a name yet
        for _ in range(2):
            model(torch.randn(4, 3)).sum().backward()
        first, second = (params(state, "grad")["weight"] for state in recorder.at("backward"))
        grad = digest(model.weight.grad)  # type: ignore[arg-type]
        optimizer.zero_grad(set_to_none=False)
        model.zero_grad()
    assert first != second == grad
    before, zeroed = (params(state, "grad")["weight"] for state in recorder.at("zero_grad")[:2])
    assert before == grad
    assert zeroed == digest(torch.zeros(2, 3))
    assert [params(state, "grad")["weight"] for state in recorder.at("zero_grad")[2:]] == [zeroed, None]


def test_losses() -> None:
    with observing() as (recorder, _):
        model = nn.Linear(2, 2)
        out = model(torch.ones(3, 2))
        scalar = out.mean()
        scalar.backward(retain_graph=True)
        out.backward(torch.ones(3, 2), retain_graph=True)
        torch.autograd.backward([scalar, out], [None, torch.ones(3, 2)])
    one, many, both = recorder.at("loss")
    value = struct.unpack("<f", struct.pack("<f", scalar.item()))[0]
    assert one["run", "loss", "loss"]["value"] == value
    assert many["run", "loss", "loss"]["data"] == digest(out)
    assert many["run", "loss", "loss"]["shape"] == torch.Size([3, 2])
    assert both["run", "loss", "loss"]["value"] == value
    assert both["run", "loss", "loss.1"]["data"] == digest(out)
    assert len(recorder.at("backward")) == 3  # not twice for Tensor.backward inside torch.autograd.backward


def test_gan_two_models_two_optimizers() -> None:
    with observing() as (recorder, _):
        g, d = nn.Linear(2, 3), nn.Linear(3, 1)
        g_opt = torch.optim.SGD(g.parameters(), lr=0.1)
        d_opt = torch.optim.AdamW(d.parameters(), lr=0.1)
        d(g(torch.randn(4, 2)).detach()).mean().backward()
        d_opt.step()
        d_opt.zero_grad()
        d(g(torch.randn(4, 2))).mean().backward()
        g_opt.step()
    owners = [
        {owner for owner, role, _ in state if role == "parameter"} for state in recorder.at("step", Moment.BEFORE)
    ]
    assert owners == [{"model.1"}, {"model"}]  # each optimizer's own model
    states = [{owner for owner, role, _ in state if "optimizer" in role} for state in recorder.at("step", Moment.AFTER)]
    assert states == [{"optimizer.1"}, {"optimizer"}]
    grads = recorder.at("backward")[0]
    assert params(grads, "grad", "model") == {"weight": None, "bias": None}
    assert params(grads, "grad", "model.1")["bias"] is not None


def test_optimizer_over_the_wrong_parameters() -> None:
    with observing() as (recorder, _):
        model, forgotten = nn.Linear(2, 2), nn.Linear(2, 2)
        optimizer = torch.optim.SGD(forgotten.parameters(), lr=0.1)
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()
    (before,), (after,) = recorder.at("step", Moment.BEFORE), recorder.at("step", Moment.AFTER)
    assert params(before, "in_optimizer") == {"weight": None, "bias": None}
    assert params(before) == params(after) != {}
    assert params(after, owner="optimizer") == {"param.0": digest(forgotten.weight), "param.1": digest(forgotten.bias)}


def test_part_called_before_the_whole() -> None:
    with observing() as (recorder, _):
        whole = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        whole[0](torch.randn(1, 2))
        whole(torch.randn(1, 2))
        whole[1](torch.randn(1, 2))
    first, second = recorder.at("baseline")
    assert set(params(first)) == {"weight", "bias"}
    assert set(params(second)) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_replaced_parameter_is_seen() -> None:
    with observing() as (recorder, _):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(3, 2)).sum().backward()
        model[0].weight = nn.Parameter(torch.zeros(2, 2))
        model.append(nn.Linear(2, 2))
        optimizer.step()
    (before,) = recorder.at("step", Moment.BEFORE)
    assert params(before)["0.weight"] == digest(torch.zeros(2, 2))
    assert params(before, "in_optimizer")["0.weight"] is None
    assert "2.bias" in params(before)
    assert params(before, owner="optimizer")  # the parameter it still holds


def test_tie_by_storage_and_its_end() -> None:
    with observing() as (recorder, _):
        a, b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        b.weight.data = a.weight.data
        model = nn.Sequential(a, b)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(1, 3)).sum().backward()
        optimizer.step()
        b.weight.data = a.weight.data.clone()
        optimizer.step()
    tied = [params(state, "tied_to")["1.weight"] for state in recorder.at("step", Moment.BEFORE)]
    assert tied == ["0.weight", None]


def test_loaded_weights_modes_schedulers(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with observing() as (recorder, _):
        other = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
        optimizer = torch.optim.SGD(other.parameters(), lr=1.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        other.load_state_dict(torch.load(tmp_path / "model.pt"))
        with open(tmp_path / "model.pt", "rb") as file:
            torch.load(file)
        optimizer.load_state_dict(optimizer.state_dict())
        other.eval()
        other[1].train()
        optimizer.step()
        scheduler.step()
    assert recorder.faults == []
    loaded, of_optimizer = recorder.at("load_state_dict")
    assert params(loaded) == {name: digest(tensor) for name, tensor in model.state_dict().items() for name in [name]}
    assert of_optimizer["optimizer", "optimizer_group", "group.0"]["lr"] == 1.0
    content = (tmp_path / "model.pt").read_bytes()
    assert [dict(state) for state in recorder.at("file")] == [
        {
            ("run", "file", str(tmp_path / "model.pt")): {
                "size": len(content),
                "data": ("digest", xxh3_128_intdigest(content)),
            }
        }
    ] * 2
    evaluating, mixed = recorder.at("mode")
    assert evaluating["model", "model", "model"] == {"training": False, "training_modules": 0, "modules": 3}
    assert mixed["model", "model", "model"]["training_modules"] == 1
    assert mixed["model", "model", "1"] == {"training": True}
    assert [state["optimizer", "optimizer_group", "group.0"]["lr"] for state in recorder.at("scheduler")] == [1.0, 0.5]


def test_batches() -> None:
    data = [{"input_ids": torch.full((4,), i), "labels": torch.tensor([-100, i, i, -100])} for i in range(4)]
    pairs = torch.utils.data.TensorDataset(torch.randn(4, 2), torch.arange(4))
    with observing() as (recorder, _):
        list(torch.utils.data.DataLoader(data, batch_size=2))
        list(torch.utils.data.DataLoader(data, batch_size=2))
        list(torch.utils.data.DataLoader(pairs, batch_size=3))
        list(torch.utils.data.DataLoader(["a", "b"], batch_size=2))
    assert recorder.faults == []
    first, second, again, same, pair, rest, words = (state for state in recorder.at("batch"))
    batch = first["loader", "batch", "batch"]
    assert (batch["size"], batch["tensors"], batch["supervised"]) == (2, 2, 4)
    assert first == again != second == same
    assert pair["loader.1", "batch", "batch"]["supervised"] == 3
    assert rest["loader.1", "batch", "batch"]["size"] == 1
    assert words["loader.2", "batch", "batch"]["size"] == 2


def test_random_generators_are_read_not_drawn_from() -> None:
    import random

    import numpy as np

    observer = Observer(recorder := FakeRecorder())
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    observer.step_begins()
    observer.step_begins()
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == states
    random.random()
    np.random.rand()
    torch.rand(1)
    observer.step_begins()
    first, second, third = recorder.at("rng")
    assert first == second
    assert all(first[key] != third[key] for key in first)
    assert set(first) == {("run", "rng", name) for name in ("torch.cpu", "numpy", "python")}


def test_nothing_is_kept_alive() -> None:
    with observing() as (recorder, observer):
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters())
        step(model, optimizer, X, Y)
        refs = [
            weakref.ref(thing) for thing in (model, model.embed, model.embed.weight, model.embed.weight.grad, optimizer)
        ]
        del model, optimizer
        gc.collect()
        assert [ref() for ref in refs] == [None] * len(refs)
        other = nn.Linear(2, 2)
        other(torch.randn(1, 2))
        assert [known.owner for known in observer.models.living()] == ["model.1"]
    assert recorder.faults == []


def test_parameters_may_still_be_swapped() -> None:
    with observing() as (_, _):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer, torch.randn(2, 2), torch.tensor([0, 1]))
        optimizer.zero_grad()
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            model.double()
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)
    assert model.weight.dtype == torch.float64


def test_selected_names_and_parts() -> None:
    policy = Policy(names=frozenset({"norm.weight"}))
    with observing(policy=policy) as (recorder, _):
        model = Net()
        step(model, torch.optim.SGD(model.parameters(), lr=0.1), X, Y)
    assert {name for state in recorder.at("step") for name in params(state)} == {"norm.weight"}
    without = Policy({reason: parts - {GRAD} for reason, parts in FULL.items() if reason != "rng"})
    with observing(policy=without) as (recorder, _):
        step(model, torch.optim.SGD(model.parameters(), lr=0.1), X, Y)
    assert recorder.at("rng") == []
    assert not any(params(state, "grad") for _, _, state in recorder.seen)


def test_only_whether_there_is_a_gradient() -> None:
    whether = Policy({reason: (parts - {GRAD}) | {HAS_GRAD} for reason, parts in FULL.items() if GRAD in parts})
    assert Policy.from_json(whether.to_json()) == whether
    with observing(policy=whether) as (recorder, _):
        model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
        model[1].bias.requires_grad_(False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer, torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
        model[0].weight.grad = model[0].weight.grad.to_sparse()
        optimizer.zero_grad()
    before, after = (params(state, "grad") for state in recorder.at("zero_grad")[-2:])
    assert before == {"0.weight": PRESENT, "0.bias": PRESENT, "1.weight": PRESENT, "1.bias": None}
    assert set(after.values()) == {None}
    assert params(recorder.at("backward")[0], "grad") == before


def test_policy_round_trip_and_refusal() -> None:
    policy = Policy(names=frozenset({"a"}), force_reduction=True)
    assert Policy.from_json(policy.to_json()) == policy
    assert Policy.for_attributes([]) == Policy()
    only_data = Policy.for_attributes(["data"])
    assert DATA in only_data.at("step:after")
    assert GRAD not in only_data.at("backward")
    with pytest.raises(ValueError, match="known reasons"):
        Policy.from_json({"parts": {"moonrise": ["data"]}})


def test_closures_accumulation_sparse_and_lazy() -> None:
    with observing(torch.optim.LBFGS, torch.optim.SGD, torch.optim.SparseAdam) as (recorder, _):
        model = nn.Linear(2, 1)
        lbfgs = torch.optim.LBFGS(model.parameters(), max_iter=3)

        def closure() -> torch.Tensor:
            lbfgs.zero_grad()
            loss = model(torch.ones(3, 2)).pow(2).mean()
            loss.backward()
            return loss

        lbfgs.step(closure)
        table = nn.Embedding(5, 2, sparse=True)
        sparse = torch.optim.SparseAdam(table.parameters())
        table(torch.tensor([1, 3])).sum().backward()
        sparse.step()
        lazy = nn.LazyLinear(2)
        lazy.train()
        lazy(torch.ones(1, 3)).sum().backward()
    assert recorder.faults == []
    assert len(recorder.at("step", Moment.AFTER)) == 2
    assert any("old_dirs[0]" in values for values in recorder.at("step", Moment.AFTER)[0].values())
    assert params(recorder.at("step", Moment.BEFORE)[1], "grad", "model.1")["weight"][0] == "digest"
    assert params(recorder.at("baseline")[-1], "data", "model.2")["weight"] == "missing"
    assert params(recorder.at("baseline")[-1], "data.missing", "model.2")["weight"] == "uninitialized"


def test_not_inside_compilers_and_transforms() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with observing() as (recorder, _):
        with FakeTensorMode():
            fake = nn.Linear(2, 2)
            fake(torch.randn(1, 2)).sum().backward()
        assert recorder.seen == []
        model = nn.Linear(2, 2)
        torch.func.vmap(lambda x: model(x))(torch.randn(3, 2))
        assert recorder.at("baseline") == []
        model(torch.randn(3, 2))
        assert len(recorder.at("baseline")) == 1
    assert recorder.faults == []


def test_faults_are_counted_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with observing() as (recorder, observer):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monkeypatch.setattr(recorder, "states", lambda *_: 1 / 0)
        step(model, optimizer, torch.randn(2, 2), torch.tensor([0, 1]))
        optimizer.param_groups[0]["params"] = None
        with pytest.raises(TypeError):
            optimizer.step()  # the program's own error, unchanged
        assert observer.enter("step")  # and nothing is left open
    assert {where for where, _ in recorder.faults} >= {
        "observe module",
        "observe before step",
        "observe after backward",
    }


def test_off_means_off() -> None:
    with observing() as (recorder, observer):
        observer.enabled = False
        model = Net()
        step(model, torch.optim.SGD(model.parameters(), lr=0.1), X, Y)
    assert recorder.seen == []


def test_programs_that_keep_making_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from traincheck.collect.observe import models

    monkeypatch.setattr(models, "MOST", 3)
    with observing() as (recorder, _):
        kept = [nn.Linear(1, 1) for _ in range(5)]
        for model in kept:
            model(torch.ones(1, 1))
    assert len(recorder.at("baseline")) == 3
    assert recorder.faults[0] == (
        "observe module",
        "TooManyModelsError: 3 models are observed, the ones that come after them are not",
    )


def test_replicas_are_not_models() -> None:
    with observing() as (recorder, _):
        replica = nn.BatchNorm1d(2)._replicate_for_data_parallel()  # type: ignore[no-untyped-call]
        replica.weight, replica.bias = torch.ones(2), torch.zeros(2)
        replica(torch.randn(3, 2))
    assert recorder.at("baseline") == []
    assert recorder.faults == []


def test_partitioned_parameter_is_its_partition() -> None:
    with observing() as (recorder, _):
        model = nn.Linear(2, 2, bias=False)
        partition = model.weight.detach().flatten()[:2].clone()
        model.weight.ds_tensor = partition  # type: ignore[assignment]
        model.weight.data = torch.empty(0)
        model.train()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert params(recorder.at("step")[0])["weight"] == digest(partition)
