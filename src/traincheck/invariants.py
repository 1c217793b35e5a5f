"""The invariant model and its file: JSON lines of the 0.x schema, validated, with a few fields of our own.

A file is data: it is parsed as JSON, checked field by field and never evaluated. It is loaded whole or not at all.
Provenance (which runs the invariants come from) stands beside the file, in ``FILE.provenance.json``, so that every line
of the file is an invariant and nothing else. Nothing here knows what a relation means.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from traincheck.errors import TraincheckError
from traincheck.files import write_whole

SCHEMA: Final = 1
"""Version of our fields in a line, and of the provenance file."""

UNCONDITIONAL: Final = "Unconditional"

GENERALISED: Final = ("above_zero", "below_zero", "non_positive", "non_negative", "non_zero", "non_none", "anything")
"""Names that stand for a class of values: in variable parameters (0.x schema) and in ``generalised`` clauses."""


class InvariantFileError(TraincheckError):
    """A line of an invariant file is not an invariant. ``path``, ``line`` (from 1) and ``field`` say where."""

    def __init__(self, path: str, line: int, where: str, problem: str, hint: str | None = None) -> None:
        place = f"{path}, line {line}" + (f", field {where}" if where else "")
        super().__init__(f"{place}: {problem}", hint or "nothing was loaded; correct the line or take it out")
        self.path = path
        self.line = line
        self.field = where


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class Arguments(_Model):
    """Constant arguments of an API: argument name -> value object ``{type name: value}``."""

    args: dict[str, dict[str, JsonValue]]
    func_name: str


class APIParam(_Model):
    """A function, by full name. With ``exception``: calls that raised exactly that type; else calls that returned."""

    param_type: Literal["APIParam"]
    api_full_name: Annotated[str, Field(min_length=1)]
    exception: str | None = None
    arguments: Arguments | None = None


class VarTypeParam(_Model):
    """An attribute of the variables of a type. Values are constants, null (None) or one of ``GENERALISED``.

    A value that was never set is different from null: ask ``is_set``.
    """

    param_type: Literal["VarTypeParam"]
    var_type: Annotated[str, Field(min_length=1)]
    attr_name: Annotated[str, Field(min_length=1)]
    pre_value: JsonValue = None
    post_value: JsonValue = None
    const_value: JsonValue = None

    def is_set(self, name: Literal["pre_value", "post_value", "const_value"]) -> bool:
        """Whether the value was given, be it null."""
        return name in self.model_fields_set


class VarNameParam(_Model):
    """As ``VarTypeParam``, for the variables of one name."""

    param_type: Literal["VarNameParam"]
    var_type: Annotated[str, Field(min_length=1)]
    var_name: Annotated[str, Field(min_length=1)]
    attr_name: Annotated[str, Field(min_length=1)]
    pre_value: JsonValue = None
    post_value: JsonValue = None
    const_value: JsonValue = None

    def is_set(self, name: Literal["pre_value", "post_value", "const_value"]) -> bool:
        """Whether the value was given, be it null."""
        return name in self.model_fields_set


class InputOutputParam(_Model):
    """A place in the inputs or outputs of an API."""

    param_type: Literal["InputOutputParam"]
    name: str
    index: int | None
    type: str
    additional_path: list[str | int] | None
    api_name: str
    is_input: bool


Param = Annotated[APIParam | VarTypeParam | VarNameParam | InputOutputParam, Field(discriminator="param_type")]
VarParam = VarTypeParam | VarNameParam

_API, _VAR, _IO = "APIParam", "VarTypeParam or VarNameParam", "InputOutputParam"
_ACCEPTS: Final = {_API: ("APIParam",), _VAR: ("VarTypeParam", "VarNameParam"), _IO: ("InputOutputParam",)}

RELATIONS: Final[dict[str, tuple[tuple[str, ...], ...] | None]] = {
    "APIContainRelation": ((_API, _API), (_API, _VAR)),
    "ConsistencyRelation": ((_VAR, _VAR),),
    "ConsistentOutputRelation": ((_API, _VAR),),
    "ConsistentInputOutputRelation": ((_IO, _API, _IO),),
    "FunctionLeadRelation": None,
    "FunctionCoverRelation": None,
    "DistinctArgumentRelation": ((_API,),),
    "ThresholdRelation": ((_IO, _API, _IO),),
}
"""Relation name -> the parameter shapes it accepts (None: a chain of two or more APIs)."""


class Clause(_Model):
    """One condition on a property of the records of an example. Meaning: docs/relations.md, *Preconditions*."""

    type: Literal["constant", "consistent", "unequal", "exist", "generalised"]
    prop_name: Annotated[str, Field(min_length=1)]
    additional_path: Literal["None"] | list[str] | None = None
    prop_dtype: str | None = None
    values: list[JsonValue] | None = None

    @model_validator(mode="after")
    def _values_fit(self) -> Clause:
        needs = self.type in ("constant", "generalised")
        if needs != bool(self.values):
            raise ValueError(f"a {self.type} clause {'needs' if needs else 'has no'} values")
        if self.type == "generalised" and any(value not in GENERALISED for value in self.values or []):
            raise ValueError(f"values of a generalised clause are among {', '.join(GENERALISED)}")
        return self


class Conjunction(_Model):
    """All of these clauses, or the word ``Unconditional``."""

    clauses: Literal["Unconditional"] | list[Clause]

    @field_validator("clauses")
    @classmethod
    def _not_empty(cls, clauses: str | list[Clause]) -> str | list[Clause]:
        if not clauses:
            raise ValueError("expected at least one clause, or Unconditional")
        return clauses


class Group(_Model):
    """One of these conjunctions; the opposite when ``inverted``."""

    inverted: bool = False
    preconditions: list[Conjunction]

    @model_validator(mode="after")
    def _unconditional_alone(self) -> Group:
        if len(self.preconditions) > 1 and any(conj.clauses == UNCONDITIONAL for conj in self.preconditions):
            raise ValueError("Unconditional must be the only precondition of its group")
        return self

    @property
    def unconditional(self) -> bool:
        """Whether it always holds."""
        return not self.inverted and [conj.clauses for conj in self.preconditions] == [UNCONDITIONAL]


Precondition = dict[str, Group]

ALWAYS: Final = Group(inverted=False, preconditions=[Conjunction(clauses="Unconditional")])


class Support(_Model):
    """How sure an invariant is: counted on its references."""

    applications: int
    """How often it applied (calls, pairs, (call, variable) combinations)."""
    excluded: int = 0
    """Counter-examples that the precondition keeps out."""
    steps: int
    """Different training steps (over all references) in which it applied."""
    ranks: int
    """Processes in which it applied."""
    references: int
    """Runs in which it applied."""


class Equivalent(_Model):
    """An invariant that was folded into another: a run that breaks it breaks that one, or one it leads to."""

    id: str
    text_description: str


class Invariant(_Model):
    """A relation with its parameters and the precondition under which it must hold.

    ``schema``, ``id``, ``support`` and ``equivalents`` are ours and absent from 0.x files.
    """

    text_description: str
    relation: str
    params: Annotated[list[Param], Field(min_length=1)]
    precondition: Precondition
    num_positive_examples: int | None = None
    num_negative_examples: int | None = None
    schema_version: Annotated[int | None, Field(alias="schema")] = None
    id: str | None = None
    support: Support | None = None
    equivalents: list[Equivalent] | None = None

    @model_validator(mode="after")
    def _shape(self) -> Invariant:
        if self.relation not in RELATIONS:
            raise ValueError(f"relation: unknown relation {self.relation!r}; known are {', '.join(RELATIONS)}")
        kinds = [param.param_type for param in self.params]
        shapes = RELATIONS[self.relation]
        if shapes is None:
            if len(kinds) < 2 or any(kind != "APIParam" for kind in kinds):
                raise ValueError(f"params: {self.relation} takes two or more APIParam, found {', '.join(kinds)}")
        elif not any(_fits(kinds, shape) for shape in shapes):
            wanted = " or ".join("[" + ", ".join(shape) + "]" for shape in shapes)
            raise ValueError(f"params: {self.relation} takes {wanted}, found [{', '.join(kinds)}]")
        if self.schema_version is not None and self.schema_version > SCHEMA:
            raise ValueError(f"schema: version {self.schema_version} is newer than this TrainCheck reads ({SCHEMA})")
        return self

    @property
    def key(self) -> str:
        """Sixteen hex digits that identify relation, parameters and precondition, whatever the order of clauses."""
        return hashlib.sha256(_compact(_canonical(self)).encode("ascii")).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The object of the file. What was never set is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _fits(kinds: Sequence[str], shape: Sequence[str]) -> bool:
    return len(kinds) == len(shape) and all(kind in _ACCEPTS[wanted] for kind, wanted in zip(kinds, shape, strict=True))


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _plain(value: Any) -> Any:
    """The value with whole floats as integers: 3.0 and 3 are one value."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _canonical(invariant: Invariant) -> dict[str, Any]:
    params = []
    for param in invariant.to_json()["params"]:
        params.append({k: _plain(v) for k, v in param.items() if not (k == "arguments" and v is None)})
    groups: dict[str, Any] = {}
    for name, group in invariant.precondition.items():
        any_of: list[Any] = []
        for conj in group.preconditions:
            if isinstance(conj.clauses, str):
                any_of.append(conj.clauses)
                continue
            clauses = []
            for clause in conj.clauses:
                data = {k: _plain(v) for k, v in clause.model_dump(mode="json", exclude_unset=True).items()}
                if data.get("additional_path", "None") in (None, "None"):
                    data.pop("additional_path", None)
                if data.get("values") is None:
                    data.pop("values", None)
                else:
                    data["values"] = sorted(data["values"], key=_compact)
                clauses.append(data)
            any_of.append(sorted(clauses, key=_compact))
        groups[name] = {"inverted": group.inverted, "any_of": sorted(any_of, key=_compact)}
    return {"relation": invariant.relation, "params": params, "precondition": groups}


