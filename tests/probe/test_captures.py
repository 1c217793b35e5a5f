"""What a probe reads of a call, and what it must never touch."""

from __future__ import annotations

import enum
import gc
import math
import sys
import weakref
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.probe.conftest import OpenRecording, Recording
from traincheck.collect import _probe
from traincheck.events import Value

MISSING = Value.MISSING


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Options(enum.Flag):
    A = 1
    B = 2


def anything(*args: Any, **kwargs: Any) -> Any:
    return kwargs.get("give", args[0] if args else None)


def one(recording: Recording, path: Any, *args: Any, moment: int = 0, **kwargs: Any) -> Any:
    """The value of one capture of one call."""
    _probe.Probe(anything, 1, captures=[(77, moment, path)])(*args, **kwargs)
    return recording.captured(recording.calls()[-1])[77]


def test_paths(recording: Recording) -> None:
    class Holder:
        lr = 0.5
        inner = {"k": [1, 2, (3, "x")], 5: "five"}  # noqa: RUF012

    cases: list[tuple[Any, Any]] = [
        ((("arg", 0, "a"),), 7),
        ((("arg", 2, "key"),), "kw"),
        ((("arg", 2, None),), MISSING),
        ((("arg", 2, "nokey"),), MISSING),
        ((("kw", "key"),), "kw"),
        ((("kw", "nokey"),), MISSING),
        ((("self",),), 7),
        ((("arg", 1, None), ("attr", "lr")), 0.5),
        ((("arg", 1, None), ("attr", "nothing")), MISSING),
        ((("arg", 1, None), ("attr", "inner"), ("item", "k"), ("item", 1)), 2),
        ((("arg", 1, None), ("attr", "inner"), ("item", "k"), ("item", -1), ("item", 0)), 3),
        ((("arg", 1, None), ("attr", "inner"), ("item", "k"), ("item", 3)), MISSING),
        ((("arg", 1, None), ("attr", "inner"), ("item", "k"), ("item", -4)), MISSING),
        ((("arg", 1, None), ("attr", "inner"), ("item", 5)), "five"),
        ((("arg", 1, None), ("attr", "inner"), ("item", "no")), MISSING),
        ((("arg", 0, None), ("item", 0)), ("error", "builtins.TypeError")),
    ]
    probe = _probe.Probe(anything, 1, captures=[(1000 + i, 0, path) for i, (path, _) in enumerate(cases)])
    probe(7, Holder(), key="kw")
    probe(7, Holder(), **{"".join(["k", "ey"]): "kw"})  # a name that is not the interned one
    for call in recording.calls():
        captured = recording.captured(call)
        for i, (_, expected) in enumerate(cases):
            found = captured[1000 + i]
            assert found == (expected[1] if isinstance(expected, tuple) else expected), cases[i]
    assert _probe.faults() == []


