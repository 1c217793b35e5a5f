"""Every part of the state is compared, what differs first is told, and the tolerance is that of its category."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pilot.synthetic_records import training
from traincheck.pilot.cases import Tolerance
from traincheck.pilot.grading.comparison import Comparison, compare
from traincheck.pilot.grading.records import load


def compared(
    tmp_path: Path, change: dict[tuple[int, int, str], Any], tolerance: Tolerance | None = None, **more: Any
) -> Comparison:
    replay = training(tmp_path / "replay", change=change)
    oracle = training(tmp_path / "oracle")
    return compare(
        replay, oracle, name="fixed", ranks=2, steps=2, tolerance=tolerance or Tolerance(), **more
    )  # fmt: skip


def test_equal_trainings_match(tmp_path: Path) -> None:
    found = compared(tmp_path, {})
    assert found.matches
    assert found.errors["gradients"] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("category", "value", "named"),
    [
        ("parameters_before", {"w": torch.tensor([12, 1.5]), "v": torch.tensor([12.0])}, ("parameters", "w", "before")),
        ("parameters_after", {"w": torch.tensor([13, 2.0]), "v": torch.tensor([13.1])}, ("parameters", "v", "after")),
        ("gradients", {"w": torch.tensor([3.0, 4.1]), "v": None}, ("gradients", "w", "at")),
        ("optimizer_state", {"w.exp_avg": torch.tensor([1.0, 2.5])}, ("optimizer", "w.exp_avg", "after")),
        ("buffers_after", {"count": torch.tensor(7)}, ("buffers", "count", "after")),
        ("generators_after", {"torch": "u", "python": "untouched"}, ("generators", "torch", "after")),
        ("inputs", [{"x": "other", "labels": "y12"}], ("inputs", "x", "at")),
        ("masters_after", {"optimizer1.flat": torch.ones(3)}, ("parameters", "optimizer1.flat", "after")),
    ],
)  # fmt: skip
def test_each_part_of_the_state_of_one_rank_and_step_counts(
    tmp_path: Path, category: str, value: Any, named: tuple[str, str, str]
) -> None:
    found = compared(tmp_path, {(1, 2, category): value})
    assert not found.matches
    assert found.first is not None
    assert (found.first.category, found.first.what, found.first.moment) == named
    assert (found.first.rank, found.first.step) == (1, 2)
    assert not found.missing


def test_what_came_about_first_is_told_first(tmp_path: Path) -> None:
    later = {(0, 2, "gradients"): {"w": torch.zeros(2), "v": None}}
    first = {(1, 1, "optimizer_state"): {"w.exp_avg": torch.zeros(2)}}
    found = compared(tmp_path, {**later, **first})
    assert str(found.first) == "optimizer w.exp_avg differ on rank 1, after step 1: relative L2 error 1"


def test_error_is_relative_l2(tmp_path: Path) -> None:
    """|(3.3, 4.4) - (3, 4)| / |(3, 4)| = 0.5 / 5; over both ranks, of which one differs: 0.5 / sqrt(50)."""
    found = compared(tmp_path, {(0, 1, "gradients"): {"w": torch.tensor([3.3, 4.4]), "v": None}})
    assert found.first is not None
    assert found.first.error == pytest.approx(0.1, rel=1e-5)
    assert found.errors["gradients"][0] == pytest.approx(0.5 / 50**0.5, rel=1e-5)


def test_tolerance_is_of_its_category(tmp_path: Path) -> None:
    change = {(0, 1, "gradients"): {"w": torch.tensor([3.0, 4.0001]), "v": None}}
    assert compared(tmp_path / "a", change, Tolerance(gradients=1e-4)).matches
    assert not compared(tmp_path / "b", change, Tolerance(gradients=1e-6)).matches
    assert not compared(tmp_path / "c", change, Tolerance(parameters=1e-4)).matches


def test_without_tolerance_equal_values_of_other_bits_differ(tmp_path: Path) -> None:
    state = {"w.exp_avg": torch.tensor([0.0, 1.0])}
    negative = {"w.exp_avg": torch.tensor([-0.0, 1.0])}
    replay = training(tmp_path / "replay", change={(0, 1, "optimizer_state"): negative})
    oracle = training(tmp_path / "oracle", change={(0, 1, "optimizer_state"): state})
    strict = compare(replay, oracle, name="fixed", ranks=2, steps=2, tolerance=Tolerance())
    loose = compare(replay, oracle, name="fixed", ranks=2, steps=2, tolerance=Tolerance(optimizer=1e-9))
    assert (strict.matches, loose.matches) == (False, True)


def test_not_a_number_is_no_agreement(tmp_path: Path) -> None:
    change = {(0, 1, "gradients"): {"w": torch.tensor([float("nan"), 4.0]), "v": None}}
    found = compared(tmp_path, change, Tolerance(gradients=1e9))
    assert not found.matches


def test_a_gradient_of_zeros_is_none_at_all(tmp_path: Path) -> None:
    zeros = {(0, 1, "gradients"): {"w": torch.tensor([3.0, 4.0]), "v": torch.zeros(1)}}
    tiny = {(0, 1, "gradients"): {"w": torch.tensor([3.0, 4.0]), "v": torch.full((1,), 1e-12)}}
    assert compared(tmp_path / "a", zeros).matches
    assert not compared(tmp_path / "b", tiny).matches
    assert compared(tmp_path / "c", tiny, Tolerance(absolute=1e-9)).matches


@pytest.mark.parametrize(
    ("value", "note"),
    [
        ({"w": torch.tensor([3.0, 4.0, 5.0]), "v": None}, "float32[3] in place of float32[2]"),
        ({"w": torch.tensor([3.0, 4.0], dtype=torch.float64), "v": None}, "float64[2] in place of float32[2]"),
        ({"v": None}, "only the right program has it"),
        ({"w": torch.tensor([3.0, 4.0]), "v": None, "u": torch.ones(1)}, "the right program has no such tensor"),
        ({"w": None, "v": None}, "there is none"),
    ],
)
def test_another_shape_type_or_set_of_tensors_is_told(tmp_path: Path, value: Any, note: str) -> None:
    found = compared(tmp_path, {(0, 1, "gradients"): value}, Tolerance(gradients=1e9))
    assert found.first is not None
    assert note in str(found.first)


def test_only_the_named_inputs_have_to_be_equal(tmp_path: Path) -> None:
    change = {(0, 1, "inputs"): [{"x": "x01"}]}  # a repair that keeps the labels to itself
    assert not compared(tmp_path / "a", change).matches
    assert compared(tmp_path / "b", change, inputs=("x",)).matches
    assert not compared(tmp_path / "c", {(0, 1, "inputs"): [{"x": "z"}]}, inputs=("x",)).matches


def test_another_number_of_forwards_differs(tmp_path: Path) -> None:
    found = compared(tmp_path, {(0, 1, "inputs"): []})
    assert "0 forwards in place of 1" in str(found.first)


def test_a_generator_that_only_one_side_has_is_no_difference(tmp_path: Path) -> None:
    assert compared(tmp_path, {(0, 1, "generators_after"): {"torch": "t", "numpy": "n"}}).matches


def test_more_steps_than_the_scenario_differ(tmp_path: Path) -> None:
    replay = training(tmp_path / "replay", steps=3)
    found = compare(
        replay, training(tmp_path / "oracle"), name="fixed", ranks=2, steps=2, tolerance=Tolerance()
    )  # fmt: skip
    assert found.first is not None
    assert "step 3 of 2" in found.first.what


def test_contents_that_are_gone_leave_it_open_only_where_there_is_a_tolerance(tmp_path: Path) -> None:
    change = {(0, 1, "gradients"): {"w": torch.tensor([3.0, 4.0001]), "v": None}}
    replay, oracle = training(tmp_path / "replay", change=change), training(tmp_path / "oracle")
    for path in replay.folder.rglob("*.pt"):
        path.unlink()
    loose = compare(replay, oracle, name="fixed", ranks=2, steps=2, tolerance=Tolerance(gradients=1e-2))
    strict = compare(replay, oracle, name="fixed", ranks=2, steps=2, tolerance=Tolerance())
    assert not loose.differences
    assert "content of gradients w" in loose.missing[0]
    assert len(strict.differences) == 1


def test_the_end_counts_where_a_wrapped_optimizer_writes_to_the_model_later(tmp_path: Path) -> None:
    """Flat partitions move in the step that is seen, the model's parameters only after it."""
    still = {"w": torch.ones(2), "v": torch.ones(1)}
    wrapped: dict[tuple[int, int, str], Any] = {}
    for rank in range(2):
        for step in (1, 2):
            wrapped[rank, step, "parameters_before"] = wrapped[rank, step, "parameters_after"] = still
            wrapped[rank, step, "masters_after"] = {"optimizer1.group0.param0": torch.tensor([float(step)])}
    other = {**wrapped, (1, 0, "final"): {"w": torch.zeros(1)}}
    oracle = training(tmp_path / "oracle", change=wrapped)
    kinds = {"same": wrapped, "other": other}
    found = {
        name: compare(
            training(tmp_path / name, change=change), oracle, name="fixed", ranks=2, steps=2, tolerance=Tolerance()
        )
        for name, change in kinds.items()
    }
    assert found["same"].matches
    assert str(found["other"].first) == "parameters w differ on rank 1, end: relative L2 error 1"
    # elsewhere what a program does to its model after training is its own affair
    assert compared(tmp_path / "plain", {(0, 0, "final"): {"w": torch.zeros(1)}}).matches


def test_two_processes_of_one_rank_are_told(tmp_path: Path) -> None:
    records = training(tmp_path / "replay")
    shutil.copytree(tmp_path / "replay" / "100-1", tmp_path / "replay" / "200-1")
    assert "rank 0: two processes trained as it" in load(records.folder).missing(2, 2)


def test_a_record_that_was_cut_off_is_as_if_missing(tmp_path: Path) -> None:
    training(tmp_path / "replay")
    path = tmp_path / "replay" / "101-1" / "step-000002.json"
    path.write_text(path.read_text()[:100])
    found = compare(
        load(tmp_path / "replay"), training(tmp_path / "oracle"), name="fixed", ranks=2, steps=2, tolerance=Tolerance()
    )
    assert not found.differences
    assert "rank 1: no record of step 2" in found.missing
