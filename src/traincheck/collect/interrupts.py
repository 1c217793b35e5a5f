"""Exceptions that are not ours: what a signal handler of the program's raises while our code happens to run.

The interpreter runs handlers between any two instructions of the main thread, ours included. A timeout made with
``signal.alarm`` must end the training it was meant for, not be taken for a fault of an observation.
"""

from __future__ import annotations

import signal
from types import CodeType
from typing import Any

from traincheck.collect import _probe


def raised_by_signal_handler(error: BaseException) -> bool:
    """Whether ``error`` comes out of a Python function that is the handler of a signal now."""
    codes = _handler_codes()
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def hand_on(error: BaseException) -> bool:
    """Raise ``error`` in the main thread as soon as that is back in the program, if a signal handler raised it."""
    if not raised_by_signal_handler(error):
        return False
    _probe.hand_on(error)
    return True


def _handler_codes() -> set[CodeType]:
    found: set[CodeType] = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        for function in (handler, getattr(handler, "__call__", None)):  # noqa: B004  an object's own method
            code = getattr(getattr(function, "__func__", function), "__code__", None)
            if isinstance(code, CodeType):
                found.add(code)
    return found