def test_results_and_exceptions(recording: Recording) -> None:
    def f(fail: bool) -> list[int]:
        if fail:
            raise ValueError
        return [4]

    captures = [(1, 0, (("arg", 0, None),)), (2, 1, (("ret",), ("item", 0))), (3, 1, (("arg", 0, None),))]
    probe = _probe.Probe(f, 1, captures=captures)
    probe(False)
    with pytest.raises(ValueError):  # noqa: PT011
        probe(True)
    returned, raised = recording.calls()
    assert recording.captured(returned) == {1: False, 2: 4, 3: False}
    assert recording.captured(raised) == {1: True, 2: MISSING, 3: True}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (False, False),
        (-(2**63), -(2**63)),
        (2**63, 2**63),
        (-(2**64), -(2**64)),
        (1e-300, 1e-300),
        (math.inf, math.inf),
        ("", ""),
        ("x" * 200, "x" * 200),
        ("x" * 201, ("object", "builtins.str")),
        ("\ud800\x00é", "\ud800\x00é"),
        (10**2000, ("object", "builtins.int")),
        (b"bytes", ("object", "builtins.bytes")),
        ((1, 2.5, "x", None, True), (1, 2.5, "x", None, True)),
        ((1, [2]), ("object", "builtins.tuple")),
        (tuple(range(17)), ("object", "builtins.tuple")),
        ([1], ("object", "builtins.list")),
        (Colour.RED, "Colour.RED"),
        (Level.LOW, 1),
        (Options.A | Options.B, str(Options.A | Options.B)),
        (int, "builtins.int"),
        (Colour, f"{__name__}.Colour"),
        (torch.float16, "torch.float16"),
        (torch.strided, "torch.strided"),
        (torch.channels_last, "torch.channels_last"),
        (torch.device("cpu"), "cpu"),
        (torch.device("cuda", 1), "cuda:1"),
        (torch.Size([2, 3]), torch.Size([2, 3])),
        (torch.ones(2, 3), ("Tensor", "torch.float32", (2, 3), "cpu", False)),
        (torch.nn.Parameter(torch.ones(2)), ("Parameter", "torch.float32", (2,), "cpu", True)),
        (torch.tensor(3), ("Tensor", "torch.int64", (), "cpu", False)),
        (torch.ones(2, device="meta"), ("Tensor", "torch.float32", (2,), "meta", False)),
        (torch.nn.Linear(1, 1), ("object", "torch.nn.modules.linear.Linear")),
    ],
    ids=lambda v: type(v).__name__,
)
def test_values(recording: Recording, value: Any, expected: Any) -> None:
    _probe.Probe(anything, 1, captures=[(1, 0, (("arg", 0, None),)), (2, 1, (("ret",),))])(value)
    (call,) = recording.calls()
    found = recording.captured(call)
    assert found == {1: expected, 2: expected}
    assert call.captures[0][1:] == call.captures[1][1:]
    if isinstance(value, torch.Tensor):
        assert call.captures[0][1] == Value.TENSOR
        assert call.captures[0][3] == id(value)
    assert _probe.faults() == []


def test_nan_and_signed_zero_keep_their_bits(recording: Recording) -> None:
    assert math.isnan(one(recording, (("arg", 0, None),), math.nan))
    assert _probe.encode(-0.0)[1] == 1 << 63
    assert _probe.encode((0.0,)) != _probe.encode((-0.0,)) or not _probe.recording()


def test_numbers_are_asked_for_once(recording: Recording) -> None:
    probe = _probe.Probe(anything, 1, capture_all=True, location=2)
    for i in range(50):
        probe("a" + str(0), torch.ones(2, 2), torch.Size([2, 2]), torch.float32, torch.device("cpu"), Colour.RED,
              int, 2**70, (1, 2), i, [i], {"k": i}, object(), k=1.5)  # fmt: skip
    asked = len(recording.symbols.asked)
    assert len(set(recording.symbols.asked)) == asked
    assert asked < 60
    assert len(recording.calls()) == 50


def test_subclasses_of_plain_values(recording: Recording) -> None:
    class Text(str): ...

    class Number(int): ...

    class Real(float): ...

    assert one(recording, (("arg", 0, None),), Text("t")) == "t"
    for make, expected in ((Number(5), 5), (Real(0.5), 0.5)):
        kind, low, _ = _probe.encode(make)
        assert kind == (Value.INT if isinstance(expected, int) else Value.FLOAT)
        assert low == _probe.encode(expected)[1]


