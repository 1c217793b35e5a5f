"""``plan.json``: written whole, read with its hash checked, its case folders found from where it lies."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import ValidationError

from traincheck.errors import TraincheckError
from traincheck.files import write_whole
from traincheck.pilot.cases import CaseFolder
from traincheck.pilot.plan import SCHEMA, Plan
from traincheck.strictjson import dumps


def write(plan: Plan, base: Path, path: Path) -> Plan:
    """Write ``plan``, whose case folders are relative to ``base``, to ``path``; gives it as written.

    The file's case folders are relative to the file's own folder, and its ``hash`` stands in it. Copying a plan into
    a pilot's folder is this too. Raises OSError.
    """
    home = path.parent.resolve()
    moved = {
        name: Path(os.path.relpath((base / folder).resolve(), home)).as_posix() for name, folder in plan.folders.items()
    }
    written = plan.model_copy(update={"folders": moved})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole({path: dumps({"hash": written.hash, **written.model_dump(mode="json", by_alias=True)})})
    return written


def load(path: Path) -> Plan:
    """The plan at ``path``; its case folders are relative to ``path.parent``.

    Raises TraincheckError when it is no plan, of a newer version, or was changed after it was frozen; OSError.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TraincheckError(f"{path} is no plan: {error}", "traincheck pilot plan DRAFT -o plan.json") from error
    if not isinstance(data, dict):
        raise TraincheckError(f"{path} is no plan: it is no JSON object", "traincheck pilot plan DRAFT -o plan.json")
    if isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
        raise TraincheckError(f"{path} has schema {data['schema']}, this TrainCheck reads {SCHEMA}", "upgrade it")
    try:
        plan = Plan.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the plan"
        raise TraincheckError(
            f"{path} is no plan: {place}: {first['msg'].removeprefix('Value error, ')}",
            "restore it, or freeze the draft: traincheck pilot plan DRAFT -o plan.json",
        ) from error
    if "hash" not in data:
        raise TraincheckError(f"{path} does not hold its own hash: it was not frozen", "traincheck pilot plan")
    return plan


def case_folders(plan: Plan, base: Path) -> dict[str, CaseFolder]:
    """The cases of a plan by name; ``base`` is the folder that the plan lies in.

    Raises TraincheckError when one is missing, incomplete, or another case by now.
    """
    found = {}
    for name, folder in plan.folders.items():
        case = CaseFolder(Path(os.path.normpath(base / folder)))
        if case.case.name != name:
            raise TraincheckError(f"{case.folder} was case {name!r} and is {case.case.name!r} now", "restore it")
        found[name] = case
    return found
