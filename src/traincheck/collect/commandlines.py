"""Command lines of Python processes: which of them are launchers and helpers, that start training but do none
themselves.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands",
    "deepspeed.launcher",
    "torch._inductor",  # compile workers and their like
)
"""These modules and all below them, run with ``-m`` or by path."""

_SCRIPTS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "deepspeed.pt", "ds")
_TAKE_A_VALUE = "WX"
_LONG_TAKE_A_VALUE = ("--check-hash-based-pycs",)


class Started(NamedTuple):
    """What a Python interpreter was told to run. ``kind``: ``-m``, ``-c``, ``script`` or ``stdin``."""

    kind: str
    what: str


def started(argv: Sequence[str]) -> Started:
    """What the command line ``argv`` (``sys.orig_argv``) runs, read as the interpreter reads it."""
    words = iter(argv[1:])
    for word in words:
        if word in _LONG_TAKE_A_VALUE:
            next(words, None)
            continue
        if word == "-":
            return Started("stdin", "")
        if not word.startswith("-"):
            return Started("script", word)
        if word.startswith("--"):
            continue
        for position, letter in enumerate(word[1:], start=1):
            if letter in "mc":
                return Started(f"-{letter}", word[position + 1 :] or next(words, ""))
            if letter in _TAKE_A_VALUE:
                if position + 1 == len(word):
                    next(words, None)
                break
    return Started("stdin", "")


def is_launcher(argv: Sequence[str]) -> bool:
    """Whether this is the command line of a launcher or helper: nothing is collected in it, only in what it starts."""
    kind, what = started(argv)
    if kind == "-m":
        return _is_below(what)
    if kind == "-c":
        return "multiprocessing.resource_tracker" in what
    if kind == "script":
        path, ending = os.path.splitext(what)
        dotted = path.replace(os.sep, ".")
        return os.path.basename(what) in _SCRIPTS or (
            ending == ".py" and any(f".{module}." in f".{dotted}." for module in _MODULES)
        )
    return False


def is_fork_server(argv: Sequence[str]) -> bool:
    """Whether this process does nothing but fork the children of ``multiprocessing``'s ``forkserver``."""
    kind, what = started(argv)
    return kind == "-c" and "multiprocessing.forkserver" in what


def _is_below(module: str) -> bool:
    return any(module == known or module.startswith(known + ".") for known in _MODULES)
