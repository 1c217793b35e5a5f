"""TOML files that people write: every fault is named, with the field and what was found, and nothing unknown passes."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from traincheck.errors import TraincheckError

M = TypeVar("M", bound=BaseModel)


def read(path: Path, what: str, hint: str) -> dict[str, Any]:
    """The TOML at ``path``. ``what`` names such a file ("a study file"). Raises TraincheckError, OSError."""
    try:
        return parsed(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise TraincheckError(f"{path} is not {what}: it is not UTF-8", "write it as TOML") from error
    except ValueError as error:
        raise TraincheckError(f"{path} is not TOML: {error}", hint) from error


def parsed(text: str) -> dict[str, Any]:
    """The TOML of a text. Raises ValueError."""
    tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    data: dict[str, Any] = tomllib.loads(text)
    return data


def validated(model: type[M], data: dict[str, Any], name: str, *, newest: int, see: str) -> M:
    """``data`` as a ``model``. Raises TraincheckError that names the file (``name``) and every field that is wrong.

    ``newest`` is the highest ``schema`` that is read, ``see`` the page that explains the fields.
    """
    version = data.get("schema")
    if isinstance(version, int) and version > newest:
        raise TraincheckError(f"{name} has schema {version}, this TrainCheck reads {newest}", "upgrade TrainCheck")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise TraincheckError(f"{name}: {'; '.join(map(_told, error.errors()))}", f"see {see}") from error


def _told(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"]) or "the file"
    if fault["type"] == "extra_forbidden":
        return f"{place}: there is no such field"
    if fault["type"] == "missing":
        return f"{place}: this field is missing"
    return f"{place}: {fault['msg'].removeprefix('Value error, ')}, found {fault['input']!r:.80}"
