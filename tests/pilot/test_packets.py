"""Packets: arms differ by sentence, manual and package, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from traincheck.agents.manual import for_agents
from traincheck.errors import TraincheckError
from traincheck.pilot import guard, packets
from traincheck.pilot.plan import WITH_PACKAGE, Arm
from traincheck.pilot.sources import Objects, capture

from .places_support import MANUAL, tiny

ARMS: tuple[Arm, ...] = ("control", "optional", "encouraged", "instructed", "placebo")


def built(tmp_path: Path) -> dict[Arm, packets.Packet]:
    objects = Objects(tmp_path / "store")
    return {arm: packets.build(tiny(), arm, MANUAL, objects) for arm in ARMS}


def test_arms_differ_by_sentence_manual_and_package_alone(tmp_path: Path) -> None:
    found = built(tmp_path)
    packets.check_arms(found)
    assert packets.differences(found["control"], found["optional"]) == {"sentence", "manual", "package"}
    assert packets.differences(found["control"], found["placebo"]) == {"sentence", "manual"}
    assert packets.differences(found["optional"], found["encouraged"]) == {"sentence"}
    assert {found[arm].package for arm in WITH_PACKAGE} == {packets.package_hash()}


@pytest.mark.parametrize("name", ["task", "workspace", "guard", "environment"])
def test_any_other_difference_is_refused(tmp_path: Path, name: str) -> None:
    found = built(tmp_path)
    found["optional"] = found["optional"].model_copy(update={name: "other"})
    with pytest.raises(TraincheckError, match=name):
        packets.check_arms(found)


def test_two_packages_are_refused(tmp_path: Path) -> None:
    found = built(tmp_path)
    found["encouraged"] = found["encouraged"].model_copy(update={"package": "other"})
    with pytest.raises(TraincheckError, match="same package"):
        packets.check_arms(found)


def test_what_is_laid_out_differs_by_the_same(tmp_path: Path) -> None:
    """Of the folders themselves, not of the packet that describes them."""
    objects = Objects(tmp_path / "store")
    maps = {}
    for arm in ARMS:
        root = tmp_path / arm
        root.mkdir()
        packets.lay_out(root, tiny(), arm, MANUAL, packets.build(tiny(), arm, MANUAL, objects), objects)
        maps[arm] = capture(root, objects)
    tops = {arm: {path.split("/")[0] for path in maps[arm].changed_from(maps["control"])} for arm in ARMS}
    assert tops["control"] == set()
    assert tops["placebo"] == {"manual"}
    for arm in WITH_PACKAGE:
        assert tops[arm] == {"manual", "package", "guard"}
        changed = [path for path in maps[arm].changed_from(maps["control"]) if path.startswith("guard")]
        assert changed == ["guard/refuse"]


def test_sentences_are_one_sentence_and_name_no_fault() -> None:
    for arm, sentence in packets.SENTENCES.items():
        assert sentence.count(".") == 1, arm
        assert not any(word in sentence.lower() for word in ("bug", "fault", "error", "wrong", "broken", "fail")), arm
        assert ("{manual}" in sentence) == (arm != "control")
        assert ("traincheck" in sentence.lower()) == (arm in WITH_PACKAGE)


def test_placebo_is_as_long_as_the_manual_and_speaks_of_something_else() -> None:
    manual, placebo = for_agents(), packets.PLACEBO.read_text()
    assert abs(len(placebo) - len(manual)) < 0.15 * len(manual)
    assert abs(len(placebo.split()) - len(manual.split())) < 0.15 * len(manual.split())
    assert not any(word in placebo.lower() for word in ("traincheck", "torch", "training", "gradient", "rank"))


def test_package_given_holds_no_part_of_the_study(tmp_path: Path) -> None:
    packets.copy_package(tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")]
    assert "traincheck/check/__init__.py" in names or "traincheck/check.py" in names
    assert not [name for name in names if name.startswith("traincheck/pilot")]
    assert any(name.startswith("traincheck/collect/_probe") for name in names)


def test_guard_is_the_same_program_in_every_arm(tmp_path: Path) -> None:
    for name, refuse in (("one", True), ("other", False)):
        (tmp_path / name).mkdir()
        guard.write(tmp_path / name, refuse=refuse)
    texts = {(tmp_path / name / "sitecustomize.py").read_text() for name in ("one", "other")}
    assert texts == {guard.content()}
