"""States of the random generators that a training may draw from."""

from __future__ import annotations

import hashlib
import random
import sys

import torch

from .tensors import digest

UNTOUCHED = "untouched"
"""State of a generator that the operating system seeds, and that the program has neither seeded nor drawn from."""


class Generators:
    """Digests of generator states. torch starts with a fixed seed; Python and numpy do not, unless they are seeded."""

    def __init__(self) -> None:
        self._first: dict[str, str] = {}
        self.look()

    def look(self) -> None:
        """Note the states that generators start with, as soon as they exist."""
        for name, state in self._seeded_by_the_system().items():
            self._first.setdefault(name, state)

    def states(self) -> dict[str, str]:
        """Digest of every generator's state; numpy and CUDA where they are in use."""
        self.look()
        found = {"torch": digest(torch.get_rng_state())}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            for index in range(torch.cuda.device_count()):
                found[f"cuda:{index}"] = digest(torch.cuda.get_rng_state(index))
        for name, state in self._seeded_by_the_system().items():
            found[name] = UNTOUCHED if state == self._first[name] else state
        return found

    def _seeded_by_the_system(self) -> dict[str, str]:
        found = {"python": hashlib.sha256(repr(random.getstate()).encode()).hexdigest()}
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and hasattr(numpy, "get_state"):
            name, keys, *rest = numpy.get_state()
            found["numpy"] = hashlib.sha256(name.encode() + keys.tobytes() + repr(rest).encode()).hexdigest()
        return found
