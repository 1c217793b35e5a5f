"""Processes that work side by side on one machine, and end with the one that started them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from traincheck.errors import TraincheckError

Item = TypeVar("Item")
Made = TypeVar("Made")


def side_by_side(
    work: Callable[[Item], Made], items: Sequence[Item], jobs: int, start: Callable[..., None], given: tuple[Any, ...]
) -> Iterator[Made]:
    """``work(item)`` for each item, in their order, by at most ``jobs`` processes, each set up by ``start(*given)``.

    An interrupt (Ctrl-C) goes to the caller alone: the workers are ended, without a word of their own. Raises what
    ``work`` raises, and ``TraincheckError`` when a worker dies (out of memory, killed).
    """
    # Threads of the columnar engine do not survive a fork: workers start anew.
    before = set(active_children())
    pool = ProcessPoolExecutor(min(jobs, len(items)), get_context("spawn"), _start, (start, given))
    try:
        with _interrupts_later():
            results = pool.map(work, items)
        yield from results
    except BrokenProcessPool:
        raise TraincheckError("a process that was to help ended unexpectedly", "--jobs 1 if memory ran out") from None
    except BaseException:
        for process in set(active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start(start: Callable[..., None], given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    start(*given)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """What is started here is deaf to interrupts from its first moment; ours comes when this ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