def test_everything(recording: Recording) -> None:
    pair = namedtuple("pair", "x y")
    values = (torch.ones(2), torch.ones(1))
    probe = _probe.Probe(anything, 9, capture_all=True)
    probe(
        1, "two", [3, "four", [5]], (6, [7]), {"k": 8, 9: 10, (1,): 11, "x" * 300: 12}, (13, 14), values,
        pair(15, [16]),
        OrderedDict(o=17), lr=18, nested={"z": [19]}, give=[20, 21],
    )  # fmt: skip
    (call,) = recording.calls()
    moments = {recording.symbols.by_id[c[0]][1][2]: recording.symbols.by_id[c[0]][1][:2] for c in call.captures}
    assert moments["ret"] == moments["ret[1]"] == (9, 1)
    assert moments["args[0]"] == moments["kwargs.lr"] == (9, 0)
    one_tensor = ("Tensor", "torch.float32", (1,), "cpu", False)
    two_tensor = ("Tensor", "torch.float32", (2,), "cpu", False)
    found = recording.captured(call)
    assert found == {
        "args[0]": 1,
        "args[1]": "two",
        "args[2]": ("object", "builtins.list"),
        "args[2][0]": 3,
        "args[2][1]": "four",
        "args[2][2]": ("object", "builtins.list"),
        "args[3]": ("object", "builtins.tuple"),
        "args[3][0]": 6,
        "args[3][1]": ("object", "builtins.list"),
        "args[4]": ("object", "builtins.dict"),
        'args[4]["k"]': 8,
        "args[4][9]": 10,
        "args[5]": (13, 14),
        "args[6]": ("object", "builtins.tuple"),
        "args[6][0]": two_tensor,
        "args[6][1]": one_tensor,
        "args[7]": ("object", f"{__name__}.pair"),
        "args[7][0]": 15,
        "args[7][1]": ("object", "builtins.list"),
        "args[8]": ("object", "collections.OrderedDict"),
        'args[8]["o"]': 17,
        "kwargs.lr": 18,
        "kwargs.nested": ("object", "builtins.dict"),
        'kwargs.nested["z"]': ("object", "builtins.list"),
        "kwargs.give": ("object", "builtins.list"),
        "kwargs.give[0]": 20,
        "kwargs.give[1]": 21,
        "ret": ("object", "builtins.list"),
        "ret[0]": 20,
        "ret[1]": 21,
    }


def test_everything_is_bounded(recording: Recording) -> None:
    _probe.Probe(anything, 1, capture_all=True)(list(range(100)), *range(1000), d={i: i for i in range(100)})
    (call,) = recording.calls()
    assert len(call.captures) == 64 + 8 + 9 + 9


def test_two_functions_have_their_own_captures(recording: Recording) -> None:
    _probe.Probe(anything, 1, capture_all=True)(5, k=1)
    _probe.Probe(anything, 2, capture_all=True)(5, k=1)
    first, second = recording.calls()
    assert {c[0] for c in first.captures}.isdisjoint({c[0] for c in second.captures})


def test_containers_are_not_changed_by_reading(recording: Recording) -> None:
    counts: defaultdict[str, int] = defaultdict(int)
    assert one(recording, (("arg", 0, None), ("item", "k")), counts) == MISSING
    assert not counts


def test_a_tensor_is_never_indexed(recording: Recording) -> None:
    tensor = torch.ones(3, requires_grad=True)
    assert one(recording, (("arg", 0, None), ("item", 0)), tensor) == MISSING


@pytest.mark.filterwarnings("error")  # as reading the grad of a tensor that is no leaf would give one
def test_tensor_attributes(recording: Recording) -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    weight.grad = torch.zeros(2, 2)
    weight.note = "mine"  # type: ignore[attr-defined]
    middle = weight * 2
    names = ["requires_grad", "is_leaf", "dtype", "shape", "device", "grad", "note", "nothing", "_version", "ndim"]
    captures = [(100 + i, 0, (("arg", 0, None), ("attr", name))) for i, name in enumerate(names)]
    captures.append((200, 0, (("arg", 1, None), ("attr", "grad"))))
    captures.append((201, 0, (("arg", 0, None), ("attr", "grad"), ("attr", "dtype"))))
    _probe.Probe(anything, 1, captures=captures)(weight, middle)
    found = recording.captured(recording.calls()[0])
    assert [found[100 + i] for i in range(len(names))] == [
        True, True, "torch.float32", torch.Size([2, 2]), "cpu", ("Tensor", "torch.float32", (2, 2), "cpu", False),
        "mine", MISSING, 0, 2,
    ]  # fmt: skip
    assert found[200] is None
    assert found[201] == "torch.float32"


