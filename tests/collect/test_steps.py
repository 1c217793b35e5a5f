"""Steps and stages are told from what the run does."""

from __future__ import annotations

import pytest

from traincheck.collect.steps import StepTracker
from traincheck.events import Mark


class Marks:
    """A recorder that keeps marks as words."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def mark(self, kind: Mark, text: str | None = None, a: int = 0, b: int = 0) -> None:
        self.words.append(f"{kind.name.lower()} {text if text is not None else a}")


class Optimizer:
    pass


class Loop:
    """The signs that a training loop gives."""

    def __init__(self) -> None:
        self.marks = Marks()
        self.tracker = StepTracker(self.marks)  # type: ignore[arg-type]
        self.optimizer = Optimizer()

    def train(self, optimizer: object | None = None) -> None:
        self.tracker.sign_of_iteration("zero_grad", id(optimizer or self.optimizer))
        self.tracker.forward_begins(True, True)
        self.tracker.backward_begins()
        self.update(optimizer or self.optimizer)

    def update(self, optimizer: object, completed: bool = True) -> None:
        self.tracker.update_begins(optimizer)
        self.tracker.update_ends(optimizer, completed)

    def steps(self) -> list[str]:
        return [w for w in self.marks.words if w.startswith("step")]


def test_a_plain_loop_without_a_loader() -> None:
    loop = Loop()
    loop.train()
    loop.train()
    assert loop.steps() == ["step_begin 1", "step_end 1", "step_begin 2", "step_end 2"]
    assert loop.marks.words[0] == "step_begin 1"
    assert "stage training" in loop.marks.words


def test_zero_grad_at_the_end_stays_in_its_step() -> None:
    loop = Loop()
    for _ in range(2):
        loop.tracker.forward_begins(True, True)
        loop.tracker.backward_begins()
        loop.update(loop.optimizer)
        loop.tracker.sign_of_iteration("zero_grad", 1)
    assert loop.steps() == ["step_begin 1", "step_end 1", "step_begin 2", "step_end 2"]


def test_accumulation_gives_micro_steps() -> None:
    loop = Loop()
    for _ in range(3):
        loop.tracker.forward_begins(True, True)
        loop.tracker.backward_begins()
    loop.update(loop.optimizer)
    micro = [w for w in loop.marks.words if w.startswith("micro")]
    assert micro == ["micro_step 1", "micro_step 2", "micro_step 3"]
    assert loop.tracker.step == 1


def test_with_two_optimizers_the_first_to_update_counts() -> None:
    loop = Loop()
    second = Optimizer()
    for _ in range(3):
        loop.train()
        loop.train(second)
    assert [w for w in loop.steps() if "end" in w] == ["step_end 1", "step_end 2", "step_end 3"]
    assert loop.tracker.step == 3  # the second optimizer's turn belongs to the step that the first one's began


def test_a_step_without_its_first_sign_begins_with_the_next() -> None:
    loop = Loop()
    loop.train()
    loop.train()
    loop.tracker.forward_begins(False, False)  # evaluation
    assert loop.tracker.step == 2
    for step in (3, 4):  # zero_grad is forgotten
        loop.tracker.forward_begins(True, True)
        assert loop.tracker.step == step
        loop.tracker.backward_begins()
        loop.update(loop.optimizer)
    loop.train()
    assert loop.tracker.step == 5


def test_a_second_optimizer_that_updates_now_and_then() -> None:
    loop = Loop()
    second = Optimizer()
    begun = []
    for turn in range(1, 10):
        loop.train()
        if turn % 3 == 0:  # the same model and a backward: told from an iteration once it has happened
            loop.train(second)
            begun.append(loop.tracker.step - turn)
    assert begun == [1, 0, 0]
    assert loop.tracker.step == loop.tracker.updates == 9


def test_a_wrapper_of_an_optimizer_and_a_failed_update_do_not_count() -> None:
    loop = Loop()
    wrapper = Optimizer()
    wrapper.optimizer = loop.optimizer  # type: ignore[attr-defined]
    loop.train()
    loop.update(loop.optimizer, completed=False)
    assert loop.tracker.step == 1
    loop.tracker.update_begins(wrapper)
    loop.update(loop.optimizer)
    loop.tracker.update_ends(wrapper, True)
    assert loop.tracker.step == 2


def test_a_closure_that_holds_the_whole_iteration() -> None:
    loop = Loop()
    for _ in range(3):  # Lightning: optimizer.step(closure)
        loop.tracker.update_begins(loop.optimizer)
        loop.tracker.forward_begins(True, True)
        loop.tracker.backward_begins()
        loop.tracker.update_ends(loop.optimizer, True)
        assert loop.tracker.stage == "training"
        loop.tracker.forward_begins(False, False)  # validation after each update
        assert loop.tracker.stage == "evaluation"
    assert loop.steps() == [f"step_{what} {n}" for n in (1, 2, 3) for what in ("begin", "end")]


def test_evaluation_between_steps_stays_in_the_step_done() -> None:
    loop = Loop()
    loop.train()
    loop.tracker.forward_begins(False, False)
    loop.tracker.forward_begins(False, False)
    assert loop.tracker.step == 1
    assert loop.marks.words[-2:] == ["evaluation_step 1", "evaluation_step 2"]
    loop.train()
    assert loop.tracker.step == 2
    assert loop.tracker.stage == "training"


def test_evaluation_without_no_grad_is_told_from_the_mode() -> None:
    loop = Loop()
    loop.train()
    loop.tracker.forward_begins(False, True)
    assert (loop.tracker.stage, loop.tracker.step) == ("evaluation", 1)


def test_training_in_eval_mode_is_training_once_a_backward_says_so() -> None:
    loop = Loop()
    loop.train()
    for _ in range(2):  # eval() was called and train() forgotten
        loop.tracker.forward_begins(False, True)
        loop.tracker.backward_begins()
        loop.update(loop.optimizer)
    assert (loop.tracker.stage, loop.tracker.step) == ("training", 3)
    loop.tracker.forward_begins(False, True)
    assert loop.tracker.stage == "training"


def test_explicit_steps_take_over() -> None:
    loop = Loop()
    assert loop.tracker.explicit_step() == 1
    loop.train()
    loop.train()
    assert loop.tracker.step == 1
    assert loop.tracker.explicit_step() == 2


def test_explicit_stage_wins_and_ends() -> None:
    loop = Loop()
    loop.train()
    with loop.tracker.explicit_stage("evaluation"):
        loop.tracker.forward_begins(True, True)
        assert loop.tracker.stage == "evaluation"
        assert loop.tracker.enter_stage("checkpointing") is None
    assert loop.tracker.stage == "training"
    with pytest.raises(ValueError, match="a stage is one of init, training"):
        loop.tracker.explicit_stage("trainig").__enter__()


def test_a_closure_inside_step_begins_nothing() -> None:
    loop = Loop()
    loop.train()
    loop.tracker.update_begins(loop.optimizer)  # LBFGS evaluates its closure within step
    loop.tracker.forward_begins(True, True)
    loop.tracker.backward_begins()
    loop.tracker.update_ends(loop.optimizer, True)
    assert loop.tracker.step == 2


def test_a_loop_that_changes_how_it_begins_is_followed() -> None:
    loop = Loop()
    loop.tracker.forward_begins(True, True, 1)  # a warm-up model, never seen again
    loop.tracker.backward_begins()
    loop.update(loop.optimizer)
    for _ in range(4):
        loop.tracker.forward_begins(True, True, 2)
        loop.tracker.backward_begins()
        loop.update(loop.optimizer)
    assert loop.tracker.step == 5
    begins = [i for i, w in enumerate(loop.marks.words) if w.startswith("step_begin")]
    micros = [i for i, w in enumerate(loop.marks.words) if w.startswith("micro")]
    assert begins[-1] < micros[-1]
