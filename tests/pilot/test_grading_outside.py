"""Files that stand for the world outside: whatever is submitted, a replay has the case's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pilot import fake_training
from tests.pilot.test_grading_attempts import Bench
from traincheck.errors import TraincheckError
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.grading.attempts import read_verdict
from traincheck.pilot.grading.outside import put_back
from traincheck.pilot.grading.variants import variant
from traincheck.pilot.sources import Objects, SourceMap, capture, materialise

ASKING = """
import pathlib
from world.hub import NEWEST
behaviour = "right" if NEWEST == "patched" else "wrong"
source = pathlib.Path("right.txt").read_text().replace('BEHAVIOUR = "right"', f'BEHAVIOUR = "{behaviour}"')
exec(compile(source, "train.py", "exec"))
"""


def case_with_a_world(folder: Path) -> CaseFolder:
    fake_training.case(folder, outside=["world/hub.py"])
    (folder / "workspace/world").mkdir()
    (folder / "workspace/world/hub.py").write_text('NEWEST = "published"\n')
    return CaseFolder(folder)


def submitted(place: Path, objects: Objects, hub: str) -> SourceMap:
    (place / "world").mkdir(parents=True)
    (place / "world/hub.py").write_text(hub)
    (place / "train.py").write_text(ASKING)
    (place / "right.txt").write_text(fake_training.program("right"))
    return capture(place, objects)


def test_a_repair_of_the_world_is_none(tmp_path: Path) -> None:
    case_with_a_world(tmp_path / "case")
    bench = Bench(tmp_path)
    verdicts = {}
    for name, hub in (("patched", 'NEWEST = "patched"\n'), ("left", 'NEWEST = "published"\n')):
        source = submitted(tmp_path / name, bench.objects, hub)
        folder = tmp_path / "replays" / name
        verdicts[name] = bench.judge.judged(source, bench.folder.case.scenario("base"), folder)
        held = read_verdict(folder / "attempt-1")
        assert held is not None
        assert held.put_back == (("world/hub.py",) if name == "patched" else ())
        assert held.source == source.hash  # its name is what was submitted
    assert [one.verdict for one in verdicts.values()] == ["incorrect", "incorrect"]
    assert "world/hub.py as the case has it" in verdicts["patched"].reason
    assert "as the case has it" not in verdicts["left"].reason


@pytest.mark.parametrize("how", ["deleted", "a folder", "a link", "its folder deleted", "its folder a file",
                                 "its folder a link"])  # fmt: skip
def test_whatever_was_made_of_it(tmp_path: Path, how: str) -> None:
    objects = Objects(tmp_path / "store")
    place = tmp_path / "initial"
    (place / "world").mkdir(parents=True)
    (place / "world/hub.py").write_text("here\n")
    (place / "train.py").write_text("pass\n")
    initial = capture(place, objects)
    (place / "world/hub.py").unlink()
    if how == "a folder":
        (place / "world/hub.py").mkdir()
        (place / "world/hub.py/__init__.py").write_text("other\n")
    elif how == "a link":
        (place / "world/hub.py").symlink_to("../train.py")
    elif how.startswith("its folder"):
        (place / "world").rmdir()
        if how == "its folder a file":
            (place / "world").write_text("")
        elif how == "its folder a link":
            (place / "elsewhere").mkdir()
            (place / "world").symlink_to("elsewhere")
    (place / "train.py").write_text("the repair\n")
    found, changed = put_back(capture(place, objects), initial, ("world/hub.py",))
    assert "world/hub.py" in changed
    materialise(found, objects, tmp_path / "again")
    assert (tmp_path / "again/world/hub.py").read_text() == "here\n"
    assert not (tmp_path / "again/world").is_symlink()
    assert (tmp_path / "again/train.py").read_text() == "the repair\n"


def test_a_source_that_leaves_them_alone_is_as_it_was(tmp_path: Path) -> None:
    objects = Objects(tmp_path / "store")
    initial = case_with_a_world(tmp_path / "case").initial(objects)
    assert put_back(initial, initial, ("world/hub.py",)) == (initial, ())


@pytest.mark.parametrize("shadow", ["world/hub/__init__.py", "world/hub.cpython-311-x86_64-linux-gnu.so", "world.py",
                                    "world/__init__.py", "world.so"])  # fmt: skip
def test_what_would_be_imported_in_its_place_is_not_there(tmp_path: Path, shadow: str) -> None:
    objects = Objects(tmp_path / "store")
    initial = case_with_a_world(tmp_path / "case").initial(objects)
    place = tmp_path / "submitted"
    materialise(initial, objects, place)
    (place / shadow).parent.mkdir(exist_ok=True)
    (place / shadow).write_text('NEWEST = "patched"\n')
    (place / "helper").mkdir()
    (place / "helper/__init__.py").write_text("")
    found, changed = put_back(capture(place, objects), initial, ("world/hub.py",))
    assert shadow in changed
    assert shadow not in found.entries
    assert found.entries.keys() == {*initial.entries, "helper", "helper/__init__.py"}


def test_roots_below_the_workspace(tmp_path: Path) -> None:
    objects = Objects(tmp_path / "store")
    place = tmp_path / "work"
    (place / "src/pkg").mkdir(parents=True)
    for name in ("hub.py", "train.py"):
        (place / "src/pkg" / name).write_text("here\n")
    initial = capture(place, objects, roots=("src/pkg",))
    (place / "src/pkg/hub.py").write_text("changed\n")
    (place / "src/pkg/train.py").write_text("the repair\n")
    source = capture(place, objects, roots=("src/pkg",))
    found, changed = put_back(source, initial, ("src/pkg/hub.py",))
    assert changed == ("src/pkg/hub.py",)
    assert found.entries["src/pkg/train.py"] == source.entries["src/pkg/train.py"]


def test_cases_that_declare_what_is_not_there_or_change_it_are_refused(tmp_path: Path) -> None:
    objects = Objects(tmp_path / "store")
    with pytest.raises(TraincheckError, match=r"the case has no workspace/hub\.py"):
        CaseFolder(fake_training.case(tmp_path / "lacking", outside=["hub.py"]))
    for number, path in enumerate(("./train.py", "/train.py", "../train.py", "train.py/")):
        with pytest.raises(TraincheckError, match="no plain path"):
            CaseFolder(fake_training.case(tmp_path / f"path-{number}", outside=[path]))
    ignored = CaseFolder(fake_training.case(tmp_path / "ignored", outside=["train.py"], ignore=["train.py"]))
    with pytest.raises(TraincheckError, match="has no such file"):
        ignored.initial(objects)
    folder = case_with_a_world(tmp_path / "case")
    over = folder.private / "alternatives/other/world"
    over.mkdir(parents=True)
    (over / "hub.py").write_text("")
    with pytest.raises(TraincheckError, match=r"changes world/hub\.py"):
        variant(folder, objects, "alternatives", "other")
