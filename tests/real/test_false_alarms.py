"""What one healthy run teaches is not violated by healthy reruns that differ in one thing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.collect.running import has
from traincheck.check import check
from traincheck.infer import Inference, infer
from traincheck.invariants import Invariant
from traincheck.relations.contain_calls_learn import MIN_CALLS

from .running import RANKS, RERUNS, Runs

transformers = pytest.mark.skipif(not has("transformers"), reason="needs transformers")
slow = (pytest.mark.slow, pytest.mark.timeout(900))


def _cases() -> list[Any]:
    return list(_every_case())


def _every_case() -> Iterator[Any]:
    for program, reruns in RERUNS.items():
        for name in reruns:
            for selective in (False, True):
                quick = program == "digits_cnn" and (name, selective) in (("other batch", False), ("other lr", True))
                marks = () if quick else (*slow, transformers) if program.startswith("gpt2") else slow
                form = "selective" if selective else "full"
                yield pytest.param(program, name, selective, marks=marks, id=f"{program}-{name}-{form}")


@pytest.mark.parametrize(("program", "rerun", "selective"), _cases())
def test_clean_reruns_are_silent(runs: Runs, program: str, rerun: str, selective: bool) -> None:
    result = runs.rerun(program, *RERUNS[program][rerun], selective=selective)
    assert [o.text for o in result.outcomes if o.outcome in ("violated", "error")] == []
    summary = result.summary
    assert summary["passed"] > 0.9 * summary["total"], summary
    assert not summary["not_observable"]


# --- configuration is no constant ------------------------------------------------------------------------------------

CONFIGURED = {
    "digits_cnn": (0.00317, 37, 53, 0.877, 0.9713, 3.1e-7, 0.213, 1.073, 0.9, 3, 185, 10),
    "gpt2_trainer": (0.00317, 3, 24, 48, 17, 0.877, 0.9713, 3.1e-7, 0.213, 1.073, 131, 6, 2),
    "ddp": (0.00317, 37, 53, 0.877, 0.9713, 3.1e-7, 0.213, 2, 10),
    "fsdp2": (0.00317, 5, 52, 104, 26, 11, 10, 0.877, 0.9713, 3.1e-7, 1.073, 2, 8),
}
"""Numbers that stand in the programs or follow from them: widths, batches, steps, world size."""


def _constants(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _constants(item)
    elif isinstance(value, list):
        for item in value:
            yield from _constants(item)
    else:
        yield value


def constants(invariant: Invariant) -> list[object]:
    """Everything an invariant compares with, without names of functions and properties."""
    told = invariant.to_json()
    parts: list[object] = [told["precondition"]]
    for param in told["params"]:
        parts += [param.get(name) for name in ("arguments", "pre_value", "post_value", "const_value")]
    return [value for part in parts for value in _constants(part)]


def configured(invariant: Invariant, numbers: tuple[float, ...]) -> list[object]:
    """Constants that are such a number, or hold it as a word."""
    found: list[object] = []
    for value in constants(invariant):
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, (int, float)):
            found += [value] if value in numbers else []
        elif isinstance(value, str):
            words = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])", value)
            found += [value for word in words if float(word) in numbers]
    return found


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=() if name == "digits_cnn" else slow) for name in CONFIGURED]
)
def test_configuration_is_no_constant(runs: Runs, program: str) -> None:
    if program.startswith("gpt2") and not has("transformers"):
        pytest.skip("needs transformers")
    learned = runs.learned(program)
    assert [(i.text_description, found) for i in learned if (found := configured(i, CONFIGURED[program]))] == []
    text = runs.rules(program).read_text()
    for word in (str(runs.folder), "/tmp", "cpu:0", "cuda:0", "localhost", "127.0.0.1"):
        assert word not in text


def test_the_scan_sees_constants(runs: Runs) -> None:
    found = next(i for i in runs.learned("digits_cnn") if i.relation == "ConsistentOutputRelation")
    told = found.to_json()
    told["params"][1]["const_value"] = 37
    assert configured(Invariant.model_validate(told), (37,)) == [37]
    told["params"][1]["const_value"] = "[37, 10]"
    assert configured(Invariant.model_validate(told), (37,))


# --- more references -------------------------------------------------------------------------------------------------


def _subject(invariant: Invariant) -> str:
    return json.dumps([invariant.relation, invariant.to_json()["params"]], sort_keys=True)


def _may_be_new(invariant: Invariant) -> bool:
    """What one reference cannot show: constants and dimensions, and what happens seldom."""
    seldom = invariant.support is not None and invariant.support.applications < 2 * MIN_CALLS
    return invariant.relation == "ConsistentInputOutputRelation" or '"arguments"' in _subject(invariant) or seldom


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("pair", [("digits_cnn", "other batch"), ("digits_cnn", "one epoch more"), ("ddp", "other lr")])
def test_more_references_make_surer_rules_and_no_noise(runs: Runs, pair: tuple[str, str]) -> None:
    program, name = pair
    folders = [runs.collect(program), runs.collect(program, *RERUNS[program][name])]
    alone = [infer([folder]) for folder in folders]
    both = infer(folders)
    known = [{_subject(invariant): invariant for invariant in one} for one in alone]
    for invariant in both:
        singles = [one[_subject(invariant)] for one in known if _subject(invariant) in one]
        assert singles or _may_be_new(invariant), f"noise: {invariant.text_description}"
        assert invariant.support is not None
        assert invariant.support.references == 2
        most = max((one.support.applications for one in singles if one.support is not None), default=0)
        assert invariant.support.applications >= most
    again = check(runs.collect(program, *RERUNS[program]["other seed"]), both)
    assert again.summary["violated"] == again.summary["error"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@transformers
def test_different_programs_agree_on_little(runs: Runs) -> None:
    both = runs.learned("digits_cnn", "gpt2_trainer")
    assert len(both) < min(len(runs.learned(program)) for program in ("digits_cnn", "gpt2_trainer"))
    for program in ("digits_cnn", "gpt2_trainer"):
        result = check(runs.collect(program), both)
        assert {outcome.outcome for outcome in result.outcomes} == {"passed"}


# --- programs never seen ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(900)
@transformers
def test_two_programs_say_little_wrong_of_a_third(runs: Runs) -> None:
    learned: Inference = runs.learned("digits_cnn", "gpt2_trainer")
    assert len(learned) > 20
    wrong, applied = [], 0
    for program in ("lstm", "mlp"):
        result = check(runs.collect(program), learned)
        wrong += [f"{program}: {o.text}" for o in result.outcomes if o.outcome in ("violated", "error")]
        applied += result.summary["passed"] + result.summary["violated"]
    assert applied > 30
    assert len(wrong) < 0.01 * applied, wrong


def test_programs_are_where_they_are_said_to_be() -> None:
    assert set(RANKS) <= set(RERUNS)