@dataclass(frozen=True)
class InvariantSet(Sequence[Invariant]):
    """Invariants in file order. ``places[i]`` is (file, line from 1) of the i-th; empty when they were in no file."""

    invariants: tuple[Invariant, ...]
    places: tuple[tuple[str, int], ...] = ()
    provenance: tuple[dict[str, Any], ...] = field(default=(), compare=False)

    def __len__(self) -> int:
        return len(self.invariants)

    def __getitem__(self, index: Any) -> Any:
        return self.invariants[index]

    def __iter__(self) -> Iterator[Invariant]:
        return iter(self.invariants)


def load_invariants(*paths: str | Path) -> InvariantSet:
    """Read invariant files (``.gz`` too), concatenated in the order given.

    Raises ``InvariantFileError`` with file, line and field, or ``TraincheckError`` when a file cannot be read.
    """
    invariants: list[Invariant] = []
    places: list[tuple[str, int]] = []
    provenance: list[dict[str, Any]] = []
    for path in map(Path, paths):
        for number, line in enumerate(_text(path).split("\n"), start=1):
            if line.strip():
                invariants.append(parse_invariant(line, str(path), number))
                places.append((str(path), number))
        beside = provenance_path(path)
        if beside.exists():
            provenance.append(_load_provenance(beside))
    return InvariantSet(tuple(invariants), tuple(places), tuple(provenance))


