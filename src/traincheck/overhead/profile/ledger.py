"""Exclusive CPU time by component, of one thread at a time: at any moment one component pays.

A thread's books are its own: what other threads do is in theirs and never in those of the training thread. The clock is
the thread's CPU time, so waiting and other processes do not count.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from traincheck.overhead.profile import components
from traincheck.overhead.profile.components import APPLICATION, ENTRANCES, TIMED

Clock = Callable[[], int]
_NUMBER = {name: number for number, name in enumerate(TIMED)}
_BOTTOM = _NUMBER[APPLICATION]


class Books:
    """What one thread spent in each of ``TIMED``, in ns; spans entered, and spans entered from it."""

    __slots__ = ("at", "left", "open", "spans", "spent")

    def __init__(self, now: int) -> None:
        self.open = [_BOTTOM]
        self.at = now
        self.clear()

    def clear(self) -> None:
        """Begin anew; what is open stays open."""
        self.spent = [0] * len(TIMED)
        self.spans = [0] * len(TIMED)
        self.left = [0] * len(TIMED)


class Ledger:
    """The books of all threads, and the wrapping of functions that keeps them."""

    def __init__(self, clock: Clock = time.thread_time_ns) -> None:
        self._clock = clock
        self._books: dict[int, Books] = {}
        self.undo: list[Callable[[], None]] = []

    def books(self) -> Books:
        """Those of the calling thread."""
        ident = get_ident()
        books = self._books.get(ident)
        if books is None:
            books = self._books[ident] = Books(self._clock())
        return books

    def others(self) -> dict[str, float]:
        """Seconds in spans of all threads but the calling one, by component; the time between their spans is not ours
        to tell.
        """
        rest = [books for ident, books in list(self._books.items()) if ident != get_ident()]
        found = {name: sum(books.spent[_NUMBER[name]] for books in rest) / 1e9 for name in TIMED if name != APPLICATION}
        return {name: seconds for name, seconds in found.items() if seconds}

    def begin(self) -> int:
        """A window begins on the calling thread, with the application at work; gives the clock."""
        books = self.books()
        books.clear()
        books.at = now = self._clock()
        return now

    def end(self) -> tuple[int, Books]:
        """It ends: the clock, and the books up to it. Raises RuntimeError when a span is still open."""
        books = self.books()
        now = self._clock()
        books.spent[books.open[-1]] += now - books.at
        books.at = now
        if books.open != [_BOTTOM]:
            held = " > ".join(TIMED[number] for number in books.open)
            raise RuntimeError(f"the books are out of order: {held} is open at the end of a step")
        return now, books

    def timed(self, function: Callable[..., Any], component: str) -> Callable[..., Any]:
        """``function`` as an entrance into ``component``; within the same component it is passed through."""
        if getattr(function, "_entrance", False):
            return function
        clock, all_books, number = self._clock, self._books, _NUMBER[component]
        new = self.books

        @functools.wraps(function)
        def entrance(*args: Any, **kwargs: Any) -> Any:
            books = all_books.get(get_ident()) or new()
            opened = books.open
            above = opened[-1]
            if above == number:
                return function(*args, **kwargs)
            now = clock()
            books.spent[above] += now - books.at
            books.at = now
            books.left[above] += 1
            books.spans[number] += 1
            opened.append(number)
            try:
                return function(*args, **kwargs)
            finally:
                now = clock()
                books.spent[number] += now - books.at
                books.at = now
                opened.pop()

        entrance._entrance = True  # type: ignore[attr-defined]
        return entrance

    # --- in front of TrainCheck's own functions ----------------------------------------------------------------------

    def install(self) -> None:
        """Time all entrances. Before a session starts: what it binds while it starts would be missed later.

        Raises LookupError for a module the table of components lacks, or an entrance that does not exist.
        """
        unknown = components.unlisted()
        if unknown:
            raise LookupError(f"no component is known for {', '.join(unknown)}: add them to profile/components.py")
        from importlib import import_module

        for module, parts in ENTRANCES.items():
            loaded = import_module(f"traincheck.{module}")
            for component, names in parts.items():
                for name in names:
                    self._replace(loaded, name, component)
        self._hooks()

    def remove(self) -> None:
        """Put everything back, for tests: a training process ends with its ledger."""
        while self.undo:
            self.undo.pop()()

    def _replace(self, module: Any, name: str, component: str) -> None:
        owner_name, _, attribute = name.rpartition(".")
        owner = getattr(module, owner_name, None) if owner_name else module
        function = vars(owner).get(attribute) if owner is not None else None
        if not callable(function):
            raise LookupError(f"there is no {module.__name__}.{name}: correct the entrances in profile/components.py")
        entrance = self.timed(function, component)
        self._set(owner, attribute, entrance)
        if owner is module:  # from x import f
            for other in _own_modules():
                for key, value in list(vars(other).items()):
                    if value is function:
                        self._set(other, key, entrance)

    def _hooks(self) -> None:
        """Hooks of probes and observation points, which the compiled core calls."""
        from traincheck.collect import _probe
        from traincheck.collect.observe import points

        make, point = _probe.Probe, points._point

        @functools.wraps(make, updated=())
        def probe(*args: Any, enter: Any = None, exit: Any = None, **more: Any) -> Any:
            return make(*args, enter=self._hook(enter), exit=self._hook(exit), **more)

        def observed(*args: Any) -> points.Point:
            found = point(*args)
            return points.Point(*(self._hook(hook) for hook in found))

        self._set(_probe, "Probe", probe)
        self._set(points, "_point", observed)

    def _hook(self, hook: Any) -> Any:
        if hook is None or getattr(hook, "_entrance", False):
            return hook
        code: Any = getattr(hook, "__code__", None)
        module = components.module_of(code.co_filename) if code is not None else None
        if module is None:  # none of ours
            return hook
        component = components.component_of(module, code.co_name)
        if component is None:
            raise LookupError(f"no component is known for the hook {hook!r}: add {module} to profile/components.py")
        return self.timed(hook, component)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner)[name]
        setattr(owner, name, value)
        self.undo.append(lambda: setattr(owner, name, before))


def _own_modules() -> Sequence[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("traincheck.collect")]


def span_cost(ledger: Ledger, repeats: int = 15, calls: int = 2000) -> dict[str, Any]:
    """What timing one span costs: ns that fall inside it and ns that fall to whoever entered it.

    Medians of ``repeats``, each of ``calls`` spans, with the range of the sum.
    """

    def nothing() -> None: ...

    span = ledger.timed(nothing, components.STEPS)
    number = _NUMBER[components.STEPS]
    inner, outer = [], []
    for _ in range(repeats):
        plain = _loop(nothing, calls)
        ledger.begin()
        spent = _loop(span, calls)
        _, books = ledger.end()
        inside = max(0.0, (books.spent[number] - plain) / calls)  # the call itself costs that without us too
        inner.append(inside)
        outer.append(max(0.0, (spent - plain) / calls - inside))
    both = sorted(a + b for a, b in zip(inner, outer, strict=True))
    inner.sort()
    outer.sort()
    middle = repeats // 2
    return {
        "inner_ns": inner[middle],
        "outer_ns": outer[middle],
        "range_ns": [both[0], both[-1]],
        "spans": repeats * calls,
    }


def _loop(function: Callable[[], Any], calls: int) -> int:
    began = time.thread_time_ns()
    for _ in range(calls):
        function()
    return time.thread_time_ns() - began
