"""Verdicts: definite failures, complete agreement, and unknown for everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.pilot.synthetic_records import raised, training
from traincheck.pilot.cases import Scenario, Tolerance
from traincheck.pilot.grading import incomplete
from traincheck.pilot.grading.comparison import Comparison, compare
from traincheck.pilot.grading.judging import Judgement, judge
from traincheck.pilot.grading.records import Records, load
from traincheck.pilot.grading.running import Done, Reason

ENDED = Done(0, "exit", 1.0)
DIFFERENT = {(1, 1, "gradients"): {"w": torch.zeros(2), "v": None}}


def against(records: Records, *oracles: Records) -> list[Comparison]:
    return [
        compare(records, oracle, name=f"oracle-{number}", ranks=2, steps=2, tolerance=Tolerance())
        for number, oracle in enumerate(oracles)
    ]


@pytest.fixture
def oracle(tmp_path: Path) -> Records:
    return training(tmp_path / "oracle")


def verdict(folder: Path, oracle: Records, done: Done = ENDED) -> Judgement:
    records = load(folder)
    return judge(done, records, against(records, oracle), 2)


def test_all_state_of_an_oracle_is_correct(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay")
    found = verdict(tmp_path / "replay", oracle)
    assert (found.verdict, found.oracle) == ("correct", "oracle-0")


def test_an_exit_code_alone_decides_nothing(tmp_path: Path, oracle: Records) -> None:
    """gloo may abort while the interpreter shuts down, after everything is right and written."""
    training(tmp_path / "replay")
    raised(tmp_path / "replay", None, "torch.distributed.elastic.X", "a child failed", {"1": -6})
    found = verdict(tmp_path / "replay", oracle, Done(1, "exit", 1.0))
    assert found.verdict == "correct"
    assert "exit code 1 after everything was written" in found.reason


def test_state_that_differs_is_incorrect_with_what_differs_first(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay", change=DIFFERENT)
    found = verdict(tmp_path / "replay", oracle)
    assert found.verdict == "incorrect"
    assert "gradients w differ on rank 1, at step 1: relative L2 error 1" in found.reason


def test_every_record_of_what_trained_is_needed_and_what_a_launcher_leaves_is_not(
    tmp_path: Path, oracle: Records
) -> None:
    training(tmp_path / "replay")
    launcher = tmp_path / "replay" / "99-1"
    launcher.mkdir()
    (launcher / "end.json").write_text(json.dumps({"steps": 0, "rank": None, "pid": 99, "final": None}))
    scenario = Scenario(name="base", about="two ranks", ranks=2, steps=2)
    found = incomplete.verdicts(load(tmp_path / "replay"), scenario, lambda records: against(records, oracle))
    assert found.pop("whole").verdict == "correct"
    assert [one.verdict for one in found.values()] == ["unknown"] * 2 * 4


@pytest.mark.parametrize("missing", ["header.json", "step-000001.json", "step-000002.json", "end.json"])
@pytest.mark.parametrize("rank", [0, 1])
def test_any_missing_record_is_unknown(tmp_path: Path, oracle: Records, rank: int, missing: str) -> None:
    training(tmp_path / "replay")
    (tmp_path / "replay" / f"{100 + rank}-1" / missing).unlink()
    found = verdict(tmp_path / "replay", oracle)
    assert found.verdict == "unknown"
    assert f"rank {rank}" in found.reason


def test_a_missing_record_of_the_oracle_is_unknown_too(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay")
    (oracle.folder / "100-1" / "step-000002.json").unlink()
    found = verdict(tmp_path / "replay", load(oracle.folder))
    assert found.verdict == "unknown"
    assert "oracle oracle-0, rank 0: no record of step 2" in found.reason


def test_no_records_at_all_are_unknown(tmp_path: Path, oracle: Records) -> None:
    (tmp_path / "replay").mkdir()
    found = verdict(tmp_path / "replay", oracle)
    assert (found.verdict, found.infrastructure) == ("unknown", False)


def test_a_wrong_world_size_is_unknown(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay", ranks=1)
    assert "it ran as one of 1, not 2" in verdict(tmp_path / "replay", oracle).reason


@pytest.mark.parametrize("reason", ["timeout", "lost", "cancelled"])
def test_a_replay_that_did_not_come_to_its_end_is_tried_again(tmp_path: Path, oracle: Records, reason: Reason) -> None:
    training(tmp_path / "replay")
    (tmp_path / "replay" / "100-1" / "step-000002.json").unlink()
    found = verdict(tmp_path / "replay", oracle, Done(-15, reason, 1.0))
    assert (found.verdict, found.infrastructure) == ("unknown", True)


def test_a_timeout_after_all_records_is_no_pass(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay")
    assert verdict(tmp_path / "replay", oracle, Done(-15, "timeout", 1.0)).verdict == "unknown"


def test_a_difference_is_definite_also_when_the_rest_is_missing(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay", change=DIFFERENT)
    (tmp_path / "replay" / "100-1" / "step-000002.json").unlink()
    assert verdict(tmp_path / "replay", oracle, Done(-9, "exit", 1.0)).verdict == "incorrect"


def test_an_error_of_the_program_is_definite(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay")
    raised(tmp_path / "replay", 1, "builtins.ValueError", "shapes do not fit")
    found = verdict(tmp_path / "replay", oracle, Done(1, "exit", 1.0))
    assert (found.verdict, found.reason) == ("incorrect", "rank 1 raised ValueError after 1 steps: shapes do not fit")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("builtins.RuntimeError", "Connection closed by peer [127.0.0.1]:4312"),
        ("builtins.RuntimeError", "[gloo] Timed out waiting 1800000ms for recv operation to complete"),
        ("builtins.OSError", "[Errno 28] No space left on device"),
        ("torch.distributed.DistNetworkError", "The server socket has failed to bind: Address already in use"),
        ("builtins.MemoryError", ""),
    ],
)
def test_an_error_that_may_come_from_outside_is_not(tmp_path: Path, oracle: Records, kind: str, text: str) -> None:
    training(tmp_path / "replay")
    (tmp_path / "replay" / "100-1" / "step-000002.json").unlink()
    raised(tmp_path / "replay", 1, kind, text)
    found = verdict(tmp_path / "replay", oracle, Done(1, "exit", 1.0))
    assert (found.verdict, found.infrastructure) == ("unknown", True)


def test_a_rank_that_ended_itself_is_definite_one_that_was_killed_is_not(tmp_path: Path, oracle: Records) -> None:
    verdicts = {}
    for code in (5, -9):
        folder = tmp_path / str(code)
        training(folder)
        (folder / "101-1" / "step-000002.json").unlink()
        raised(folder, None, "torch.distributed.elastic.ChildFailedError", "a child failed", {"1": code, "0": -15})
        verdicts[code] = verdict(folder, oracle, Done(1, "exit", 1.0)).verdict
    assert verdicts == {5: "incorrect", -9: "unknown"}


def test_a_fault_of_the_observer_is_unknown_and_tried_again(tmp_path: Path, oracle: Records) -> None:
    training(tmp_path / "replay")
    (tmp_path / "replay" / "100-1" / "fault-1.json").write_text('{"step": 1, "text": "Traceback\\nOSError: disk"}')
    found = verdict(tmp_path / "replay", oracle)
    assert (found.verdict, found.infrastructure) == ("unknown", True)
    assert "OSError: disk" in found.reason


def test_of_several_oracles_all_state_has_to_be_that_of_one(tmp_path: Path) -> None:
    """Rank 0 with one generation and rank 1 with the other matches neither."""
    first = training(tmp_path / "first")
    both = {(rank, 1, "gradients"): {"w": torch.ones(2), "v": None} for rank in (0, 1)}
    second = training(tmp_path / "second", change=both)
    mixed = training(tmp_path / "mixed", change={(1, 1, "gradients"): both[1, 1, "gradients"]})
    again = training(tmp_path / "again", change=both)
    found = {
        name: judge(ENDED, records, against(records, first, second), 2)
        for name, records in (("first", first), ("again", again), ("mixed", mixed))
    }
    assert [one.verdict for one in found.values()] == ["correct", "correct", "incorrect"]
    assert found["again"].oracle == "oracle-1"
    assert "every other of 2 right programs" in found["mixed"].reason


def test_half_of_the_records_cannot_tell_which_oracle_it_is(tmp_path: Path) -> None:
    """What is there is one oracle's, what is missing may be anything: unknown, not incorrect."""
    first = training(tmp_path / "first")
    second = training(tmp_path / "second", change={(1, 2, "gradients"): {"w": torch.ones(2), "v": None}})
    half = training(tmp_path / "half")
    (tmp_path / "half" / "101-1" / "step-000002.json").unlink()
    half = load(half.folder)
    assert judge(ENDED, half, against(half, first, second), 2).verdict == "unknown"
