"""The compiled core: probes and the segment writer. See docs/trace-format.md for what it writes.

One recorder a process. All functions need the GIL; a probe never raises on its own account: a fault of ours is counted
(``faults()``), the call goes through. Importing it in a sub-interpreter raises ImportError.
"""

from collections.abc import Callable, Sequence
from typing import Any

ABI: int

# --- recorder ---------------------------------------------------------------------------------------------------------

def open(directory: str, segment_bytes: int, miss: Callable[[int, Any], int], clock: int = -1) -> None:
    """Start recording into ``directory/events-00000.tcev``.

    Raises OSError (nothing started) if the segment can't be reserved or is there already, RuntimeError if a recorder is
    open, ValueError for a segment below 4096 bytes or an unknown clock.

    ``miss(kind, obj)`` is called (muted) the first time a thing must get a number; it writes the symbol and returns its
    id. What it raises is counted as a fault, the id is 0 then and is asked for again the next time. Kinds: "value" 4
    (str, big int, tuple of plain values, dtype, device, torch.Size, layout, memory format, enum member), "tensor" 11
    (called with the tensor itself, ``__torch_function__`` switched off: the C side has made the cache key), "location"
    9 (called with (filename, line, function name)), "thread" 100 (called with its ident), "capture" 101 (called with
    (function id, moment 0 in / 1 out, path)), "exception" 8 (called with the type), "type" 10 (called with a type).
    ``clock``: -1 choose (TSC when invariant, else CLOCK_MONOTONIC), else events.Clock.
    """

def close() -> None:
    """Cut the segment to its used length, unmap. Recording is off afterwards; probes pass through. Idempotent."""

def abandon() -> None:
    """In a forked child: unmap the parent's segment without touching the file, forget caches, thread and call state.

    The C side does the same on its own right after any ``fork()``, except for what needs the GIL; nothing of the child
    can reach the parent's trace, also when nobody calls this.
    """

def on_first_call(function: Callable[[], Any]) -> None:
    """Call ``function`` (muted, once) when an enabled probe is called the next time.

    If it opened the recorder, that call is recorded. For a forked child, which may never call anything. Forgotten by
    open, close and abandon. Raises RuntimeError while recording.
    """

def hand_on(exception: BaseException) -> bool:
    """Raise ``exception`` in the main thread soon, as if a signal handler had raised it there.

    False if too many wait.
    """

def at_exit(path: str, offset: int) -> None:
    """When this process calls exit(3), after Python is gone, write its status to ``path``.

    It goes over the 4 bytes (``null``) at ``offset``. The last call wins; a forked child has to say it again. Does
    nothing where the C library has no on_exit.
    """

def recording() -> bool: ...
def pause() -> None:
    """Stop appending call and capture records (sampling); observe, state and mark still append. Hooks still run.

    A call recorded before still gets its out-captures and its END, so that no call looks open that is not.
    """

def resume() -> None: ...
def records() -> int:
    """Records appended since open."""

def dropped() -> int:
    """Records lost since open, because no segment could be reserved.

    Recording goes on as soon as a later reservation succeeds, with a gap mark; it is retried at most once a second.
    """

def last_error() -> str | None:
    """Why records were dropped (strerror of the reservation), None if none were."""

def faults() -> list[tuple[str, str, int]]:
    """(where, message of the first, count) of each fault of ours since open: a hook that raised, a failing ``miss``."""

def location() -> tuple[str, int, str] | None:
    """Innermost user frame of this thread as (file, line, function name); see set_library_prefixes."""

def set_library_prefixes(prefixes: Sequence[str]) -> None:
    """Path prefixes of code that is not the user's (site-packages, standard library, traincheck itself, '<frozen')."""

def mark(kind: int, symbol: int, a: int, b: int) -> None:
    """Append MARK; a step's begin is followed by a clock mark. a and b: any int, by its low 64 bits."""

def observe(moment: int, reason: int, call: int) -> int:
    """Append OBSERVE, return the observation number; 0 when not recording."""

