"""A trial's ledger while it runs: each thing once, suspensions from failure to the first good answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traincheck.pilot import events
from traincheck.pilot.inspecting.recorder import Recorder
from traincheck.pilot.ledger import Entry, Ledger, read
from traincheck.pilot.sources import Objects

ONE = events.Tokens(input=10, cached_input=2, output=5, reasoning=1)


class Written:
    """A recorder and what it wrote."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.jsonl"
        self.objects = Objects(folder / "store")
        self.recorder = Recorder(Ledger(self.path), self.objects)

    def entries(self) -> list[Entry]:
        return list(read(self.path))

    def kinds(self) -> list[str]:
        return [entry.kind for entry in self.entries()]

    def of(self, kind: str) -> list[dict[str, object]]:
        return [entry.data for entry in self.entries() if entry.kind == kind]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_every_entry_is_an_event_of_the_contract(written: Written) -> None:
    recorder = written.recorder
    recorder.turn_started("do this")
    recorder.requested("r1", 1, carries_task=True)
    recorder.answered("r1", "mockllm/model", ONE, "I will")
    recorder.called("c1", "submit_revision", {"note": "x"}, "r1")
    recorder.submitted("f" * 64, "x", recorder.take("submit_revision"))
    recorder.result("c1", "recorded", failed=False)
    recorder.turn_ended("done")
    recorder.limit("tokens")
    head = recorder.close("limit", "f" * 64, 0)
    entries = written.entries()
    for entry in entries:
        events.parsed(entry)
    assert entries[-1].hash == head
    assert written.of("submitted") == [{"number": 0, "source": "f" * 64, "note": "x", "call": "c1"}]
    assert written.objects.get(str(written.of("model_answered")[0]["text"])) == b"I will"


def test_a_suspension_lasts_from_the_first_failure_to_the_first_good_answer(written: Written) -> None:
    recorder = written.recorder
    recorder.requested("r1", 1, carries_task=True)
    recorder.failed("r1", 1, "reset", transport=True)
    recorder.requested("r1", 2, carries_task=True)
    recorder.failed("r1", 2, "reset", transport=True)
    recorder.solver_failed("gone", recovers=True)
    recorder.requested("r2", 1, carries_task=True)
    recorder.answered("r2", "m", ONE, "")
    recorder.requested("r3", 1, carries_task=True)
    recorder.answered("r3", "m", ONE, "")
    assert [kind for kind in written.kinds() if kind in ("suspended", "resumed")] == ["suspended", "resumed"]
    assert written.kinds().index("suspended") == written.kinds().index("model_failed") + 1
    assert written.kinds().index("resumed") == written.kinds().index("model_answered") + 1
    assert written.of("suspended") == [{"interval": 1, "reason": "transport"}]


def test_a_failure_of_the_agent_alone_is_a_suspension_of_its_own_reason(written: Written) -> None:
    recorder = written.recorder
    recorder.failed("r1", 1, "refused", transport=False)
    assert written.of("suspended") == []
    recorder.solver_failed("exit code 1", recovers=True)
    recorder.answered("r2", "m", ONE, "")
    recorder.solver_failed("exit code 1", recovers=False)
    assert written.of("suspended") == [{"interval": 1, "reason": "solver"}]
    assert written.of("resumed") == [{"interval": 1}]


def test_calls_and_results_that_are_told_again_are_written_once(written: Written) -> None:
    told: list[str] = []
    recorder = written.recorder
    recorder.on_answered = told.append
    for _ in range(3):
        recorder.called("c1", "bash", {"command": "ls"}, "r1")
    recorder.result("c0", "of nobody", failed=False)
    for _ in range(3):
        recorder.result("c1", "a.py", failed=False)
    assert written.kinds() == ["tool_called", "tool_answered"]
    assert told == ["c1"]


def test_calls_side_by_side_are_taken_in_their_order_and_once(written: Written) -> None:
    recorder = written.recorder
    for number in (1, 2):
        recorder.called(f"c{number}", "mcp__tools__request_device", {}, "r1")
    recorder.called("c3", "bash", {}, "r1")
    assert [recorder.take("request_device") for _ in range(3)] == ["c1", "c2", None]
    recorder.called("c4", "request_device", {}, "r2")
    recorder.solver_failed("gone", recovers=True)
    assert recorder.take("request_device") is None  # whoever asked is dead


def test_arguments_that_are_no_json_are_written_as_text(written: Written) -> None:
    written.recorder.called("c1", "x", {"rate": float("nan"), "path": Path("a"), "of": {1: (2, 3)}}, None)
    assert written.of("tool_called")[0]["arguments"] == {"rate": "nan", "path": "a", "of": {"1": [2, 3]}}
    assert all(json.loads(line) for line in written.path.read_text().splitlines())


def test_occurrences_are_numbered_and_distinct_sources_are_not_merged(written: Written) -> None:
    for source in ("a" * 64, "b" * 64, "a" * 64):
        written.recorder.submitted(source)
    assert [one["number"] for one in written.of("submitted")] == [0, 1, 2]
    assert written.recorder.sources == ["a" * 64, "b" * 64, "a" * 64]
