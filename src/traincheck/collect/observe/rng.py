"""Digests of random number generators' states. Reading a state draws nothing; generators that nobody uses yet are
not woken.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import torch

from traincheck.collect.digests import digest_bytes
from traincheck.collect.observe.models import loaded
from traincheck.collect.observe.tensors import Sheet, Writer


def rng_states(writer: Writer, sheet: Sheet) -> None:
    """Variables ``torch.cpu``, ``torch.cuda.<index>`` (initialised devices, the current one), ``numpy``,
    ``python``, attribute ``data``.
    """

    def variable(name: str) -> int:
        return writer.variable(name, "rng", "generator", "run")

    sheet.tensor(variable("torch.cpu"), "data", torch.default_generator.get_state())
    cuda = loaded("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        device = cuda.current_device()
        sheet.tensor(variable(f"torch.cuda.{device}"), "data", cuda.default_generators[device].get_state())
    if loaded("numpy.random") is not None:
        sheet.digest(variable("numpy"), "data", digest_bytes(numpy_state()))
    version, words, gauss = random.getstate()
    state = struct.pack(f"<q{len(words)}Q?d", version, *words, gauss is not None, gauss or 0.0)
    sheet.digest(variable("python"), "data", digest_bytes(state))


def numpy_state() -> bytes:
    """The state of NumPy's global generator as bytes."""
    state: Any = loaded("numpy.random").get_state(legacy=False)
    parts = [str(state.get("bit_generator")).encode()]
    for name, value in sorted(state.get("state", {}).items()):
        parts.append(name.encode())
        parts.append(value.tobytes() if hasattr(value, "tobytes") else repr(value).encode())
    parts.append(struct.pack("<qd", int(state.get("has_gauss", 0)), float(state.get("gauss", 0.0))))
    return b"\0".join(parts)
