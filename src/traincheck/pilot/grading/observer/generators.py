"""States of the random generators that a training may draw from."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Mapping

import torch

from .tensors import digest

UNSEEDED = "unseeded"
"""State of a generator that the operating system seeds, as long as the program does not seed it.

Libraries draw from it for names and the like. What depended on it would differ from run to run by itself.
"""

_WORDS = 624
_MOST = 2_000
"""Blocks of 624 draws that are followed; after so many an unseeded generator would count as seeded."""


class Generators:
    """Digests of generator states. torch starts with a fixed seed; Python and numpy do not, unless they are seeded."""

    def __init__(self, seeds: Mapping[str, tuple[int, ...]]) -> None:
        """``seeds`` are the keys that the system gave, by generator; one that comes later is added there."""
        self._seeds = seeds
        self._families: dict[str, _Family] = {}

    def states(self) -> dict[str, str]:
        """Digest of every generator's state; numpy and CUDA where they are in use."""
        found = {"torch": digest(torch.get_rng_state())}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            for index in range(torch.cuda.device_count()):
                found[f"cuda:{index}"] = digest(torch.cuda.get_rng_state(index))
        state = random.getstate()
        found["python"] = self._state("python", tuple(state[1][:-1]), repr(state))
        numpy = sys.modules.get("numpy.random")
        if numpy is not None and hasattr(numpy, "get_state"):
            name, keys, *rest = numpy.get_state()
            words = tuple(keys.tolist())
            found["numpy"] = self._state("numpy", words, repr((name, words, rest)))
        return found

    def _state(self, name: str, key: tuple[int, ...], whole: str) -> str:
        if name not in self._families and name in self._seeds:
            self._families[name] = _Family(self._seeds[name])
        family = self._families.get(name)
        if family is not None and family.holds(key):
            return UNSEEDED
        return hashlib.sha256(whole.encode()).hexdigest()


class _Family:
    """What a Mersenne twister (Python's and numpy's are the same) comes to from one key by draws alone."""

    def __init__(self, key: tuple[int, ...]) -> None:
        self._key = key
        self._left = False

    def holds(self, key: tuple[int, ...]) -> bool:
        """Whether the generator still goes on from its first key; once it does not, it was seeded."""
        if self._left:
            return False
        if key == self._key:
            return True
        twister = random.Random()
        twister.setstate((3, (*self._key, _WORDS), None))
        for _ in range(_MOST):
            twister.getrandbits(32 * _WORDS)
            if twister.getstate()[1][:-1] == key:
                self._key = key
                return True
        self._left = True
        return False
