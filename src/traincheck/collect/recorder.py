"""The recorder: one process's events and symbols, as the rest of ``collect`` sees them.

A thin face over the compiled core: it hands out numbers for names, and turns state into records. It decides nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from traincheck.collect import _probe
from traincheck.collect.interrupts import hand_on
from traincheck.collect.symbols import Symbols, plain, type_name
from traincheck.events import Mark, Moment

MISS_VALUE, MISS_EXCEPTION, MISS_LOCATION, MISS_TYPE, MISS_TENSOR, MISS_THREAD, MISS_CAPTURE = 4, 8, 9, 10, 11, 100, 101

StateRow = tuple[int, int, int, int, int]
"""(variable, attribute, value kind, low, high)"""


class Recorder:
    """Records into ``directory`` (which exists and is this process's own).

    Raises OSError if nothing can be written there; after that nothing raises: losses are counted.
    """

    def __init__(self, directory: str, segment_bytes: int = 8 << 20, clock: int = -1) -> None:
        self.directory = directory
        self._segment_bytes, self._clock = segment_bytes, clock
        self._symbols = Symbols(os.path.join(directory, "symbols.jsonl"))
        self._attributes: dict[str, int] = {}
        self._variables: dict[tuple[str, str, str], int] = {}
        self._faults: dict[str, list[Any]] = {}
        try:
            _probe.open(directory, self._segment_size(), self._miss, clock)
        except BaseException:
            self._symbols.abandon()
            raise

    # --- names -------------------------------------------------------------------------------------------------------

    def function(self, name: str, kind: str, params: list[str] | None) -> int:
        """Number of a function about to be probed."""
        return self._symbols.add("function", name=name, kind=kind, params=params)

    def capture(self, function: int, moment: str, path: str) -> int:
        """Number of a capture of ``function``; ``moment`` is ``in`` or ``out``."""
        return self._symbols.add("capture", function=function, moment=moment, path=path)

    def variable(self, name: str, role: str, type: str, owner: str, **facts: Any) -> int:
        """Number of a tracked tensor or object; the same (name, role, owner) keeps its number."""
        key = (name, role, owner)
        number = self._variables.get(key)
        if number is None:
            number = self._symbols.add("variable", name=name, role=role, type=type, owner=owner, **facts)
            self._variables[key] = number
        return number

    def attribute(self, name: str) -> int:
        """Number of an attribute of variables."""
        number = self._attributes.get(name)
        if number is None:
            number = self._attributes[name] = self._symbols.add("attribute", name=name)
        return number

    def symbol(self, value: object) -> int:
        """Number of an interned value (a string, a dtype, a shape, ...)."""
        return _probe.symbol(value)

    def encode(self, value: object) -> tuple[int, int, int]:
        """(value kind, low, high) of any value."""
        return _probe.encode(value)

    # --- events ------------------------------------------------------------------------------------------------------

    def observe(self, reason: str, call: int = 0, moment: Moment = Moment.ALONE) -> int:
        """Begin an observation; its number is what ``states`` takes."""
        return _probe.observe(int(moment), _probe.symbol(reason), call)

    def states(self, observation: int, rows: Sequence[StateRow]) -> None:
        """Append what was seen in an observation."""
        _probe.states(observation, rows)

    def mark(self, kind: Mark, text: str | None = None, a: int = 0, b: int = 0) -> None:
        """Append a mark; ``text`` is interned."""
        _probe.mark(int(kind), 0 if text is None else _probe.symbol(text), a, b)

    # --- bookkeeping -------------------------------------------------------------------------------------------------

    @staticmethod
    def view(address: int, nbytes: int) -> memoryview:
        """Read-only memory at ``address``; the caller keeps its owner alive."""
        return _probe.view(address, nbytes)

    def fault(self, where: str, error: BaseException | str) -> None:
        """Count a fault of ours; the first message is kept. What a signal handler raised is handed on instead."""
        if isinstance(error, Exception) and hand_on(error):
            return
        seen = self._faults.get(where)
        if seen is None:
            text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
            self._faults[where] = [text[:500], 1]
        else:
            seen[1] += 1

    def faults(self) -> list[dict[str, Any]]:
        """All faults of ours, the compiled core's included: at most 64 places, each with the first 500 characters."""
        ours = [(where, text, count) for where, (text, count) in self._faults.items()]
        found = [*ours, *_probe.faults()]
        shown, rest = found[:64], found[64:]
        if rest:
            shown.append((f"{len(rest)} more places", "", sum(count for _, _, count in rest)))
        return [{"where": w[:500], "error": (e or "")[:500], "count": n} for w, e, n in shown]

    def losses(self) -> dict[str, Any]:
        """How much was written and how much was lost, and why."""
        return {
            "records": _probe.records(),
            "dropped": _probe.dropped(),
            "symbols_lost": self._symbols.lost,
            "reason": _probe.last_error() or self._symbols.error,
        }

    def close(self) -> None:
        """Cut the files to their length. Idempotent. First the events: that makes room for symbols on a full disk."""
        _probe.close()
        self._symbols.close()

    def symbols_length(self) -> int:
        """Bytes of the symbols file written so far."""
        return self._symbols.length

    def abandon(self) -> None:
        """In a forked child: let go of the parent's files."""
        _probe.abandon()
        self._symbols.abandon()

    def reopen(self, directory: str, parent_symbols: str, length: int) -> None:
        """In a forked child, after ``abandon``: go on in ``directory``, keeping the numbers that the parent gave.

        Raises OSError, with nothing open.
        """
        self.directory = directory
        self._symbols.reopen(os.path.join(directory, "symbols.jsonl"), parent_symbols, length)
        try:
            _probe.open(directory, self._segment_size(), self._miss, self._clock)
        except BaseException:
            self._symbols.abandon()
            raise

    def _segment_size(self) -> int:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return self._segment_bytes if limit == resource.RLIM_INFINITY else max(4096, min(self._segment_bytes, limit))

    # --- interning (called by the core, muted)
    # -------------------------------------------------------------------------

    def _miss(self, kind: int, obj: Any) -> int:
        if kind == MISS_CAPTURE:
            function, moment, path = obj
            return self._symbols.add("capture", function=function, moment="out" if moment else "in", path=path)
        if kind == MISS_THREAD:
            return self._symbols.add("thread", ident=obj, name=_thread_name(obj))
        if kind == MISS_LOCATION:
            file, line, function = obj
            return self._symbols.add("location", file=file, line=line, function=function)
        if kind in (MISS_TYPE, MISS_EXCEPTION):
            return self._symbols.add("value", type="type", v=type_name(obj) if isinstance(obj, type) else str(obj))
        if kind == MISS_TENSOR:
            return self._symbols.add("tensor", **tensor_facts(obj))
        value_type, value = plain(obj)
        return self._symbols.add("value", type=value_type, v=value)


def tensor_facts(tensor: Any) -> dict[str, Any]:
    """What a tensor descriptor says: type, dtype, shape, device, requires_grad, is_leaf, layout; for a DTensor its
    sharding too.
    """
    from torch._C import DisableTorchFunctionSubclass

    with DisableTorchFunctionSubclass():
        facts: dict[str, Any] = {
            "type": type_name(type(tensor)),
            "dtype": str(tensor.dtype),
            "shape": [int(n) if isinstance(n, int) else str(n) for n in tensor.shape],
            "device": str(tensor.device),
            "requires_grad": bool(tensor.requires_grad),
            "is_leaf": bool(tensor.is_leaf),
            "layout": str(tensor.layout),
        }
        spec = getattr(tensor, "_spec", None)
        if spec is not None and hasattr(tensor, "_local_tensor"):
            facts["placements"] = [str(p) for p in spec.placements]
            facts["mesh"] = [int(n) for n in spec.mesh.shape]
            facts["local_shape"] = [int(n) for n in tensor._local_tensor.shape]
    return facts


def _thread_name(ident: int) -> str:
    import threading

    for thread in threading.enumerate():
        if thread.ident == ident:
            return thread.name
    return "native"