def parse_invariant(line: str, path: str = "<text>", number: int = 1) -> Invariant:
    """One line of an invariant file. Raises ``InvariantFileError``."""
    try:
        data = json.loads(line, object_pairs_hook=once)
    except RecursionError:
        raise InvariantFileError(path, number, "", "nested too deeply") from None
    except RepeatedKeyError as error:
        raise InvariantFileError(path, number, error.key, "expected once in an object, found twice") from None
    except ValueError as error:
        hint = "an invariant file has one JSON object a line" if line.strip() in ("[", "{") else None
        raise InvariantFileError(path, number, "", f"not JSON: {error}", hint) from None
    if not isinstance(data, dict):
        raise InvariantFileError(path, number, "", f"expected a JSON object, found {type(data).__name__}")
    if "reason" in data and "date" in data:
        raise InvariantFileError(path, number, "", "this is a line of suppressions, not an invariant")
    if "failed_reason" in data or "reason" in data:
        raise InvariantFileError(path, number, "", "this is a line of rejected candidates, not an invariant")
    version = data.get("schema")
    if isinstance(version, int) and version > SCHEMA:
        # Said before anything else: the other complaints about a future line would mislead.
        problem = f"version {version} is newer than this TrainCheck reads ({SCHEMA})"
        raise InvariantFileError(path, number, "schema", problem, "update TrainCheck")
    try:
        return Invariant.model_validate(data)
    except ValidationError as error:
        where, problem = _first_problem(error)
        raise InvariantFileError(path, number, where, problem) from None


