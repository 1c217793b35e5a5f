"""The compiled core: probes and the segment writer. See docs/trace-format.md for what it writes.

One recorder a process. All functions need the GIL; a probe never raises on its own account: a fault of ours is counted
(``faults()``), the call goes through.
"""

from collections.abc import Callable, Sequence
from typing import Any

ABI: int

# --- recorder ---------------------------------------------------------------------------------------------------------

def open(
    directory: str, segment_bytes: int, miss: Callable[[int, Any], int], clock: int = -1
) -> None:
    """Start recording into ``directory/events-00000.tcev``. Raises OSError (nothing started) if it can't be reserved, RuntimeError if open.

    ``miss(kind, obj)`` is called (muted) the first time a thing must get a number; it writes the symbol and returns its id.
    kind: "value" 4 (str, big int, dtype, device, torch.Size, layout, enum, type name as str…), "tensor" 11 (called with the tensor itself:
    the C side has made the cache key), "location" 9 (called with (filename, line, function name)), "thread" 100 (called with ident),
    "capture" 101 (called with (function id, moment, path)), "exception" 8 (called with the type), "type" 10 (called with a type).
    ``clock``: -1 choose (TSC when invariant, else CLOCK_MONOTONIC), else events.Clock.
    """

def close() -> None:
    """Cut the segment to its used length, unmap. Recording is off afterwards; probes pass through. Idempotent."""

def abandon() -> None:
    """In a forked child: unmap the parent's segment without touching the file, forget caches, thread and call state."""

def recording() -> bool: ...
def pause() -> None:
    """Stop appending call/capture records (sampling); observe/state/mark still append. Probes' hooks still run.

    A call recorded before still gets its out-captures and its END, so that no call looks open that is not.
    """

def resume() -> None: ...
def records() -> int:
    """Records appended since open."""

def dropped() -> int:
    """Records lost since open (no space: rotation failed). Recording goes on as soon as a later reservation succeeds, with a gap mark; retried each 1 s."""

def last_error() -> str | None:
    """Why records were dropped (strerror of the reservation), None if none were."""

def faults() -> list[tuple[str, str, int]]:
    """(where, message of the first, count) for each fault of ours: a hook that raised, a capture that could not be read for an unforeseen reason."""

def location() -> tuple[str, int, str] | None:
    """Innermost user frame of this thread (see set_library_prefixes)."""

def set_library_prefixes(prefixes: Sequence[str]) -> None:
    """Path prefixes of code that is not the user's (site-packages, the standard library, traincheck itself, '<frozen')."""

def mark(kind: int, symbol: int, a: int, b: int) -> None: ...
def observe(moment: int, reason: int, call: int) -> int:
    """Append OBSERVE, return the observation number."""

def state(observation: int, variable: int, attribute: int, kind: int, low: int, high: int) -> None: ...
def states(observation: int, rows: Sequence[tuple[int, int, int, int, int]]) -> None:
    """Append many STATE records: (variable, attribute, kind, low, high). low/high are unsigned 64-bit; negative ints are taken as two's complement."""

def encode(value: object) -> tuple[int, int, int]:
    """(kind, low, high) of any value, as a capture would write it."""

def symbol(value: object) -> int:
    """Id of the interned value (str, tuple, …)."""

def current_call() -> int:
    """Number of this thread's innermost open recorded call, 0 if none."""

def view(address: int, nbytes: int) -> memoryview:
    """Read-only memory at an address. The caller keeps the owner alive."""

# --- muting: nothing is recorded on this thread while muted > 0; hooks and miss callbacks always run muted -------------

def mute() -> None: ...
def unmute() -> None: ...
def muted() -> int: ...

class Mute:
    """Mute(function): a callable like Probe that runs ``function`` muted and records nothing. Same transparency as Probe."""

    def __init__(self, function: Any) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class Probe:
    """Stands where ``function`` stood. Transparent: ``__class__``, attributes (read, set, delete), ``__wrapped__``, hash, equality, repr,
    pickle, copy and descriptor behaviour are the function's own; only ``type(probe)`` differs.

    captures: sequence of (capture id, moment 0 in / 1 out, path steps), where path steps is a tuple starting with
      ("arg", index, name or None): positional at index, else keyword of that name | ("kw", name) | ("self",) = first positional | ("ret",),
      followed by any of ("attr", name) | ("item", int or str).  A missing one is recorded as MISSING, an attribute that raises as ERROR.
    capture_all: record every argument and the result (1.: tensors as TENSOR, scalars and short strings (<= 200) by value, enums/dtypes/devices/sizes as
      symbols, list/tuple/dict one level deep and at most 8 elements each, everything else as OBJECT), with capture ids from ``miss(101, …)``.
    location: with BEGIN also write a CAPTURE of path "@location" (the innermost user frame): 0 never, 1 only when the parent is 0, 2 always.
      Elements are named ``args[0][1]``, ``kwargs.batch["labels"]``, ``ret[0]``; a tuple of plain values is one symbol.
    Order of records: BEGIN, in-captures, (calls inside), out-captures, END: after END nothing more comes of a call.
    outermost: 0 record every call; 1 record only when no call recorded *or passed* by a probe with the same ``group`` is open on this thread
      (probes with ``outermost`` 0 neither look at groups nor open them).
    group: small int (0..15) for ``outermost``.
    enter(probe, args, kwargs, call): called muted after BEGIN and in-captures; args a tuple, kwargs a dict or None. Its return value is the token.
    exit(probe, token, args, kwargs, result, error, call): called muted after END; result is NULL->None if raised; error the exception or None.
      Hooks see call = 0 when nothing is recorded (paused, muted does not run hooks at all, nested outermost does not run hooks).
      ``exit`` runs whenever ``enter`` ran, with call = 0 if the recorder was closed in between.
    """

    enabled: bool  # False: pass through, no record, no hooks
    record: bool  # False: hooks only
    __wrapped__: Any
    def __init__(
        self,
        function: Any,
        id: int,
        *,
        captures: Sequence[tuple[int, int, tuple[tuple[Any, ...], ...]]] = (),
        capture_all: bool = False,
        location: int = 0,
        outermost: int = 0,
        group: int = 0,
        enter: Callable[..., Any] | None = None,
        exit: Callable[..., Any] | None = None,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def is_probe(obj: object) -> bool:
    """True for Probe and Mute by real type (``isinstance`` sees the wrapped function's class)."""
