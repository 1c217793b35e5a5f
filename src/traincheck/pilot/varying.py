"""Unpublished variants of a case: the same failure under other names, sizes and seeds.

A shipped case may be in what a model was trained on. A variant is drawn from a seed that is nobody's but the study's:
the case declares what may differ (``[variation]``), everything else is as it was. It is a case of its own, to be
qualified and planned as any other; ``private/variant.json`` says what it was made from.
"""

from __future__ import annotations

import ast
import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from traincheck.errors import TraincheckError
from traincheck.pilot.canonical import sha256
from traincheck.pilot.cases import Case, CaseFolder, Scenario, Value, Variation
from traincheck.pilot.sources import Objects

_TEXT: Final = (".py", ".md", ".json", ".toml", ".txt")
_SEED_BELOW: Final = 10_000
T = TypeVar("T")


@dataclass(frozen=True)
class Draw:
    """What one seed came to."""

    name: str
    canary: str
    modules: dict[str, str]
    """Module of the workspace -> its name in the variant."""
    names: dict[str, str]
    """Word of the code -> the word that stands there in the variant."""
    config: dict[str, Value]
    """Fields of the configuration, the same in every scenario."""
    seeds: dict[str, dict[int, int]]
    """Field of the configuration -> value -> its value in the variant."""