class RepeatedKeyError(ValueError):
    """An object of JSON says something twice: which of the two is meant, nobody knows."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs, for ``json.loads``. Raises ``RepeatedKeyError``."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return found


_KINDS: Final = frozenset(("APIParam", "VarTypeParam", "VarNameParam", "InputOutputParam"))
_TAGS: Final = _KINDS | {"literal['Unconditional']"}


def _first_problem(error: ValidationError) -> tuple[str, str]:
    first = error.errors(include_url=False)[0]
    steps = [step for step in first["loc"] if step not in _TAGS and not str(step).startswith("list[")]
    if first["type"] == "recursion_loop" or first["msg"].startswith("Recursion error"):
        return ".".join(map(str, steps[:3])), "nested too deeply"
    where = ".".join(str(step) for step in steps)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        message = "required, but missing"
    elif first["type"] == "extra_forbidden":
        message = "unknown field"
    elif first["type"].startswith("union_tag"):
        kind = first["input"].get("param_type") if isinstance(first["input"], dict) else first["input"]
        message = f"expected a param_type among {', '.join(sorted(_KINDS))}, found {_short(kind)}"
    elif message.startswith("Input should be "):
        message = f"expected {message.removeprefix('Input should be ')}, found {_short(first['input'])}"
    elif not where and ": " in message:
        where, message = message.split(": ", 1)
    return where, message


def _short(value: Any) -> str:
    """A value of JSON in few characters."""
    if isinstance(value, (dict, list)) and value:
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return raw.decode("utf-8-sig")  # editors may put a byte order mark before the first line
    except FileNotFoundError:
        raise TraincheckError(f"expected an invariant file, but there is nothing at {path}") from None
    except IsADirectoryError:
        raise TraincheckError(f"expected an invariant file, but {path} is a folder") from None
    except UnicodeDecodeError as error:
        raise TraincheckError(f"{path} is not an invariant file: not UTF-8 text (byte {error.start})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraincheckError(
            f"{path} is not an invariant file: its gzip data are cut or damaged ({error})", "copy or make it again"
        ) from None
    except OSError as error:
        raise TraincheckError(f"cannot read {path}: {error.strerror or error}") from None


def dump_invariants(invariants: Iterable[Invariant]) -> str:
    """The text of an invariant file, lines in the order given."""
    return "".join(json.dumps(invariant.to_json(), ensure_ascii=False) + "\n" for invariant in invariants)


def save_invariants(
    invariants: Iterable[Invariant], path: str | Path, provenance: dict[str, Any] | None = None
) -> None:
    """Write an invariant file, and its provenance beside it when given. Raises ``TraincheckError`` (unwritable)."""
    write_files(invariants, path, provenance)


def write_files(
    invariants: Iterable[Invariant],
    path: str | Path,
    provenance: dict[str, Any] | None = None,
    beside: Mapping[str, str] | None = None,
) -> None:
    """As ``save_invariants``, with other files ``beside`` it: ending -> text. All of them are written, or none.

    Beside what is no ordinary file (``/dev/stdout``, a pipe) nothing is written.
    Raises ``TraincheckError`` (unwritable).
    """
    target = Path(path)
    text = dump_invariants(invariants)
    files = {target: text}
    if provenance is not None:
        header = {
            "schema": SCHEMA,
            "sha256": hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest(),
            **provenance,
        }
        files[provenance_path(target)] = json.dumps(header, indent=2, ensure_ascii=False) + "\n"
    files.update({target.with_name(target.name + ending): other for ending, other in (beside or {}).items()})
    if target.exists() and not target.is_file():  # /dev/stdout, a pipe: nothing stands beside it
        files = {target: text}
    try:
        write_whole(files)
    except OSError as error:
        raise TraincheckError(
            f"cannot write {target}: {error.strerror or error}", "choose another place with -o"
        ) from None


def provenance_path(path: str | Path) -> Path:
    """Where the provenance of an invariant file stands: ``good.jsonl`` -> ``good.jsonl.provenance.json``."""
    target = Path(path)
    return target.with_name(target.name + ".provenance.json")


def _load_provenance(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TraincheckError(
            f"{path} is not a provenance file: {error}", "delete it: the invariants do not need it"
        ) from None
    if not isinstance(data, dict) or type(data.get("schema")) is not int:
        raise TraincheckError(f"{path} is not a provenance file", "delete it: the invariants do not need it")
    if data["schema"] > SCHEMA:
        raise TraincheckError(
            f"{path}: version {data['schema']} is newer than this TrainCheck reads ({SCHEMA})", "update TrainCheck"
        )
    return data
