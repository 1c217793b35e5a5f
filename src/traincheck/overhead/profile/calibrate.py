"""The compiled core, calibrated: what one call, one capture, one hook and one segment cost, in this very process.

The core is not timed call by call (a clock reading costs more than what it would measure). Its probes are put on
functions that do nothing, with the recorder of the run, and compared with the same functions without; how often each
happened in a window is counted in the trace. Caches are warm here, in training they are not: what that hides ends in
the part that stays unattributed.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from traincheck.events import HEADER_SIZE, RECORD_SIZE, Moment, Value

CALLS: Final = 500
REPEATS: Final = 15
WIDTH: Final = 8
"""Arguments of the wide call; the narrow one has one. Their difference is what captures cost."""
PYTHON: Final = "python"
BUILTIN: Final = "builtin"
ATTRIBUTE: Final = "attribute"
"""A capture of an attribute, of whatever kind its value is."""

Path = tuple[tuple[str, str], ...]
"""Steps of a capture's path behind its argument."""

Figure = dict[str, float]
"""``ns``; ``least`` and ``most`` of the repeats."""


def nothing(*arguments: Any) -> None:
    """Does nothing, as a Python function."""


def _samples() -> dict[Value, Any]:
    import torch

    return {
        Value.NONE: None,
        Value.BOOL: True,
        Value.INT: 12345,
        Value.FLOAT: 0.1,
        Value.SYMBOL: torch.float32,
        Value.TENSOR: torch.zeros(8, 8),
        Value.OBJECT: nothing.__code__,
    }


class Core:
    """Calibrates with the open recorder of a session; ``everything``: probes as the full and boundary scopes have
    them, else with the plan's paths, as the selective scope has them.
    """

    def __init__(self, recorder: Any, everything: bool) -> None:
        self._recorder = recorder
        self._everything = everything
        self._number = recorder.function("traincheck.calibration", "function", None)

    def figures(self) -> dict[str, Any]:
        """``call`` by kind of function, ``capture`` by kind of value (names of ``Value``) or ``ATTRIBUTE``, ``hook``,
        ``segment``."""
        import torch

        captures = {value.name.lower(): self._capture(sample) for value, sample in _samples().items()}
        captures["location"] = self._location()
        if not self._everything:
            captures[ATTRIBUTE] = self._capture(torch.zeros(8, 8), (("attr", "dtype"),))
        calls = {PYTHON: self._call(nothing, captures["none"]), BUILTIN: self._call(gc.isenabled, captures["bool"])}
        return {"call": calls, "capture": captures, "hook": self._hook(), "segment": self._segment()}

    def _call(self, function: Callable[[], Any], result: Figure) -> Figure:
        """Without arguments; where everything is recorded its result is, which is not the call's own cost."""
        found = self._difference(function, (), self._probe(function, 0))
        return _less(found, result["ns"]) if self._everything else found

    def _probe(self, function: Callable[..., Any], width: int, path: Path = (), **more: Any) -> Any:
        from traincheck.collect import _probe

        if self._everything:
            return _probe.Probe(function, self._number, **{"capture_all": True, "group": 15, **more})
        captures = [
            (self._recorder.capture(self._number, "in", f"args[{n}]"), 0, (("arg", n, None), *path))
            for n in range(width)
        ]
        return _probe.Probe(function, self._number, **{"captures": captures, "group": 15, **more})

    def _difference(self, plain: Callable[..., Any], arguments: Sequence[Any], probed: Callable[..., Any]) -> Figure:
        return _figure([(_time(probed, arguments), -_time(plain, arguments)) for _ in range(REPEATS)])

    def _capture(self, sample: Any, path: Path = ()) -> Figure:
        wide, narrow = self._probe(nothing, WIDTH, path), self._probe(nothing, 1, path)
        many, one = (sample,) * WIDTH, (sample,)
        found = [
            (_time(wide, many), -_time(nothing, many), -_time(narrow, one), _time(nothing, one)) for _ in range(REPEATS)
        ]
        return _divided(_figure(found), WIDTH - 1)

    def _location(self) -> Figure:
        with_it, without = self._probe(nothing, 0, location=2), self._probe(nothing, 0)
        return self._difference(without, (), with_it)

    def _hook(self) -> Figure:
        """One of two hooks of a call: its dispatch, without the hook's own time."""

        def hook(*arguments: Any) -> None: ...

        hooked, without = self._probe(nothing, 0, enter=hook, exit=hook), self._probe(nothing, 0)
        given = (1, 2, 3, 4)
        found = [(_time(hooked, ()), -_time(without, ()), -2 * _time(hook, given)) for _ in range(REPEATS)]
        return _divided(_figure(found), 2)

    def _segment(self) -> dict[str, float]:
        """Opening a segment, and closing the one before: what the append that does it costs more than others."""
        from traincheck.collect import _probe

        held = (self._recorder._segment_size() - HEADER_SIZE) // RECORD_SIZE
        rows = [(0, 0, 0, 0, 0)] * min(1000, held // 4)
        observation = self._recorder.observe("calibration", 0, Moment.ALONE)
        rolls: list[float] = []
        usual: list[float] = []
        while len(rolls) < 2:
            before, began = _probe.records(), time.thread_time_ns()
            _probe.states(observation, rows)
            spent = time.thread_time_ns() - began
            (rolls if before // held != _probe.records() // held else usual).append(spent)
        common = statistics.median(usual)
        return {**_figure([(spent, -common) for spent in rolls]), "records": held}


def _time(function: Callable[..., Any], arguments: Sequence[Any]) -> float:
    """CPU ns of one call, on average of ``CALLS``."""
    began = time.thread_time_ns()
    for _ in itertools.repeat(None, CALLS):
        function(*arguments)
    return (time.thread_time_ns() - began) / CALLS


def _figure(repeats: Sequence[tuple[float, ...]]) -> Figure:
    """Each repeat is a sum of times. The figure is the sum of each one's least disturbed repeat (a time is only ever
    too long); the range is that of the repeats.
    """
    least = [min(times, key=abs) for times in zip(*repeats, strict=True)]
    sums = [sum(times) for times in repeats]
    return {"ns": max(0.0, sum(least)), "least": min(sums), "most": max(sums)}


def _divided(figure: Figure, by: int) -> Figure:
    return {name: value / by for name, value in figure.items()}


def _less(figure: Figure, ns: float) -> Figure:
    return {name: max(0.0, value - ns) for name, value in figure.items()}
