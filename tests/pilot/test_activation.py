"""How far a trial went in using TrainCheck, and whether it knew the public issue: from evidence alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from traincheck.pilot import activation, contamination
from traincheck.pilot.guard import Attestation
from traincheck.pilot.ledger import Entry
from traincheck.pilot.sources import Objects

MANUAL = "/mnt/manual/manual.md"


def called(**arguments: Any) -> Entry:
    data = {"call": "c1", "tool": "bash", "arguments": arguments, "turn": 1, "request": "r1"}
    return Entry(number=3, at_ns=1, wall_ns=1, kind="tool_called", data=data, previous="", hash="")


def stages(
    *calls: Entry, workers: tuple[Attestation, ...] = (), folder: Path | None = None, package: bool = True
) -> list[str]:
    folders = [("work", folder)] if folder else []
    found = activation.evidence(calls, workers, folders, manual=MANUAL, package=package)
    return [event.stage for event in found]


def worker(imported: bool | None, run: str | None = None) -> Attestation:
    return Attestation("1-1", True, imported, False, run, ("python", "train.py"))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (f"cat {MANUAL}", ["manual_read"]),
        ("traincheck manual --agent", ["manual_read"]),
        ("traincheck collect -o out/run -- python train.py", ["prepared"]),
        ("python -m traincheck check run -i good.jsonl", ["prepared"]),
        ("sed -i '1i import traincheck' train.py", ["prepared"]),
        ("pip install traincheck", ["prepared"]),
        ("grep -r traincheck .", []),
        ("echo is TrainCheck of use here?", []),
        ("cat README.md", []),
    ],
)
def test_what_a_command_shows(command: str, expected: list[str]) -> None:
    assert stages(called(command=command)) == expected


def test_arguments_are_looked_through_at_any_depth() -> None:
    assert stages(called(edits=[{"path": "train.py", "text": "from traincheck import step\n"}])) == ["prepared"]
    assert stages(called(file_path=MANUAL)) == ["manual_read"]


def test_an_arm_without_the_package_prepares_nothing() -> None:
    assert (
        stages(called(command="traincheck collect -- x"), called(command="pip install traincheck"), package=False) == []
    )
    assert stages(called(command=f"cat {MANUAL}"), package=False) == ["manual_read"]


def test_imported_and_activated_come_from_workers() -> None:
    assert stages(workers=(worker(False), worker(None))) == []
    assert stages(workers=(worker(True),)) == ["imported"]
    assert stages(workers=(worker(True, "out/run"),)) == ["imported", "activated"]


def test_a_trace_is_evidence_and_any_manifest_is_not(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "manifest.json").write_text("{}")
    assert stages(folder=tmp_path) == []
    (tmp_path / "run" / "processes").mkdir(parents=True)
    (tmp_path / "run" / "manifest.json").write_text("{}")
    assert stages(folder=tmp_path) == ["activated"]


def test_one_call_is_one_piece_of_evidence_a_stage() -> None:
    found = list(
        activation.evidence(
            [called(command=f"cat {MANUAL}; traincheck collect -- x; traincheck check y", again="traincheck infer z")],
            [], [], manual=MANUAL, package=True,
        )
    )  # fmt: skip
    assert [event.stage for event in found] == ["manual_read", "prepared"]
    assert all("call c1" in event.evidence for event in found)


def test_an_agent_that_names_the_issue_is_noticed(tmp_path: Path) -> None:
    objects = Objects(tmp_path)

    def entry(number: int, kind: str, **data: Any) -> Entry:
        return Entry(number=number, at_ns=1, wall_ns=1, kind=kind, data=data, previous="", hash="")

    entries = [
        entry(1, "turn_started", text=objects.put(b"Is this #1801?")),
        entry(2, "model_answered", text=objects.put(b"This looks like deepspeed issue #1801, which was fixed.")),
        entry(3, "tool_answered", text=objects.put(b"see #1801")),
        entry(4, "submitted", note="as in #1801"),
        entry(5, "tool_called", arguments={"command": "git log --grep bf16_optimizer"}),
        entry(6, "model_answered", text=None),
    ]
    words = ["#1801", "BF16_Optimizer", "#34242"]
    found = list(contamination.namings(entries, objects, words))
    assert [(one.number, one.word) for one in found] == [(2, "#1801"), (4, "#1801"), (5, "BF16_Optimizer")]
    assert "deepspeed issue #1801" in found[0].quote
    # A word that stands in the task shows nothing.
    assert [one.number for one in contamination.namings(entries, objects, words, given="see #1801")] == [5]
