"""Evidence encodes every kind of value by its bits, and draws, changes and builds nothing."""

from __future__ import annotations

import copy

import pytest
import torch

from traincheck.overhead import compare
from traincheck.overhead.program import evidence

NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (NAN, INFINITY),
        (INFINITY, -INFINITY),
        (0.0, -0.0),
        (1, 1.0),
        (True, 1),
        (None, "None"),
        (1 << 70, (1 << 70) + 1),
        ({1: "a"}, {"1": "a"}),
        ({(1, 2): 0}, {(1, 3): 0}),
        ([1, 2], [2, 1]),
        ([[1], 2], [1, [2]]),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (torch.tensor(NAN), torch.tensor(INFINITY)),
        (torch.arange(4.0), torch.arange(4.0).flip(0)),
    ],
)
def test_different_values_have_different_digests(one: object, other: object) -> None:
    assert evidence.content(one) == evidence.content(copy.deepcopy(one))
    assert evidence.content(one) != evidence.content(other)


def test_layout_does_not_count_and_content_does() -> None:
    matrix = torch.arange(12.0).reshape(3, 4)
    assert evidence.bytes_of(matrix.t()) == evidence.bytes_of(matrix.t().contiguous())
    assert evidence.bytes_of(matrix.t()) != evidence.bytes_of(matrix)
    assert evidence.bytes_of(torch.empty(0)) == b""
    assert len(evidence.bytes_of(torch.tensor(2, dtype=torch.bfloat16))) == 2
    assert evidence.bytes_of(torch.tensor([1 + 2j]).conj()) == evidence.bytes_of(torch.tensor([1 - 2j]))
    assert evidence.bytes_of(torch.eye(2).to_sparse()) == evidence.bytes_of(torch.eye(2))


@pytest.mark.parametrize("loss", [NAN, INFINITY, -INFINITY, torch.tensor(NAN), torch.tensor([1.0, INFINITY])])
def test_a_loss_that_is_not_finite_is_known_by_its_bits(loss: object) -> None:
    found = evidence.loss_bits(loss)
    assert found["finite"] is False
    assert found["bits"]


def test_a_finite_loss() -> None:
    assert evidence.loss_bits(torch.tensor(1.0))["bits"] == "0000803f"
    assert evidence.loss_bits(1.0)["finite"] is True


def test_taking_evidence_changes_nothing() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    model(torch.randn(4, 3)).sum().backward()
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.step()
    versions = [p._version for p in model.parameters()]
    generator = torch.get_rng_state()
    first = (evidence.models({"m": model}), evidence.optimizers({"o": optimizer}), evidence.generators())
    assert first == (evidence.models({"m": model}), evidence.optimizers({"o": optimizer}), evidence.generators())
    assert [p._version for p in model.parameters()] == versions
    assert torch.equal(torch.get_rng_state(), generator)
    assert set(first[0]["gradients"]) == {f"m.{name}" for name, _ in model.named_parameters()}
    assert "o.state.0.exp_avg" in first[1]


def test_a_parameter_that_is_replaced_or_moved_is_another() -> None:
    model = torch.nn.Linear(2, 2)
    before = evidence.identities({"m": model})
    assert evidence.identities({"m": model}) == before
    model.weight.data = model.weight.data.clone()
    after = evidence.identities({"m": model})
    assert after["m.weight"][0] == before["m.weight"][0]
    assert after["m.weight"] != before["m.weight"]


def rank(**changes: object) -> dict:
    step = {"step": 1, "batch": "b", "loss": {"value": "1.0", "bits": "00"}, "rng": {"torch": "t"}}
    state = {"parameters": {"m.w": {"sha256": "1", "dtype": "f"}}, "gradients": {"m.w": None}, "buffers": {}}
    found = {
        "initial": copy.deepcopy(state),
        "final": copy.deepcopy(state),
        "optimizers": {"o": "1"},
        "rng_before": {"python": "p"},
        "rng_after": {"python": "p"},
    }
    whole = {"steps": [step], "evidence": found}
    for path, value in changes.items():
        place: dict = whole
        *way, last = path.split("__")
        for word in way:
            place = place[int(word) if word.isdigit() else word]
        place[last] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("evidence__initial__parameters", {}, "initial parameter m.w differs: it is there only once"),
        ("evidence__rng_before", {"python": "q"}, "generator before training python differs"),
        ("steps__0__batch", "c", "step 1: the batch differs"),
        ("steps__0__loss", {"value": "2.0", "bits": "01"}, "step 1: the loss is 1.0 (00) without and 2.0 (01) with"),
        ("steps__0__rng", {"torch": "u"}, "step 1: generator torch differs"),
        ("evidence__final__parameters", {"m.w": {"sha256": "2", "dtype": "f"}}, "final parameter m.w differs in sha"),
        ("evidence__final__gradients", {"m.w": {"sha256": "2"}}, "final gradient m.w differs"),
        ("evidence__optimizers", {"o": "2"}, "optimizer value after training o differs"),
        ("evidence__rng_after", {"python": "q"}, "generator after training python differs"),
    ],
)
def test_the_first_difference_is_named(path: str, value: object, words: str) -> None:
    assert compare.first_difference([rank()], [rank()]) is None
    assert words in str(compare.first_difference([rank()], [rank(**{path: value})]))
    assert str(compare.first_difference([rank(), rank()], [rank(), rank(**{path: value})])).startswith("rank 1: ")
