"""Qualification in a report: a ledger of its own, failed strict checks published, never added up."""

from __future__ import annotations

import pytest

from tests.pilot.synthetic_pilot import Clock, Synthetic
from traincheck.errors import TraincheckError
from traincheck.pilot import events, report
from traincheck.pilot.grading.qualification import Check, Number, Qualification
from traincheck.pilot.ledger import Ledger
from traincheck.pilot.report import tables


@pytest.fixture
def pilot(tmp_path):
    """One block."""
    made = Synthetic(tmp_path, arms=["control", "optional"])
    for trial in made.plan.order:
        made.run(trial)
    made.write()
    return made


def qualified(pilot, folder, *, holds=True, hashes=None):
    """A qualification that took 2 devices for 3 seconds."""
    folder.mkdir()
    checks = (
        Check(name="replicas are the same bits", wanted="equal", found="equal" if holds else "differ", holds=holds),
        Check(name="replicas agree to 1e-6", wanted="below 1e-6", found="3e-9", holds=True, strict=False,
              relaxes="replicas are the same bits"),
    )  # fmt: skip
    result = Qualification(
        case="broken", kind="failure", reproduction="by hand", hashes=hashes or pilot.plan.cases["broken"], versions={},
        machine={}, valid=True, replays={}, checks=checks, numbers=(Number(name="gradient error", value=0.36),),
        preflight=None, device_seconds=6.0,
    )  # fmt: skip
    (folder / "qualification.json").write_text(result.model_dump_json(by_alias=True))
    clock = Clock()
    steps = [
        (0, events.ServiceStarted(devices=2, kind="cpu")),
        (0, events.Asked(request="q", owner="qualification/broken", purpose="qualification", devices=2,
                         command=("python", "train.py"), source="0" * 64)),
        (0, events.Granted(request="q", devices=(0, 1))),
        (0, events.WorkerStarted(request="q", pid=1)),
        (3, events.WorkerEnded(request="q", exit_code=0, reason="exit")),
        (0, events.Released(request="q")),
        (0, events.ServiceStopped(held=0)),
    ]  # fmt: skip
    with Ledger(folder / "device.jsonl", clock) as ledger:
        for after, event in steps:
            clock.ns += after * 1_000_000_000
            ledger.add(events.kind_of(event), events.data_of(event))
    return folder


def test_its_device_time_stands_apart(pilot, tmp_path):
    held, _ = report.texts(pilot.layout, [qualified(pilot, tmp_path / "q")])
    assert held["costs"] == {"solver": 20.0, "grading": 4.0, "qualification": 6.0}
    assert held["ledgers"][0]["qualification"] == 6.0
    assert held["grading_per_repair"][0]["qualification"] == 3.0
    assert not [key for key in held["ledgers"][0] if "total" in key]
    without, _ = report.texts(pilot.layout)
    assert without["ledgers"][0]["qualification"] is None
    assert any("No qualification of case broken was given" in text for text in without["cannot_conclude"])


def test_a_strict_check_that_failed_stays_failed(pilot, tmp_path):
    held, files = report.texts(pilot.layout, [qualified(pilot, tmp_path / "q", holds=False)])
    rows = tables.failed_checks(held).rows
    assert [row[1:3] for row in rows] == [
        ["strict, failed", "replicas are the same bits"],
        ["control, holds", "replicas agree to 1e-6"],
    ]
    assert rows[1][-1] == "replicas are the same bits"
    assert "1 strict checks of case broken failed; it goes by other controls." in held["cannot_conclude"]
    assert "gradient error 0.36" in files[report.MARKDOWN]


def test_a_qualification_of_another_state_is_told(pilot, tmp_path):
    hashes = {**pilot.plan.cases["broken"], "workspace": "0" * 64}
    held, _ = report.texts(pilot.layout, [qualified(pilot, tmp_path / "q", hashes=hashes)])
    assert held["cases"][0]["qualified"]["changed"] == ["workspace"]
    assert "Case broken was qualified in another state: workspace changed since." in held["cannot_conclude"]


def test_a_folder_that_holds_none_is_refused(pilot, tmp_path):
    with pytest.raises(TraincheckError, match="is no qualification"):
        report.texts(pilot.layout, [tmp_path])
    one, other = qualified(pilot, tmp_path / "q"), qualified(pilot, tmp_path / "r")
    with pytest.raises(TraincheckError, match="two qualifications"):
        report.texts(pilot.layout, [one, other])
