"""Invariants and files made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traincheck.invariants import Invariant, parse_invariant, save_invariants

ALWAYS = {"inverted": False, "preconditions": [{"clauses": "Unconditional"}]}


def when(stage: str) -> dict[str, Any]:
    """A precondition group: the stage is this."""
    clause = {"type": "constant", "prop_name": "meta_vars.stage", "prop_dtype": "str", "values": [stage]}
    return {"inverted": False, "preconditions": [{"clauses": [clause]}]}


def contain(parent: str, child: str, group: dict[str, Any] = ALWAYS, **support: int) -> Invariant:
    """``parent`` always calls ``child``; support is (applications, steps, ranks, references)."""
    return _made(parent, {"param_type": "APIParam", "api_full_name": child}, group, support)


def changes(parent: str, attribute: str, group: dict[str, Any] = ALWAYS, **support: int) -> Invariant:
    """``parent`` changes an attribute of parameters."""
    child = {"param_type": "VarTypeParam", "var_type": "torch.nn.Parameter", "attr_name": attribute, "pre_value": None}
    return _made(parent, child, group, support)


def _made(parent: str, child: dict[str, Any], group: dict[str, Any], support: dict[str, int]) -> Invariant:
    what = child.get("api_full_name") or f"{child['var_type']}.{child['attr_name']}"
    data: dict[str, Any] = {
        "text_description": f"{parent} > {what}",
        "relation": "APIContainRelation",
        "params": [{"param_type": "APIParam", "api_full_name": parent}, child],
        "precondition": {"parent_func_call_pre": group},
    }
    if support:
        data["support"] = {"applications": 1, "steps": 1, "ranks": 1, "references": 1, **support}
    return parse_invariant(json.dumps(data))


def saved(path: Path, *invariants: Invariant, runs: tuple[str, ...] = ()) -> Path:
    """A file, with provenance when ``runs`` are given."""
    save_invariants(invariants, path, {"references": [{"run": run} for run in runs]} if runs else None)
    return path