class Hostile:
    """Everything about it raises; nothing of it may be called."""

    def _never(self, *args: Any) -> Any:
        raise AssertionError("the user's code was called")

    __eq__ = __hash__ = __bool__ = __len__ = __iter__ = __repr__ = __str__ = __getitem__ = __int__ = __float__ = _never  # type: ignore[assignment]
    __index__ = __getattr__ = __contains__ = __class_getitem__ = __format__ = __dir__ = __call__ = _never  # type: ignore[assignment]


class HostileMeta(type):
    def __hash__(cls) -> int:
        raise AssertionError("the user's code was called")

    def __eq__(cls, other: object) -> bool:
        raise AssertionError("the user's code was called")

    def __getattribute__(cls, name: str) -> Any:
        if name.startswith("__") and name in ("__module__", "__qualname__"):
            return type.__getattribute__(cls, name)
        raise AssertionError(f"the user's code was called: {name}")


class MadeHostile(metaclass=HostileMeta):
    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("the user's code was called")


class HostileText(str):
    def __hash__(self) -> int:
        raise AssertionError("the user's code was called")

    __eq__ = __str__ = __len__ = __hash__  # type: ignore[assignment]


class HostileDict(dict[Any, Any]):
    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("the user's code was called")

    __iter__ = __len__ = keys = items = __contains__ = __getitem__  # type: ignore[assignment]


class HostileList(list[Any]):
    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("the user's code was called")

    __iter__ = __len__ = __getitem__  # type: ignore[assignment]


class HostileKey:
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        raise AssertionError("the user's code was called")


def test_no_user_code_runs(recording: Recording) -> None:
    key = HostileKey()
    values: list[Any] = [
        Hostile(), Hostile, MadeHostile, object.__new__(MadeHostile), HostileText("t"), HostileDict(a=1),
        HostileList([1]), {key: 1}, [key], (Hostile(),),
    ]  # fmt: skip

    def f(*args: Any, **kwargs: Any) -> Any:
        return args

    _probe.Probe(f, 1, capture_all=True, location=2)(*values, k=values)
    for value in values:
        _probe.Probe(f, 1, captures=[(1, 0, (("arg", 0, None), ("item", 0)))] if issubclass(type(value), list) else [])(
            value
        )
        _probe.encode(value)
    assert _probe.faults() == []
    assert len(recording.calls()) == 1 + len(values)


def test_attributes_that_raise(recording: Recording) -> None:
    class Angry:
        @property
        def lr(self) -> float:
            raise OSError("no")

        @property
        def gone(self) -> float:
            raise AttributeError("no")

    assert one(recording, (("arg", 0, None), ("attr", "lr")), Angry()) == "builtins.OSError"


def test_property_captures_run_muted(recording: Recording) -> None:
    inner = _probe.Probe(int, 2)

    class Holder:
        @property
        def lr(self) -> int:
            return inner(3)

    assert one(recording, (("arg", 0, None), ("attr", "lr")), Holder()) == 3
    assert [c.function for c in recording.calls()] == [1]


def test_a_failing_hook_is_counted_and_harmless(recording: Recording) -> None:
    def bad(*args: Any) -> None:
        raise RuntimeError("ours")

    def f(fail: bool) -> int:
        if fail:
            raise KeyError("theirs")
        return 3

    probe = _probe.Probe(f, 1, enter=bad, exit=bad)
    assert probe(False) == 3
    with pytest.raises(KeyError, match="theirs") as caught:
        probe(True)
    assert caught.value.__context__ is None
    where = "test_a_failing_hook_is_counted_and_harmless.<locals>.f"
    assert _probe.faults() == [
        (f"enter hook of {where}", "RuntimeError: ours", 2),
        (f"exit hook of {where}", "RuntimeError: ours", 2),
    ]
    assert [c.outcome for c in recording.calls()] == [0, 1]