def vary(case: CaseFolder, out: Path, seed: int) -> CaseFolder:
    """Make the variant of ``case`` that ``seed`` gives, in ``out``, which does not exist or is empty.

    The same seed gives the same variant, byte by byte. Raises TraincheckError when the case does not say what may
    vary, when a name that was drawn is in use, or when a file of the variant does not compile; nothing is left then.
    """
    variation = case.case.variation
    if variation is None:
        raise TraincheckError(
            f"case {case.case.name} does not say what may vary",
            "a [variation] table in its case.toml; docs/pilot.md says what it holds",
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TraincheckError(f"{out} is not an empty folder", "a fresh folder")
    if out.resolve().is_relative_to(case.folder.resolve()):
        raise TraincheckError(f"{out} is in the case that is varied", "a folder elsewhere")
    drawn = draw(case.case, variation, seed)
    _refuse_taken(case, drawn)
    with tempfile.TemporaryDirectory(prefix="traincheck-vary-") as scratch:
        objects = Objects(Path(scratch) / "store")
        made = Path(scratch) / "case"
        shutil.copytree(case.folder, made, symlinks=True, ignore=shutil.ignore_patterns(*case.case.ignore))
        _rewrite(made, case.case, drawn)
        _write_toml(made / "case.toml", case.case, drawn)
        _write_example(made / "workspace" / "config.json", drawn)
        about = {
            "canary": drawn.canary, "of": case.case.name, "of_case": sha256(case.hashes(objects)), "seed": seed,
            "modules": drawn.modules, "names": drawn.names, "config": drawn.config,
            "seeds": {name: {str(old): new for old, new in values.items()} for name, values in drawn.seeds.items()},
        }  # fmt: skip
        (made / "private" / "variant.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        _check(made, drawn)
        try:
            shutil.copytree(made, out, symlinks=True, dirs_exist_ok=True)
        except BaseException:
            shutil.rmtree(out, ignore_errors=True)
            raise
    return CaseFolder(out)


def draw(case: Case, variation: Variation, seed: int) -> Draw:
    """What ``seed`` gives for a case, by a generator of its own."""
    drawing = random.Random(f"{case.name} {seed}")

    def chosen(options: Mapping[str, Sequence[T]]) -> dict[str, T]:
        return {name: drawing.choice(list(options[name])) for name in sorted(options)}

    word = f"{drawing.getrandbits(24):06x}"
    modules, names = chosen(variation.modules), chosen(variation.names)
    config = chosen(variation.config)
    seeds = {}
    for field in variation.seeds:
        values = sorted({value for one in case.scenarios if isinstance(value := one.config.get(field), int)})
        seeds[field] = dict(zip(values, drawing.sample(range(1, _SEED_BELOW), len(values)), strict=True))
    return Draw(
        name=f"{case.name}-variant-{word}",
        canary=f"canary-variant-{drawing.getrandbits(80):020x}",
        modules=modules,
        names=names,
        config=config,
        seeds=seeds,
    )


# --- text -------------------------------------------------------------------------------------------------------------


def _texts(folder: Path) -> dict[Path, str]:
    """Text files of a case and what is in them. Raises TraincheckError for one that is not UTF-8."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.suffix in _TEXT and "__pycache__" not in path.parts:
            try:
                found[path] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise TraincheckError(f"{path} is not UTF-8: {error}", "save it as UTF-8") from error
    return found


def _refuse_taken(case: CaseFolder, drawn: Draw) -> None:
    """A name that was drawn must mean nothing else, and one that is to vary must be there."""
    for what in (drawn.modules, drawn.names):
        for new in what.values():
            if sum(other == new for other in what.values()) > 1:
                raise TraincheckError(f"[variation]: {new} was drawn for two names", "names that differ")
    for old in drawn.modules:
        if not (case.workspace / f"{old}.py").is_file():
            raise TraincheckError(f"[variation]: the workspace has no module {old}", "a module of the workspace")
    texts = {path: text for path, text in _texts(case.folder).items() if path.name != "case.toml"}
    for old in drawn.names:
        if not any(_word(old).search(text) for path, text in texts.items() if path.suffix == ".py"):
            raise TraincheckError(f"[variation]: no program has the word {old}", "a word of the code")
    for path, text in texts.items():
        for old, new in drawn.names.items():
            if new != old and _word(new).search(text):
                raise TraincheckError(f"[variation]: {new}, a name for {old}, is in {path} already", "another name")
        whole = _imported_whole(path, text) if path.suffix == ".py" else set()
        for old, new in drawn.modules.items():
            if new != old and path.name == f"{new}.py":
                raise TraincheckError(f"[variation]: {path} is there already, so {old} can't be {new}", "another name")
            if old in whole:
                raise TraincheckError(
                    f"[variation]: {path} imports {old} whole, so its name can't vary",
                    f"from {old} import …, or no other names for {old}",
                )


def _imported_whole(path: Path, text: str) -> set[str]:
    """Modules of ``import …``: what is used of them is told by their name."""
    try:
        tree = ast.parse(text, str(path))
    except SyntaxError as error:
        raise TraincheckError(f"{path} does not compile: {error}", "a case whose programs do") from error
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import))
    return {alias.name.partition(".")[0] for node in imports for alias in node.names}


def _rewrite(folder: Path, case: Case, drawn: Draw) -> None:
    rewrites: list[Callable[[str], str]] = [lambda text: text.replace(case.canary, drawn.canary)]
    for old, new in drawn.names.items():
        rewrites.append(_replacing(_word(old), new))
    for old, new in drawn.modules.items():
        rewrites.append(_replacing(re.compile(rf"(?<![\w.]){re.escape(old)}\.py\b"), f"{new}.py"))
        rewrites.append(_replacing(re.compile(rf"^(\s*from\s+){re.escape(old)}(?=\s+import\b)", re.MULTILINE),
                                   rf"\g<1>{new}"))  # fmt: skip
    for path, text in _texts(folder).items():
        for rewrite in rewrites:
            text = rewrite(text)
        path.write_text(text, encoding="utf-8")
        module = path.stem if path.suffix == ".py" else ""
        if module in drawn.modules:
            path.rename(path.with_name(f"{drawn.modules[module]}.py"))


def _word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")


def _replacing(pattern: re.Pattern[str], by: str) -> Callable[[str], str]:
    return lambda text: pattern.sub(by, text)


# --- configuration ----------------------------------------------------------------------------------------------------


def _configured(config: Mapping[str, Any], drawn: Draw) -> dict[str, Any]:
    found = {**config, **drawn.config}
    for field, values in drawn.seeds.items():
        if field in found:
            found[field] = values.get(found[field], found[field])
    return found


def _write_toml(path: Path, case: Case, drawn: Draw) -> None:
    def varied(scenario: Scenario) -> Scenario:
        return scenario.model_copy(update={"config": _configured(scenario.config, drawn)})

    variant = case.model_copy(
        update={
            "name": drawn.name, "canary": drawn.canary, "variation": None,
            "scenarios": tuple(varied(one) for one in case.scenarios),
        }
    )  # fmt: skip
    try:
        import tomli_w
    except ModuleNotFoundError as error:
        raise TraincheckError("a variant is written with tomli-w, which is not installed",
                              "pip install 'traincheck[pilot]'") from error  # fmt: skip
    told = variant.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    path.write_text(tomli_w.dumps({"schema": case.schema_, **told}), encoding="utf-8")


def _write_example(path: Path, drawn: Draw) -> None:
    """The workspace's own configuration, when it has one."""
    if path.exists():
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise TraincheckError(f"workspace/config.json is no JSON: {error}", "mend it") from error
        config = _configured(there, drawn)
        path.write_text(json.dumps(config) + "\n", encoding="utf-8")


def _check(folder: Path, drawn: Draw) -> None:
    """The variant is a case, its programs compile, and nothing in it bears an old name."""
    CaseFolder(folder)
    for path, text in _texts(folder).items():
        if path in (folder / "case.toml", folder / "private" / "variant.json"):  # prose and what was varied
            continue
        if path.suffix == ".py":
            try:
                compile(text, str(path), "exec")
            except SyntaxError as error:
                where = path.relative_to(folder)
                raise TraincheckError(f"{where} of the variant does not compile: {error}", "another name") from error
        for old, new in drawn.names.items():
            if old != new and _word(old).search(text):
                raise TraincheckError(f"{path.relative_to(folder)} of the variant has {old} still", "another name")
