"""Choosing invariants: by relation, function, tensor, support, or one by one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from traincheck.errors import TraincheckError
from traincheck.invariants import RELATIONS, Clause, Invariant

_ID = re.compile(r"[0-9a-f]{16}")
_SHORTEST_ID = 6
"""Digits by which an id may be given; fewer are a word."""


@dataclass(frozen=True)
class Selection:
    """What an invariant must be to be chosen: one of each kind that is asked for, and none of what is excluded.

    Patterns are globs, case counts. They match a full name or its end from a dot on: ``AdamW.step`` is found in
    ``torch.optim.adamw.AdamW.step``. ``items`` are positions (from 0) or ids.
    """

    relations: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    min_support: int = 0
    min_references: int = 0
    not_relations: tuple[str, ...] = ()
    not_apis: tuple[str, ...] = ()
    not_tensors: tuple[str, ...] = ()
    not_items: tuple[str, ...] = ()

    def choose(self, invariants: Sequence[Invariant]) -> list[int]:
        """Positions of the chosen ones, in order.

        Raises ``TraincheckError`` when a relation is unknown or an item is not among the invariants.
        """
        wanted = set(positions(invariants, self.items)) if self.items else None
        unwanted = set(positions(invariants, self.not_items))
        relations = {relation_name(name) for name in self.relations}
        not_relations = {relation_name(name) for name in self.not_relations}
        return [
            number
            for number, invariant in enumerate(invariants)
            if (wanted is None or number in wanted)
            and number not in unwanted
            and (not relations or invariant.relation in relations)
            and invariant.relation not in not_relations
            and (not self.apis or _any_match(apis_of(invariant), self.apis))
            and not _any_match(apis_of(invariant), self.not_apis)
            and (not self.tensors or _any_match(tensors_of(invariant), self.tensors))
            and not _any_match(tensors_of(invariant), self.not_tensors)
            and (support_of(invariant) or 0) >= self.min_support
            and (references_of(invariant) or 0) >= self.min_references
        ]

    def to_json(self) -> dict[str, Any]:
        """What was asked for, and nothing else."""
        asked = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items() if value}


def relation_name(name: str) -> str:
    """The name as in the file: ``apicontain`` and ``APIContainRelation`` are one. Raises ``TraincheckError``."""
    for known in RELATIONS:
        if name.lower() in (known.lower(), known.removesuffix("Relation").lower()):
            return known
    short = ", ".join(known.removesuffix("Relation") for known in RELATIONS)
    raise TraincheckError(f"unknown relation {name!r}", f"one of {short}")


def positions(invariants: Sequence[Invariant], items: Iterable[str]) -> list[int]:
    """Positions of what positions (from 0) and ids name, in the order given, each once.

    Raises ``TraincheckError`` when there is no such invariant.
    """
    found: dict[int, None] = {}
    for item in items:
        if _ID.fullmatch(item):
            same = [number for number, one in enumerate(invariants) if item in (one.key, one.id)]
            if not same:
                raise TraincheckError(
                    f"no invariant with id {item}", "`traincheck invariants show FILE --json` lists the ids"
                )
            found.update(dict.fromkeys(same))
        elif item.isascii() and item.isdigit():
            if int(item) >= len(invariants):
                there = f"0 to {len(invariants) - 1}" if invariants else "none at all"
                raise TraincheckError(
                    f"no invariant {item}: there are {there}", "`traincheck invariants show FILE` lists them"
                )
            found[int(item)] = None
        else:
            raise TraincheckError(
                f"expected the index or the id (16 of the digits 0-9 and a-f) of an invariant, found {item!r}",
                "`traincheck invariants show FILE` lists them",
            )
    return list(found)


def apis_of(invariant: Invariant) -> list[str]:
    """Full names of the functions it speaks of."""
    names = (getattr(param, name, None) for param in invariant.params for name in ("api_full_name", "api_name"))
    return list(dict.fromkeys(name for name in names if name))


def tensors_of(invariant: Invariant) -> list[str]:
    """Names of the variables, types and attributes it speaks of, also those that its precondition asks for by name."""
    return list(dict.fromkeys(_tensors(invariant)))


def _tensors(invariant: Invariant) -> Iterator[str]:
    for param in invariant.params:
        attribute = getattr(param, "attr_name", None)
        for name in (getattr(param, "var_name", None), getattr(param, "var_type", None)):
            if name:
                yield name
                yield f"{name}.{attribute}"
        kind = getattr(param, "type", None)
        if kind:
            yield kind
    for group in invariant.precondition.values():
        for conj in group.preconditions:
            for clause in conj.clauses:
                if isinstance(clause, Clause) and clause.prop_name == "var_name":
                    yield from (str(value) for value in clause.values or [])


def is_about(invariant: Invariant, subject: str) -> bool:
    """Whether ``subject`` is its id (or the beginning of it), its relation, a name it speaks of, or in its sentence."""
    return (
        (len(subject) >= _SHORTEST_ID and invariant.key.startswith(subject))
        or subject.lower() in (invariant.relation.lower(), invariant.relation.removesuffix("Relation").lower())
        or _any_match([*apis_of(invariant), *tensors_of(invariant)], [subject])
        or subject.lower() in invariant.text_description.lower()
    )


def support_of(invariant: Invariant) -> int | None:
    """How often it applied in its references; in 0.x files, the positive examples. None: the file does not say."""
    return invariant.support.applications if invariant.support is not None else invariant.num_positive_examples


def references_of(invariant: Invariant) -> int | None:
    """In how many runs it applied; None: the file does not say."""
    return invariant.support.references if invariant.support is not None else None


def _any_match(names: Sequence[str], patterns: Sequence[str]) -> bool:
    return any(
        fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}") for pattern in patterns for name in names
    )
