"""Symbols: the names and values that records refer to by number, as lookup tables.

Reads any bytes: what is not a symbol is counted and skipped, what is missing resolves to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from traincheck.trace.jsontext import loads

Symbol = dict[str, Any]

_SMALL: Final = ("thread", "attribute")
_STEP: Final = re.compile(r"args\[(\d+)\]")
_WORD: Final = re.compile(r"kwargs\.([^.\[]+)")


class Lookup:
    """Maps ids to positions in a list of symbols; -1 where there is no such id. Vectorised over numpy arrays."""

    def __init__(self, ids: list[int]) -> None:
        array = np.asarray(ids, dtype=np.int64)
        self._order = np.argsort(array, kind="stable")
        self._sorted = array[self._order]
        self._table: npt.NDArray[np.int64] | None = None
        if len(array) and int(array.max()) <= 8 * len(array) + 65536:  # dense, as writers make it: one gather
            self._table = np.full(int(array.max()) + 2, -1, dtype=np.int64)
            self._table[array] = np.arange(len(array))

    def __call__(self, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Positions of ``ids`` (unsigned), -1 where unknown."""
        if not len(self._sorted):
            return np.full(len(ids), -1, dtype=np.int64)
        if self._table is not None:
            last = len(self._table) - 1  # holds -1
            found: npt.NDArray[Any] = self._table[np.minimum(ids, np.asarray(last, dtype=ids.dtype)).astype(np.int64)]
            return found
        wide = np.minimum(ids, np.asarray(2**62, dtype=np.uint64)).astype(np.int64)
        at = np.minimum(np.searchsorted(self._sorted, wide), len(self._sorted) - 1)
        return np.where(self._sorted[at] == wide, self._order[at], -1)


class Symbols:
    """The symbols of one process.

    ``entries`` are all symbols of the common id space in file order, ``threads`` and ``attributes`` those of the two
    small spaces. ``bad`` counts lines that are no symbols, ``torn`` says whether the last line had no end.
    """

    def __init__(self, symbols: Iterable[Symbol], bad: int = 0, torn: bool = False) -> None:
        self.bad = bad
        self.torn = torn
        spaces: dict[str, dict[int, Symbol]] = {"": {}, "thread": {}, "attribute": {}}
        for symbol in symbols:
            kind, number = symbol.get("k"), symbol.get("id")
            if not isinstance(kind, str) or type(number) is not int or not 0 < number < 2**32:
                self.bad += 1
                continue
            spaces[kind if kind in _SMALL else ""].setdefault(number, symbol)  # the first one counts
        self.entries = list(spaces[""].values())
        self.lookup = Lookup(list(spaces[""]))
        self.threads = spaces["thread"]
        self.attributes = list(spaces["attribute"].values())
        self.attribute_lookup = Lookup(list(spaces["attribute"]))
        self._by_id = spaces[""]

    def get(self, number: Any, kind: str) -> Symbol | None:
        """The symbol of that id, if there is one of that kind."""
        found = self._by_id.get(number) if isinstance(number, int) else None
        return found if found is not None and found["k"] == kind else None


def parse(data: bytes) -> Symbols:
    """Symbols in the bytes of a ``symbols.jsonl``. Never raises."""
    lines = data.split(b"\n")
    torn = bool(lines.pop())  # what follows the last newline
    found: list[Symbol] = []
    bad = 0
    try:
        whole = loads(b"[" + b",".join(lines) + b"]")
        if len(whole) == len(lines) and all(isinstance(item, dict) for item in whole):
            return Symbols(whole, torn=torn)
    except (ValueError, RecursionError):
        pass
    for line in lines:
        try:
            item = loads(line)
        except (ValueError, RecursionError):
            item = None
        if isinstance(item, dict):
            found.append(item)
        else:
            bad += 1
    return Symbols(found, bad=bad, torn=torn)


def parameter_path(path: str, params: list[str] | None) -> str | None:
    """``path`` with the position or keyword of an argument replaced by the parameter's name.

    ``args[0].dtype`` -> ``input.dtype``; ``kwargs.lr`` -> ``lr``; ``self`` and ``ret`` stay; positions that fall into
    ``*args`` are ``args[k]``, counted from its start. None when the parameters are not known.
    """
    word = _WORD.match(path)
    if word is not None:
        return word.group(1) + path[word.end() :]
    step = _STEP.match(path)
    if step is None:
        return path
    if params is None:
        return None
    index = int(step.group(1)) if len(step.group(1)) < 10 else 2**31
    rest = path[step.end() :]
    for position, name in enumerate(params):
        if name.startswith("**"):
            break
        if name.startswith("*"):
            return f"{name[1:]}[{index - position}]{rest}"
        if position == index:
            return name + rest
    return None