@pytest.mark.parametrize("answer", [RuntimeError, "x", None, -1, 2**32, 1.5])
def test_a_failing_miss_is_counted_and_harmless(tmp_path: Path, answer: Any) -> None:
    def miss(kind: int, obj: Any) -> Any:
        if isinstance(answer, type):
            raise answer("disk")
        return answer

    _probe.open(str(tmp_path), 1 << 16, miss)
    probe = _probe.Probe(anything, 1, capture_all=True, location=2)
    value = torch.ones(2)
    assert probe("a", value, Colour.RED, int, (1, 2), torch.float32, k=[value]) == "a"
    with pytest.raises(ZeroDivisionError):
        _probe.Probe(lambda: 1 / 0, 2)()
    assert _probe.symbol("x") == 0
    ((where, _, count),) = _probe.faults()
    assert where == "miss"
    assert count > 10
    _probe.close()


def test_an_interrupt_in_our_code_reaches_the_user(recording: Recording) -> None:
    """Ctrl-C while a hook runs: the hook is cut short, the program gets its KeyboardInterrupt."""

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    probe = _probe.Probe(int, 1, enter=interrupted)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        probe(3)
        for _ in range(1000):
            sum(range(10))
    assert _probe.faults() == []


def test_nothing_is_kept_alive(recording: Recording) -> None:
    class Plain: ...

    class Custom(torch.Tensor): ...

    probe = _probe.Probe(anything, 1, capture_all=True, location=2)
    objects = [Plain(), torch.ones(3), torch.nn.Linear(2, 2), torch.ones(2).as_subclass(Custom), Plain, Custom]
    gone = [weakref.ref(o) for o in objects]
    for o in objects:
        probe(o, [o], {"k": o}, k=o, give=[o])
        _probe.encode(o)

    class Mine(enum.Enum):
        A = 1

    probe(Mine.A, Mine)
    gone.append(weakref.ref(Mine))

    class Oops(Exception): ...

    def f() -> None:
        raise Oops  # noqa: F821

    with pytest.raises(Oops):
        _probe.Probe(f, 2)()
    gone.append(weakref.ref(Oops))
    del objects, o, Plain, Custom, Mine, Oops, f
    gc.collect()
    assert [r() for r in gone] == [None] * len(gone)


def test_a_new_class_at_an_old_address_has_its_own_name(recording: Recording) -> None:
    probe = _probe.Probe(anything, 1, capture_all=True)
    for i in range(300):
        probe(type(f"Made{i}", (), {})())
        gc.collect(0)
    names = [recording.captured(c)["args[0]"][1] for c in recording.calls()]
    assert [n.rsplit(".", 1)[1] for n in names] == [f"Made{i}" for i in range(300)]


def test_memory_does_not_grow(open_recording: OpenRecording) -> None:
    recording = open_recording(segment_bytes=8 << 20)
    tensor = torch.ones(3, 4)
    shared = [tensor, "text", 2**80, {"k": (1, 2)}]
    probe = _probe.Probe(anything, 1, capture_all=True, location=2)

    def work(n: int) -> None:
        for _ in range(n):
            probe(tensor, shared, "text", 2**80, torch.Size([3]), torch.float32, 0.5, (1, 2), k=shared[3])

    def references() -> list[int]:
        return [sys.getrefcount(o) for o in (tensor, shared, shared[3], "text", torch.float32, None, True)]

    work(100)
    gc.collect()
    before, blocks = references(), sys.getallocatedblocks()
    work(100_000)
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 200
    assert all(abs(a - b) < 50 for a, b in zip(references(), before, strict=True))
    assert _probe.dropped() == 0
    _probe.close()
    for path in recording.directory.iterdir():
        path.unlink()


def test_the_number_of_interned_values_is_bounded(tmp_path: Path) -> None:
    """A program that passes ever new strings fills neither memory nor the symbols file: in the end they are objects."""
    asked = 0

    def miss(kind: int, obj: Any) -> int:
        nonlocal asked
        asked += 1
        return asked

    _probe.open(str(tmp_path), 1 << 16, miss)
    kinds = [_probe.encode(str(i))[0] for i in range(1_000_010)]
    assert kinds.count(Value.SYMBOL) == 1_000_000
    assert kinds[-10:] == [Value.OBJECT] * 10
    assert _probe.encode("0")[0] == Value.SYMBOL
    assert _probe.encode(torch.ones(1))[0] == Value.OBJECT
    assert asked < 1_000_010
    _probe.close()
