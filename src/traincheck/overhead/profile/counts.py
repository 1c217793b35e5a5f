"""What the training thread recorded in each window: calls, captures by kind of value, segments. From the trace."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from traincheck.errors import TraincheckError
from traincheck.events import HEADER_SIZE, RECORD_SIZE, Kind, Value
from traincheck.overhead.profile.calibrate import ATTRIBUTE, BUILTIN, PYTHON

_LAYOUT: Final = np.dtype(
    {
        "names": ["kind", "flag", "thread", "id"],
        "formats": ["u1", "u1", "<u2", "<u4"],
        "offsets": [0, 1, 2, 4],
        "itemsize": RECORD_SIZE,
    }
)
_OF_ATTRIBUTE: Final = re.compile(r"(args\[\d+\]|kwargs\.\w+|self|ret)(\[[^]]*\])*\.\w")
_BUILT_IN: Final = ("builtin", "c_method", "autograd_apply")

Array = npt.NDArray[Any]


class Recorded:
    """The records of one process of a trace. ``ident``: of its training thread; ``held``: records of a segment."""

    def __init__(self, folder: Path, ident: int, held: int) -> None:
        self._held = held
        self._builtin: set[int] = set()
        self._attributes: set[int] = set()
        threads: list[int] = []
        for line in (folder / "symbols.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if entry["k"] == "function" and entry["kind"] in _BUILT_IN:
                self._builtin.add(int(entry["id"]))
            elif entry["k"] == "capture" and _OF_ATTRIBUTE.match(entry["path"]):
                self._attributes.add(int(entry["id"]))
            elif entry["k"] == "thread" and entry["ident"] == ident:
                threads.append(int(entry["id"]))
        if len(threads) != 1:
            raise TraincheckError(f"the training thread is not to be found in {folder}: {len(threads)} threads fit")
        self._thread = threads[0]
        self._records = _all_records(folder)

    def window(self, first: int, end: int) -> dict[str, Any]:
        """Counts of the records from ``first`` to before ``end``."""
        held = self._held
        records = self._records[first:end]
        own = records[records["thread"] == self._thread]
        begins, captures = own[own["kind"] == Kind.BEGIN], own[own["kind"] == Kind.CAPTURE]
        builtin = int(np.isin(begins["id"], list(self._builtin)).sum())
        attributes = np.isin(captures["id"], list(self._attributes))
        kinds = Counter(Value(kind).name.lower() for kind in captures["flag"][~attributes].tolist())
        kinds[ATTRIBUTE] = int(attributes.sum())
        # A STATE record has an attribute where others have their thread: the training thread observes.
        timed = np.isin(records["kind"], [Kind.BEGIN, Kind.END, Kind.CAPTURE])
        return {
            "records": int(end - first),
            "calls": {PYTHON: len(begins) - builtin, BUILTIN: builtin},
            "captures": {kind: count for kind, count in sorted(kinds.items()) if count},
            "states": int((records["kind"] == Kind.STATE).sum()),
            "segments": (end - 1) // held - (first - 1) // held if end > first > 0 else 0,
            "other_threads": int((records["thread"][timed] != self._thread).sum()),
        }


def mean(windows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of an average window."""
    found: dict[str, Any] = {}
    for name in ("records", "states", "segments", "other_threads"):
        found[name] = sum(window[name] for window in windows) / len(windows)
    for name in ("calls", "captures"):
        kinds = {kind for window in windows for kind in window[name]}
        found[name] = {
            kind: sum(window[name].get(kind, 0) for window in windows) / len(windows) for kind in sorted(kinds)
        }
    return found


def _all_records(folder: Path) -> Array:
    parts = []
    for path in sorted(folder.glob("events-*.tcev")):
        data = path.read_bytes()
        count = (len(data) - HEADER_SIZE) // RECORD_SIZE
        parts.append(np.frombuffer(data, _LAYOUT, count=count, offset=HEADER_SIZE))
    if not parts:
        raise TraincheckError(f"there are no events in {folder}", "its process.json says why")
    return np.concatenate(parts)
