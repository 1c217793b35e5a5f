"""Training with every hook on is bitwise the training without."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from fake import observing
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 36, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.utils.checkpoint.checkpoint(lambda t: self.norm(self.conv(t)).relu(), x, use_reentrant=False)
        return self.head(self.drop(x).flatten(1))  # type: ignore[no-any-return]


def train(optimizer_class: type, autocast: bool, **options: Any) -> list[Any]:
    torch.manual_seed(3)
    data = torch.utils.data.TensorDataset(torch.randn(24, 1, 8, 8), torch.randint(0, 10, (24,)))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    model = Model()
    optimizer = optimizer_class(model.parameters(), lr=0.05, **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    seen: list[Any] = []
    model.train()
    for number, (x, y) in enumerate(loader):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        seen += [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        if number % 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=number % 4 == 1)
    model.eval()
    with torch.no_grad():
        seen.append(model(data.tensors[0]))
    seen += [*model.state_dict().values(), torch.get_rng_state()]
    seen += [t for s in optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
    versions = [p._version for p in model.parameters()] + [b._version for b in model.buffers()]
    return [seen, versions, [group["lr"] for group in optimizer.param_groups]]


@pytest.mark.parametrize(
    ("optimizer", "autocast", "options"),
    [
        (torch.optim.AdamW, False, {"fused": True}),
        (torch.optim.AdamW, True, {"foreach": True}),
        (torch.optim.SGD, False, {"momentum": 0.9, "nesterov": True}),
    ],
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_bitwise_unchanged(optimizer: type, autocast: bool, options: dict[str, Any], deterministic: bool) -> None:
    torch.use_deterministic_algorithms(deterministic)
    try:
        plain = train(optimizer, autocast, **options)
        with observing(optimizer) as (recorder, _):
            watched = train(optimizer, autocast, **options)
        again = train(optimizer, autocast, **options)
    finally:
        torch.use_deterministic_algorithms(False)
    assert recorder.faults == []
    assert len(recorder.at("step")) == 6
    assert plain[1:] == watched[1:] == again[1:]
    assert len(plain[0]) == len(watched[0])
    for a, b in zip(plain[0], watched[0], strict=True):
        assert a.dtype == b.dtype
        assert a.device == b.device
        assert torch.equal(a, b)


def test_graph_is_not_touched() -> None:
    with observing() as (recorder, _):
        model = nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(torch.randn(2, 3)).sum()
        node = loss.grad_fn
        loss.backward(create_graph=True)
        assert loss.grad_fn is node
        grad = model.weight.grad
        assert grad is not None
        assert grad.grad_fn is None or grad.requires_grad
        assert [p.grad_fn for p in model.parameters()] == [None, None]
        optimizer.step()
    assert recorder.faults == []


def test_inference_mode_and_anomaly_detection() -> None:
    with observing() as (recorder, _):
        with torch.inference_mode():
            nn.Linear(2, 2)(torch.randn(1, 2))
        with torch.autograd.set_detect_anomaly(True), contextlib.suppress(UserWarning):
            model = nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.randn(1, 2)).sum().backward()
            optimizer.step()
    assert recorder.faults == []
    assert len(recorder.at("baseline")) == 2
