"""Faults built into real programs: found at the first faulty step or the next, with the API and tensor named."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.collect.running import has

from .running import Runs

transformers = pytest.mark.skipif(not has("transformers"), reason="needs transformers")


class Bug(NamedTuple):
    """A fault, and what a finding must name of it."""

    program: str
    fault: str
    since: int
    api: str
    tensor: str | None
    words: str
    quick: bool = False


BUGS = (
    Bug("digits_cnn", "no_zero_grad", 3, "Tensor.backward", "conv.weight", "zero_grad() is missing", quick=True),
    Bug("digits_cnn", "wrong_optimizer", 1, "Adam.step", "conv.weight", "not in the optimizer"),
    Bug("digits_cnn", "optimizer_of_copy", 1, "Adam.step", "conv.weight", "not in the optimizer"),
    Bug("digits_cnn", "frozen", 1, "Tensor.backward", "hidden.weight", "frozen"),
    Bug("digits_cnn", "step_before_backward", 3, "Adam.step", "conv.weight", "without gradient"),
    Bug("digits_cnn", "scheduler_twice", 3, "LRScheduler.step", None, "runs ahead of its schedule"),
    Bug("digits_cnn", "eval_mode", 3, "functional.dropout", None, "training", quick=True),
    Bug("digits_cnn", "eval_mode", 1, "functional.dropout", None, "training"),
    Bug("digits_cnn", "dropout_in_evaluation", 5, "functional.dropout", None, "training"),
    Bug("digits_cnn", "autocast_dtype", 3, "Conv2d.forward", None, "float16"),
    Bug("digits_cnn", "no_autocast", 3, "Conv2d.forward", None, "float32"),
    Bug("gpt2_loop", "no_zero_grad", 3, "Tensor.backward", "transformer.wte.weight", "zero_grad() is missing"),
    Bug("gpt2_loop", "wrong_optimizer", 1, "Adam.step", "transformer.h.0.mlp.c_fc.weight", "not in the optimizer"),
    Bug("gpt2_loop", "optimizer_of_copy", 1, "Adam.step", "transformer.wte.weight", "not in the optimizer"),
    Bug("gpt2_loop", "frozen", 1, "Tensor.backward", "transformer.h.0.mlp.c_fc.weight", "frozen"),
    Bug("gpt2_loop", "step_before_backward", 3, "Adam.step", "transformer.wte.weight", "without gradient"),
    Bug("gpt2_loop", "scheduler_twice", 3, "LRScheduler.step", None, "runs ahead of its schedule"),
    Bug("gpt2_loop", "eval_mode", 3, "functional.dropout", None, "training"),
    Bug("gpt2_loop", "dropout_in_evaluation", 5, "functional.dropout", None, "training"),
    Bug("gpt2_loop", "autocast_dtype", 3, "scaled_dot_product_attention", None, "float16"),
    Bug("gpt2_trainer", "frozen", 1, "Tensor.backward", "transformer.h.0.mlp.c_fc.weight", "frozen"),
    Bug("gpt2_trainer", "wrong_optimizer", 1, "Adam.step", "transformer.h.0.mlp.c_fc.weight", "not in the optimizer"),
    Bug("ddp", "bypassed", 3, "Tensor.backward", "0.weight", "averaged"),
    Bug("fsdp2", "frozen", 1, "Tensor.backward", "1.weight", "frozen"),
    Bug("fsdp2", "no_zero_grad", 3, "Tensor.backward", "0.weight", "zero_grad() is missing"),
)


def _cases() -> list[Any]:
    cases = []
    for bug in BUGS:
        for form in ("full", "selective"):
            marks: list[Any] = [] if bug.quick and form == "full" else [pytest.mark.slow, pytest.mark.timeout(900)]
            if bug.program.startswith("gpt2"):
                marks.append(transformers)
            name = f"{bug.program}-{bug.fault}-{bug.since}-{form}"
            cases.append(pytest.param(bug, form == "selective", marks=marks, id=name))
    return cases


@pytest.mark.parametrize(("bug", "selective"), _cases())
def test_bugs_are_named(runs: Runs, bug: Bug, selective: bool) -> None:
    result = runs.rerun(bug.program, "--fault", bug.fault, "--since", str(bug.since), selective=selective)
    assert result.exit_code == 3, result.summary
    assert result.summary["error"] == 0
    first = [finding for finding in result.findings if finding.first_step in (bug.since, bug.since + 1)]
    assert first == [*result.findings[: len(first)]], "something was said to have broken earlier"
    named = [finding for finding in first if any(api.endswith(bug.api) for api in finding.apis)]
    assert named, [finding.title for finding in result.findings]
    assert bug.tensor is None or any(bug.tensor in finding.tensors for finding in first)
    assert bug.words in " ".join(f"{f.title} {f.observed} {f.expected} {f.meaning}" for f in first)
    if bug.program != "ddp":  # that ranks differ is seen between processes, not at a line
        assert any(f"{bug.program}.py:" in str(finding.location) for finding in first)