def state(observation: int, variable: int, attribute: int, kind: int, low: int, high: int) -> None: ...
def states(observation: int, rows: Sequence[tuple[int, int, int, int, int]]) -> None:
    """Append many STATE records: (variable, attribute, kind, low, high). low and high: any int, by its low 64 bits."""

def encode(value: object) -> tuple[int, int, int]:
    """(kind, low, high) of any value, as a capture would write it."""

def symbol(value: object) -> int:
    """Id of a value (str of any length, tuple, …), interned where a capture would intern it. 0 when not recording."""

def current_call() -> int:
    """Number of this thread's innermost open recorded call, 0 if none."""

def view(address: int, nbytes: int) -> memoryview:
    """Read-only memory at an address. The caller keeps the owner alive."""

# --- muting: nothing is recorded on this thread while muted > 0; hooks and miss callbacks always run muted ------------

def mute() -> None: ...
def unmute() -> None:
    """Raises RuntimeError when this thread is not muted."""

def muted() -> int: ...

class Mute:
    """Mute(function): a callable like Probe that runs ``function`` muted. Same transparency as Probe."""

    def __init__(self, function: Any) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

class Probe:
    """Stands where ``function`` stood.

    Transparent: ``__class__``, attributes (read, set, delete), ``__wrapped__``, hash, equality, repr, pickle, copy and
    descriptor behaviour are the function's own; only ``type(probe)`` differs (one of three types, by how it binds).

    captures: sequence of (capture id, moment 0 in / 1 out, path steps), where path steps is a tuple that starts with
      ("arg", index, name or None): positional at index, else keyword of that name | ("kw", name) | ("self",) = first
      positional | ("ret",), followed by any of ("attr", name) | ("item", int or str). A missing one is recorded as
      MISSING (the result of a call that raised, too), an attribute that raises as ERROR. Tensors are never indexed.
    capture_all: record every argument (64 positional, 64 keywords at most) and the result, with capture ids from
      ``miss(101, …)``. Tensors as TENSOR; None, numbers and short strings (<= 200) by value; enums, dtypes, devices,
      sizes, types, short tuples of plain values as symbols; list, tuple and dict as OBJECT and then one level deep, at
      most 8 elements each, as ``args[0][1]``, ``kwargs.batch["labels"]``, ``ret[0]``; everything else as OBJECT.
    location: with BEGIN also write a CAPTURE of path "@location" (the innermost user frame): 0 never, 1 only when the
      parent is 0, 2 always.
    outermost: 0 record every call; 1 record only when no call of a probe with the same ``group`` is open on this
      thread, recorded or not.
    group: small int (0..15). Probes with ``outermost`` 0 are recorded whatever is open; they open their group unless it
      is 0.
    enter(probe, args, kwargs, call): called muted after BEGIN and in-captures; args a tuple, kwargs a dict or None. Its
      return value is the token.
    exit(probe, token, args, kwargs, result, error, call): called muted after END; result is None if it raised; error
      the exception or None. Runs whenever enter ran, with call = 0 if the recorder was closed in between.
      Hooks see call = 0 when nothing is recorded; muted and nested outermost calls do not run them at all.

    Order of a call's records: BEGIN, in-captures, (calls inside), out-captures, END; after END nothing comes of it.
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
    def __getattr__(self, name: str) -> Any: ...

def is_probe(obj: object) -> bool:
    """True for Probe and Mute by real type (``isinstance`` sees the wrapped function's class)."""

def replace(owner: type, name: str, value: object) -> Any:
    """Put ``value`` in the namespace of a type that refuses ``setattr`` (a static type of an extension module).

    Returns what stood there; raises AttributeError if nothing did. For ``type(torch._C._VariableFunctions)``: from it
    torch takes the ``func`` it hands to ``__torch_function__``, so ``func is torch.add`` stays true only if
    ``staticmethod(probe)`` stands there too.
    """
