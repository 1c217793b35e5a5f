"""The shipped cases, as far as they can be looked at without training."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from traincheck.pilot.cases import CaseFolder

CASES = Path(__file__).resolve().parents[2] / "pilots" / "cases"
NAMES = sorted(path.name for path in CASES.iterdir() if (path / "case.toml").exists())
REAL = ("clean-digits", "clipping-tensor-parallel", "source-consistency-fsdp", "token-average-ddp")

every = pytest.mark.parametrize("name", NAMES)
real = pytest.mark.parametrize("name", REAL)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def overlays(case: CaseFolder) -> list[Path]:
    return [
        path
        for kind in ("oracles", "alternatives", "mutants")
        for path in sorted((case.private / kind).glob("*"))
        if path.is_dir()
    ]


def test_the_real_cases_are_there():
    assert set(REAL) <= set(NAMES)


@every
def test_a_case_loads_and_is_named_as_its_folder(name):
    case = CaseFolder(CASES / name)
    assert case.case.name == name
    assert any(not scenario.designated for scenario in case.case.scenarios), "there is no healthy control"


def test_all_cases_tell_the_same():
    assert len({CaseFolder(CASES / name).task for name in NAMES}) == 1


@every
def test_the_task_and_the_workspace_do_not_say_that_something_is_wrong(name):
    case = CaseFolder(CASES / name)
    public = [case.folder / "task.md", *files(case.workspace)]
    for path in public:
        text = path.read_text(encoding="utf-8").lower()
        for word in ("bug", "fault", "broken", "wrong", "defect", "mutant", "oracle", "traincheck", "canary"):
            assert not re.search(rf"\b{word}", text), f"{path}: {word}"


@every
def test_public_files_do_not_name_the_issue(name):
    case = CaseFolder(CASES / name)
    for path in [case.folder / "task.md", *files(case.workspace)]:
        text = path.read_text(encoding="utf-8")
        for word in case.case.public_names:
            assert word.lower() not in text.lower(), f"{path}: {word}"
        assert not re.search(r"#\d{3,}", text), f"{path} names an issue"


@every
def test_every_private_file_has_the_canary_and_no_other_file_has_it(name):
    case = CaseFolder(CASES / name)
    for path in files(case.private):
        assert case.case.canary in path.read_text(encoding="utf-8"), path
    for path in [case.folder / "task.md", *files(case.workspace)]:
        assert case.case.canary not in path.read_text(encoding="utf-8"), path


def test_canaries_are_different():
    canaries = [CaseFolder(CASES / name).case.canary for name in NAMES]
    assert len(set(canaries)) == len(canaries)


@every
def test_an_overlay_changes_source_and_parses(name):
    case = CaseFolder(CASES / name)
    for overlay in overlays(case):
        laid = files(overlay)
        assert laid, f"{overlay} is empty"
        programs = [path for path in laid if path.suffix == ".py"]
        for path in programs:
            ast.parse(path.read_text(encoding="utf-8"), str(path))
        for path in laid:
            under = case.workspace / path.relative_to(overlay)
            assert not under.exists() or under.read_bytes() != path.read_bytes(), f"{path} is the workspace's"
        replaced = [path for path in programs if (case.workspace / path.relative_to(overlay)).exists()]
        assert replaced or not programs, f"{overlay} only adds modules that nothing imports"


@real
def test_overlays_are_different_programs(name):
    case = CaseFolder(CASES / name)
    seen = {}
    for overlay in overlays(case):
        content = tuple((str(path.relative_to(overlay)), path.read_bytes()) for path in files(overlay))
        assert content not in seen, f"{overlay} is {seen.get(content)}"
        seen[content] = overlay


@real
def test_a_real_case_has_alternatives_and_mutants(name):
    private = CaseFolder(CASES / name).private
    assert len([path for path in (private / "alternatives").iterdir() if path.is_dir()]) >= 2
    assert len([path for path in (private / "mutants").iterdir() if path.is_dir()]) >= 3
    assert (private / "README.md").exists()
    assert (private / "qualify.py").exists()


@every
def test_configurations_give_the_steps_of_the_scenario(name):
    for scenario in CaseFolder(CASES / name).case.scenarios:
        assert scenario.config.get("steps", scenario.steps) == scenario.steps, scenario.name


@every
def test_the_readme_has_the_launch_command_and_says_that_it_stays(name):
    case = CaseFolder(CASES / name)
    readme = (case.workspace / "README.md").read_text(encoding="utf-8")
    script = next(part for part in case.case.launch if part.endswith(".py"))
    assert script in readme
    assert "launch command" in readme


def test_designated_scenarios_of_the_issue():
    designated = {
        name: [scenario.name for scenario in CaseFolder(CASES / name).case.scenarios if scenario.designated]
        for name in REAL
    }
    assert designated["clipping-tensor-parallel"] == ["base", "fresh-seed"]
    assert designated["source-consistency-fsdp"] == ["mixed", "swapped"]
    assert len(CaseFolder(CASES / "token-average-ddp").case.scenarios) == 7
    assert len(CaseFolder(CASES / "source-consistency-fsdp").case.scenarios) == 6
    assert designated["clean-digits"] == []


def test_either_source_is_right_where_sources_are_mixed():
    case = CaseFolder(CASES / "source-consistency-fsdp").case
    for name in ("mixed", "swapped"):
        assert set(case.scenario(name).oracles) == {"source-a", "source-b"}


def test_no_file_of_a_case_is_large():
    for name in NAMES:
        for path in files(CASES / name):
            assert path.stat().st_size < 50_000, f"{path}: weights are generated, never kept"
