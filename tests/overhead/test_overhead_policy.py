"""Study files, order of trials, and modes that are refused before anything is trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from traincheck.cli import app
from traincheck.errors import TraincheckError
from traincheck.overhead import schedule
from traincheck.overhead.policy import load_policy, policy_of

STUDIES = Path(__file__).parents[2] / "studies"

SMALL = {
    "schema": 1,
    "name": "small",
    "workload": {"name": "digits-cnn"},
    "modes": [{"name": "full", "kind": "full"}, {"name": "api", "kind": "api"}],
}


def study(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


def refused(path: Path, *options: str) -> str:
    out = path.parent / "out"
    result = CliRunner().invoke(app, ["overhead", "run", str(path), "-o", str(out), *options])
    assert result.exit_code == 2, result.output
    assert not (out / "trials").exists()
    return result.stderr


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_studies_are_valid(path: Path) -> None:
    policy = load_policy(path)
    assert policy.name == path.stem
    assert policy.protocol.pairs >= 3
    assert policy.hold_out is not None
    assert policy.hold_out.seed not in (policy.protocol.seed, *policy.reference.seeds)
    assert policy.hold_out.steps == 20
    assert policy.quickened().protocol.pairs == 1


def test_a_foreign_field_is_refused_with_file_and_field(tmp_path: Path) -> None:
    text = (STUDIES / "digits-cnn.toml").read_text().replace("order_seed = 4", "order_seed = 4\nwarmup = 3")
    told = refused(study(tmp_path, text))
    assert "study.toml: protocol.warmup: there is no such field" in told


def test_every_wrong_field_is_named(tmp_path: Path) -> None:
    data = {**SMALL, "colour": 1, "protocol": {"pairs": 0}, "modes": [{"name": "x", "kind": "fast"}]}
    with pytest.raises(TraincheckError) as error:
        policy_of(data, "s.toml")
    for words in ("colour: there is no such field", "protocol.pairs", "modes.0.kind"):
        assert words in error.value.message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hold_out": {"seed": 1, "modes": ["fast"]}}, "hold_out.modes: there is no mode 'fast'"),
        ({"modes": [{"name": "a", "kind": "api"}] * 2}, "'a' is there twice"),
        ({"modes": [{"name": "plain", "kind": "api"}]}, "plain is the run without TrainCheck"),
        ({"workload": {}}, "give either name or class"),
        ({"protocol": {"steps": 2}}, "first_steady_step is 3, but there are 2 steps"),
        ({"schema": 2}, "has schema 2, this TrainCheck reads 1"),
    ],
)
def test_what_does_not_fit_together_is_said(change: dict, words: str) -> None:
    with pytest.raises(TraincheckError) as error:
        policy_of({**SMALL, **change}, "s.toml")
    assert words in error.value.message


def test_live_is_refused_with_its_reason(tmp_path: Path) -> None:
    text = (STUDIES / "digits-cnn.toml").read_text() + '\n[[modes]]\nname = "live"\nkind = "live"\n'
    told = refused(study(tmp_path, text))
    assert "live (live) can't be measured on digits-cnn: live checking does not exist yet" in told


def test_a_mode_that_the_workload_cannot_have_is_refused(tmp_path: Path) -> None:
    text = (STUDIES / "torchtitan-fsdp2.toml").read_text()
    text += '\n[[modes]]\nname = "peer-subclass"\nkind = "peer-subclass"\n'
    told = refused(study(tmp_path, text), "--peer-python", "python3")
    assert "peer-subclass" in told
    assert "which FSDP owns as DTensors" in told


def test_what_is_no_study_is_said(tmp_path: Path) -> None:
    assert "is not TOML" in refused(study(tmp_path, "a = = 1"))
    assert "there is nothing at" in refused(tmp_path / "none.toml")
    assert "the study has no mode 'x'" in refused(STUDIES / "digits-cnn.toml", "--mode", "x")


def test_pairs_begin_with_either_side_as_often_and_the_seed_decides() -> None:
    policy = policy_of({**SMALL, "protocol": {"pairs": 4}, "hold_out": {"seed": 9, "modes": ["full"]}}, "s")
    pairs = schedule.pairs(policy)
    assert pairs == schedule.pairs(policy)
    main = [(one, other) for one, other in pairs if one.cohort == "main"]
    first = Counter((one.of, one.mode == "plain") for one, _ in main)
    assert first == {("full", True): 2, ("full", False): 2, ("api", True): 2, ("api", False): 2}
    assert all({one.mode, other.mode} == {"plain", one.of} for one, other in pairs)
    assert [(one.seed, one.steps) for one, _ in pairs if one.cohort == "hold-out"] == [(9, 20)]
    orders = {
        tuple(one.id for one, _ in schedule.pairs(policy_of({**SMALL, "protocol": {"order_seed": n}}, "s")))
        for n in range(8)
    }
    assert len(orders) > 1
    assert schedule.planned(policy) == 1 + 2 * len(pairs)


def test_calls_only_and_invariants_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "rules.jsonl").write_text("")
    words = ["collect", "-i", str(tmp_path / "rules.jsonl"), "--no-state", "-o", str(tmp_path / "run"), "--", "python"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "leave out --no-state, or -i" in result.stderr
