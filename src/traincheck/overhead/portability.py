"""Audit of an invariant set: nothing in it may be true only of the process, machine or moment it was learned from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from traincheck.invariants import Invariant, load_invariants
from traincheck.overhead.artifacts import SCHEMA, sha256_file
from traincheck.trace import Trace, open_trace

_IDENTITY: Final = re.compile(
    r"(^|[._\]])(id|identity|data_id|_TRAINCHECK_data_ID|data_ptr|ptr|handle|pid|ppid|process_id|tid|thread|thread_id"
    r"|ident|time|time_ns|timestamp)$"
)
"""Names of fields and attributes whose values belong to one process or moment."""

_TEXTS: Final = (
    (re.compile(r"\b0x[0-9a-fA-F]{6,16}\b"), "an address"),
    (re.compile(r"^[0-9a-f]{32}$|^[0-9a-f]{64}$"), "a digest of content"),
    (re.compile(r"^/(home|root|tmp|usr|var|opt|work|mnt)/"), "a path of this machine"),
)

_SMALL: Final = 1 << 20
"""Smaller numbers are sizes and counts that identities may equal by chance; process ids are looked up apart."""


def audit(rules: Path, references: Iterable[Path] = ()) -> dict[str, Any]:
    """Constants of an invariant file that are ids, handles, thread or process ids, times, addresses or digests.

    Numbers are also looked up among the identities that the reference traces recorded. ``faults`` is empty when the
    set is portable.
    """
    invariants = load_invariants(rules)
    known = _identities([open_trace(path) for path in references])
    faults: list[dict[str, Any]] = []
    constants = 0
    for number, invariant in enumerate(invariants):
        for where, name, value in _constants(invariant):
            constants += 1
            why = _why(name, value, known)
            if why is not None:
                faults.append(
                    {"index": number, "id": invariant.key, "where": where, "value": str(value)[:200], "why": why}
                )
    return {
        "schema": SCHEMA,
        "file": rules.name,
        "sha256": sha256_file(rules),
        "invariants": len(invariants),
        "constants": constants,
        "identities_of_references": len(known),
        "faults": faults,
    }


def _constants(invariant: Invariant) -> Iterator[tuple[str, str, Any]]:
    """(where, name of what it is a value of, constant) of everything that is compared with a constant."""
    for position, param in enumerate(invariant.params):
        data = param.model_dump(mode="json", exclude_unset=True)
        name = str(data.get("attr_name", ""))
        for field in ("pre_value", "post_value", "const_value"):
            if field in data:
                yield f"params[{position}].{field}", name, data[field]
        arguments = data.get("arguments") or {}
        for argument, typed in (arguments.get("args") or {}).items():
            for value in typed.values():
                yield f"params[{position}].arguments.{argument}", str(argument), value
    for group, precondition in invariant.precondition.items():
        for conjunction in precondition.preconditions:
            if isinstance(conjunction.clauses, str):
                continue
            for clause in conjunction.clauses:
                path = clause.additional_path if isinstance(clause.additional_path, list) else []
                name = ".".join([clause.prop_name, *path])
                for value in clause.values or () if clause.type == "constant" else ():
                    yield f"precondition.{group}.{name}", name, value


def _why(name: str, value: Any, known: dict[int, str]) -> str | None:
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, (list, dict)):
        items = value.values() if isinstance(value, dict) else value
        return next((why for item in items if (why := _why(name, item, known)) is not None), None)
    if _IDENTITY.search(name):
        return f"{name} is an identity or a time"
    if isinstance(value, int):
        return known.get(value) if abs(value) >= _SMALL else None
    if isinstance(value, str):
        if value.lstrip("-").isdigit() and len(value) > 6:
            return _why(name, int(value), known)
        return next((what for pattern, what in _TEXTS if pattern.search(value)), None)
    return None


def _identities(traces: Iterable[Trace]) -> dict[int, str]:
    """Numbers that stand for an object, process or thread in the references."""
    found: dict[int, str] = {}
    for trace in traces:
        for frame in (trace.captures, trace.states):
            for number in frame["identity"].drop_nulls().unique().to_list():
                found[int(number)] = "the id of an object in a reference"
        for process in trace.processes:
            if process.pid is not None:
                found[int(process.pid)] = "a process id of a reference"
    found.pop(0, None)
    return found
