"""Capture paths: ``args[0].dtype``, ``kwargs.lr``, ``self``, ``ret[1].shape``, ``input.requires_grad`` -> steps that
the core follows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

_TOKEN = re.compile(r"\.([A-Za-z_]\w*)|\[(-?\d+)\]|\['([^']*)'\]")


def compile_path(path: str, params: Sequence[str] | None) -> tuple[str, tuple[tuple[Any, ...], ...]]:
    """(moment, steps) of a capture path. A parameter's name stands for its position or keyword.

    Raises ValueError for a path that cannot be read.
    """
    head = re.match(r"[A-Za-z_]\w*", path)
    if head is None:
        raise ValueError(f"a capture path begins with args, kwargs, self, ret or a parameter's name, not {path!r}")
    root, rest = head.group(), path[head.end() :]
    steps: list[tuple[Any, ...]] = []
    position = 0
    while position < len(rest):
        match = _TOKEN.match(rest, position)
        if match is None:
            raise ValueError(
                f"can't read {rest[position:]!r} in the capture path {path!r}: .name, [0] or ['key'] goes on a path"
            )
        attribute, index, key = match.groups()
        steps.append(
            ("attr", attribute) if attribute is not None else ("item", int(index) if index is not None else key)
        )
        position = match.end()
    names = positional(params or ())
    if root == "ret":
        return "out", (("ret",), *steps)
    if root == "self":
        return "in", (("self",), *steps)
    if root == "args" and steps and steps[0][0] == "item":
        index = int(steps[0][1])
        return "in", (("arg", index, names[index] if 0 <= index < len(names) else None), *steps[1:])
    if root == "kwargs" and steps and steps[0][0] in ("attr", "item"):
        name = str(steps[0][1])
        if name in names:
            return "in", (("arg", names.index(name), name), *steps[1:])
        return "in", (("kw", name), *steps[1:])
    if root in names:
        return "in", (("arg", names.index(root), root), *steps)
    return "in", (("kw", root), *steps)


def positional(params: Sequence[str]) -> list[str]:
    """Parameters that a position stands for: what comes after ``*args`` is given by keyword only."""
    return list(takewhile(lambda name: not name.startswith("*"), params))
