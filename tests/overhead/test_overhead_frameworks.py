"""The shipped studies of real frameworks, in their quick form; each is skipped where its framework is not installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from traincheck.overhead import artifacts
from traincheck.overhead.policy import load_policy
from traincheck.overhead.study import Study
from traincheck.overhead.trial import Place, ranks_of

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "needs", "parameters"),
    [
        ("digits-cnn", "sklearn", 151_370),
        ("gpt2-trainer", "transformers", 875_264),
        ("torchtitan-llama-debug", "torchtitan", 6_163_712),
        ("torchtitan-fsdp2", "torchtitan", 6_163_712),
    ],
)
def test_a_quick_study_counts(name: str, needs: str, parameters: int, tmp_path: Path) -> None:
    if importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    file = STUDIES / f"{name}.toml"
    policy = load_policy(file).quickened()
    place = Place(tmp_path / "out", policy, sys.executable, None, str(STUDIES))
    result = Study(place, file, lambda what, done, total: None, quick=True).run()
    assert result["pairs"]["invalid"] == []
    assert result["valid"] is True
    (agreement,) = result["agreement"]
    assert agreement["same"] == agreement["invariants"] > 0
    assert result["invariants"]["portable"] is True

    ranks = ranks_of(place.folder / artifacts.TRIALS / "main.1.full.watched")
    assert [rank["rank"] for rank in ranks] == list(range(policy.workload.ranks))
    assert {rank["parameters"] for rank in ranks} == {parameters}
    if policy.workload.ranks > 1:
        for rank in ranks:
            found = rank["evidence"]["final"]["parameters"]
            assert {tuple(one["dtensor"]["coordinate"]) for one in found.values()} == {(rank["rank"],)}
            assert all(one["dtensor"]["placements"] for one in found.values())
        digests = [{n: one["sha256"] for n, one in r["evidence"]["final"]["parameters"].items()} for r in ranks]
        assert digests[0] != digests[1]
