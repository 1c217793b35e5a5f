"""Variants of a case that nobody has published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.pilot import fake_training
from tests.pilot.test_cases import CASES, NAMES, files
from traincheck.cli.app import app
from traincheck.errors import TraincheckError
from traincheck.pilot.canonical import sha256
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.sources import Objects
from traincheck.pilot.varying import vary

every = pytest.mark.parametrize("name", NAMES)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files(folder)}


@every
def test_every_shipped_case_has_variants(name: str, tmp_path: Path) -> None:
    case = CaseFolder(CASES / name)
    for seed in range(4):
        made = vary(case, tmp_path / str(seed), seed)
        assert made.case.name.startswith(f"{name}-variant-")
        assert made.case.canary != case.case.canary
        for path in files(made.folder):
            text = path.read_text(encoding="utf-8")
            assert case.case.canary not in text
            assert (made.case.canary in text) == (path.is_relative_to(made.private) or path.name == "case.toml"), path
        about = json.loads((made.private / "variant.json").read_text(encoding="utf-8"))
        assert about["of"] == name
        assert about["seed"] == seed
        for old, new in about["modules"].items():
            assert new != old
            assert not (made.workspace / f"{old}.py").exists()
            assert (made.workspace / f"{new}.py").exists()
            assert f"{old}.py" not in (made.workspace / "README.md").read_text(encoding="utf-8")
        for kind in ("oracles", "alternatives", "mutants"):  # an overlay lies over the same files as before
            for overlay in (path for path in (case.private / kind).glob("*") if path.is_dir()):
                over = made.private / kind / overlay.name
                for path in files(overlay):
                    stem = about["modules"].get(path.stem, path.stem)
                    assert (over / path.relative_to(overlay).with_name(stem + path.suffix)).exists()


@every
def test_a_variant_differs_in_what_may_vary_and_in_nothing_else(name: str, tmp_path: Path) -> None:
    case = CaseFolder(CASES / name)
    made = vary(case, tmp_path / "made", 7)
    about = json.loads((made.private / "variant.json").read_text(encoding="utf-8"))
    old, new = case.case, made.case
    same = set(type(old).model_fields) - {"name", "canary", "variation", "scenarios"}
    assert {field: getattr(old, field) for field in same} == {field: getattr(new, field) for field in same}
    assert old.variation is not None
    assert new.variation is None
    for before, after in zip(old.scenarios, new.scenarios, strict=True):
        assert before.model_copy(update={"config": {}}) == after.model_copy(update={"config": {}})
        left = {field: value for field, value in after.config.items() if field not in about["config"]}
        assert left.keys() == before.config.keys()
        for field, value in before.config.items():
            wanted = about["seeds"][field][str(value)] if field in old.variation.seeds else value
            assert left[field] == (list(wanted) if isinstance(wanted, tuple) else wanted), field
    for field, value in about["config"].items():
        assert value in old.variation.config[field]
        assert all(one.config[field] == value for one in new.scenarios)
    back = content(made.workspace)  # with the names put back, the programs are the case's
    for module, other in about["modules"].items():
        back[f"{module}.py"] = back.pop(f"{other}.py")
    for path, original in content(case.workspace).items():
        text = back[path].decode()
        for word, other in about["names"].items():
            text = text.replace(other, word)
        for module, other in about["modules"].items():
            text = text.replace(f"from {other} import", f"from {module} import").replace(f"{other}.py", f"{module}.py")
        if path != "config.json":
            assert text == original.decode(), path


def test_a_seed_is_a_variant(tmp_path: Path) -> None:
    case = CaseFolder(CASES / "token-average-ddp")
    one, again, other = (vary(case, tmp_path / word, seed) for word, seed in (("a", 3), ("b", 3), ("c", 4)))
    assert content(one.folder) == content(again.folder)
    assert content(one.folder) != content(other.folder)
    assert one.case.name != other.case.name
    assert sha256(one.hashes(Objects(tmp_path / "s"))) == sha256(again.hashes(Objects(tmp_path / "s")))


def test_equal_seeds_of_scenarios_stay_equal(tmp_path: Path) -> None:
    case = CaseFolder(CASES / "clipping-tensor-parallel")
    made = vary(case, tmp_path / "made", 5).case
    assert made.scenario("base").config["seed"] == made.scenario("tp1").config["seed"]
    assert made.scenario("base").config["seed"] != made.scenario("fresh-seed").config["seed"]
    assert made.scenario("base").config["seed"] != case.case.scenario("base").config["seed"]


def edited(tmp_path: Path, case: str, old: str, new: str) -> CaseFolder:
    folder = tmp_path / "edited"
    shutil.copytree(CASES / case, folder)
    text = (folder / "case.toml").read_text(encoding="utf-8")
    assert old in text
    (folder / "case.toml").write_text(text.replace(old, new), encoding="utf-8")
    return CaseFolder(folder)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('NextToken = ["Predictor", "Bigram", "Successor"]', 'NextToken = ["functional"]', "is in .* already"),
        ('data = ["tokens", "sequences"]', 'data = ["train"]', "is there already"),
        ('NextToken = ["Predictor", "Bigram", "Successor"]', 'NextToken = ["import"]', "is in .* already"),
        ('NextToken = ["Predictor", "Bigram", "Successor"]', 'NextToken = ["await"]', "does not compile"),
        ("modules = {", 'modules = { torch = ["jax"], ', "has no module torch"),
        ("modules = { model", 'modules = { modle = ["other"], model', "has no module modle"),
        ('["network", "predictor"], data = ["tokens", "sequences"]', '["tokens"], data = ["tokens"]', "for two names"),
        ("NextToken = [", 'NexTToken = ["Other"]\nNextToken = [', "no program has the word NexTToken"),
    ],
)
def test_a_variation_that_would_spoil_the_case_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    case = edited(tmp_path, "tiny-accumulation", old, new)
    with pytest.raises(TraincheckError, match=why):
        vary(case, tmp_path / "made", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edited"]  # nothing is left


@pytest.mark.parametrize(
    ("case", "old", "new", "why"),
    [
        ("tiny-clean", 'seeds = ["seed"]', 'seeds = ["seed"]\nconfig = { warmup = [1, 2] }', "sets 'warmup'"),
        ("tiny-clean", 'seeds = ["seed"]', 'seeds = ["sead"]', "no scenario has an integer for 'sead'"),
        ("tiny-clean", "modules = { model", 'modules = { train = ["fit"], model', "in the launch command"),
        ("tiny-clean", 'data = ["points", "pairs"]', "data = []", "at least 1 item"),
        ("tiny-clean", "modules = { model", 'modules = { "../data" = ["x"], model', "pattern"),
        ("tiny-clean", '["points", "pairs"]', '["a.b"]', "pattern"),
        ("source-consistency-fsdp", "modules = { weights", 'modules = { hub = ["registry"], weights', "world outside"),
    ],
)
def test_a_variation_that_contradicts_the_case_is_refused(
    tmp_path: Path, case: str, old: str, new: str, why: str
) -> None:
    with pytest.raises(TraincheckError, match=why):
        edited(tmp_path, case, old, new)


def test_a_case_without_a_variation_and_a_folder_in_use(tmp_path: Path) -> None:
    with pytest.raises(TraincheckError, match="does not say what may vary"):
        vary(CaseFolder(fake_training.case(tmp_path / "case")), tmp_path / "made", 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("")
    with pytest.raises(TraincheckError, match="not an empty folder"):
        vary(CaseFolder(CASES / "tiny-clean"), tmp_path / "full", 1)
    assert (tmp_path / "full/mine").exists()


def test_files_that_can_not_be_rewritten_are_named(tmp_path: Path) -> None:
    case = edited(tmp_path, "tiny-clean", "schema", "schema")
    notes = case.workspace / "NOTES.md"
    notes.write_bytes(b"\xff\xfe")
    with pytest.raises(TraincheckError, match=r"NOTES\.md is not UTF-8"):
        vary(case, tmp_path / "made", 1)
    notes.unlink()
    (case.workspace / "more.py").write_text("import os, model\n")
    with pytest.raises(TraincheckError, match=r"more\.py imports model whole"):
        vary(case, tmp_path / "made", 1)
    (case.workspace / "more.py").unlink()
    (case.workspace / "config.json").write_text("{")
    with pytest.raises(TraincheckError, match=r"config\.json is no JSON"):
        vary(case, tmp_path / "made", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edited"]


def test_where_a_variant_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = edited(tmp_path, "tiny-clean", "schema", "schema")
    with pytest.raises(TraincheckError, match="is in the case"):
        vary(case, case.folder / "private" / "mine", 1)
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    assert vary(case, tmp_path / "link", 1).case.name == vary(case, tmp_path / "new" / "deep", 1).case.name
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    assert content(vary(case, Path("."), 1).folder) == content(tmp_path / "here")


def test_the_command(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["pilot", "vary", str(CASES / "tiny-accumulation"), *words])
        return result.exit_code, result.stdout

    code, out = run("-o", str(tmp_path / "a"), "--json")
    told = json.loads(out)
    assert code == 0
    assert told["case"] == CaseFolder(tmp_path / "a").case.name
    code, out = run("-o", str(tmp_path / "b"), "--seed", str(told["seed"]))
    assert code == 0
    assert told["case"] in out
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert run("-o", str(tmp_path / "a"))[0] == 2
    assert run("-o", str(tmp_path / "c"), "--json")[1] != out  # another seed each time
