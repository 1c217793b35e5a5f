"""To the program a probe is the function it stands for."""

from __future__ import annotations

import builtins
import copy
import functools
import gc
import importlib.util
import inspect
import multiprocessing.reduction
import operator
import pickle
import subprocess
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.probe.conftest import Recording
from traincheck.collect import _probe

WRAPPERS: list[Callable[[Any], Any]] = [lambda f: _probe.Probe(f, 1), _probe.Mute]


@pytest.fixture(params=WRAPPERS, ids=["Probe", "Mute"])
def wrap(request: pytest.FixtureRequest) -> Any:
    return request.param


def example(a: int, b: str = "x", *rest: float, key: bool = False) -> tuple[Any, ...]:
    """An example."""
    return a, b, rest, key


class Thing:
    size = 3

    def method(self, a: int) -> tuple[Any, int]:
        """A method."""
        return self, a

    @classmethod
    def make(cls, a: int) -> tuple[type, int]:
        return cls, a

    @staticmethod
    def plain(a: int) -> int:
        return a

    def __call__(self, a: int) -> int:
        return a + 1


def test_a_function(wrap: Any) -> None:
    p = wrap(example)
    assert p(1, "y", 2.0, key=True) == (1, "y", (2.0,), True)
    assert p.__wrapped__ is example
    assert (p.__name__, p.__qualname__, p.__module__, p.__doc__) == ("example", "example", __name__, "An example.")
    assert p.__code__ is example.__code__
    assert p.__dict__ is example.__dict__
    assert p.__class__ is types.FunctionType
    assert isinstance(p, types.FunctionType)
    assert inspect.isfunction(p)
    assert inspect.isroutine(p)
    assert callable(p)
    assert repr(p) == repr(example)
    assert str(p) == str(example)
    assert set(dir(p)) >= set(dir(example))
    assert inspect.signature(p) == inspect.signature(example)
    assert inspect.getsource(p) == inspect.getsource(example)
    assert inspect.getdoc(p) == "An example."
    assert inspect.unwrap(p) is example
    assert inspect.getfullargspec(p) == inspect.getfullargspec(example)
    assert type(p).__name__ in ("MethodProbe", "MethodMute")
    assert _probe.is_probe(p)
    assert not _probe.is_probe(example)


def test_attributes_are_the_functions_own(wrap: Any) -> None:
    def f() -> None: ...

    p = wrap(f)
    p.note = 1
    assert f.note == 1  # type: ignore[attr-defined]
    f.other = 2  # type: ignore[attr-defined]
    assert p.other == 2
    del p.note
    assert not hasattr(f, "note")
    with pytest.raises(AttributeError, match="'function' object has no attribute 'note'"):
        p.note  # noqa: B018
    p.__name__ = "renamed"
    assert f.__name__ == "renamed"
    p.__doc__ = "said later"
    assert f.__doc__ == "said later"


def test_enabled_and_record_are_the_probes() -> None:
    def f() -> None: ...

    p = _probe.Probe(f, 1)
    p.enabled = False
    p.record = False
    assert (p.enabled, p.record) == (False, False)
    assert not hasattr(f, "enabled")
    m = _probe.Mute(f)
    assert not hasattr(m, "enabled")


def test_equal_and_hashed_as_the_function(wrap: Any) -> None:
    p, q = wrap(example), _probe.Probe(example, 2)
    other = wrap(len)
    assert p == example
    assert example == p
    assert p == q
    assert q == p
    assert not (p != example)  # noqa: SIM202
    assert p != other
    assert p != 3
    assert p is not example
    assert hash(p) == hash(example)
    assert {example: "x"}[p] == "x"
    assert {p: "x"}[example] == "x"
    assert {p} | {example} | {q} == {example}
    assert weakref.WeakKeyDictionary({example: 1})[p] == 1
    built = wrap(len)
    assert built == len
    assert len == built
    assert {len: 1}[built] == 1


def test_methods_bind(wrap: Any) -> None:
    class Sub(Thing): ...

    Sub.method = wrap(Thing.method)  # type: ignore[method-assign]
    thing = Sub()
    assert thing.method(1) == (thing, 1)
    assert Sub.method(thing, 2) == (thing, 2)
    bound = thing.method
    assert isinstance(bound, types.MethodType)
    assert bound.__self__ is thing
    assert bound.__func__ == Thing.method
    assert bound == thing.method
    assert inspect.ismethod(bound)
    assert str(inspect.signature(bound)) == "(a: 'int') -> 'tuple[Any, int]'"
    assert Sub.method.__get__(thing)(3) == (thing, 3)
    assert Sub.__dict__["method"].__get__(None, Sub) is Sub.__dict__["method"]
    assert super(Sub, thing).method(4) == (thing, 4)


def test_a_bound_access_goes_through_the_probe(recording: Recording) -> None:
    class Sub(Thing): ...

    probe = _probe.Probe(Thing.method, 1)
    Sub.method = probe  # type: ignore[method-assign,assignment]
    thing = Sub()
    thing.method(1)
    bound = thing.method
    bound(2)
    Sub.method.__get__(thing, Sub)(3)
    Sub.method(thing, 4)
    probe.__call__(thing, 5)
    functools.partial(thing.method, 6)()
    operator.methodcaller("method", 7)(thing)
    getattr(thing, "method")(*(8,), **{})  # noqa: B009, PIE804
    assert len(recording.calls()) == 8


def test_classmethod_and_staticmethod(wrap: Any, recording: Recording) -> None:
    class Sub(Thing):
        make = classmethod(wrap(Thing.__dict__["make"].__func__))
        plain = staticmethod(wrap(Thing.__dict__["plain"].__func__))

    assert Sub.make(1) == (Sub, 1)
    assert Sub().make(2) == (Sub, 2)
    assert Sub.plain(3) == 3
    assert Sub().plain(4) == 4
    assert inspect.signature(Sub.make).parameters.keys() == {"a"}
    assert inspect.signature(Sub.plain).parameters.keys() == {"a"}
    assert isinstance(Sub.__dict__["make"], classmethod)
    expected = 4 if type(Sub.__dict__["plain"].__func__).__name__.endswith("Probe") else 0
    assert len(recording.calls()) == expected


def test_builtins_do_not_bind(wrap: Any) -> None:
    class Holder:
        length = wrap(len)
        thing = wrap(Thing())
        partial = wrap(functools.partial(example, 1))
        cls = wrap(int)

    holder = Holder()
    assert holder.length([1, 2]) == 2
    assert holder.thing(1) == 2
    assert holder.partial("z") == (1, "z", (), False)
    assert holder.cls("3") == 3
    assert not hasattr(holder.length, "__get__")
    assert holder.length.__class__ is types.BuiltinFunctionType
    assert inspect.isbuiltin(holder.length)
    assert inspect.signature(holder.length) == inspect.signature(len)


def test_method_descriptors_bind(wrap: Any) -> None:
    class Text(str):
        upper = wrap(str.upper)
        __add__ = wrap(str.__add__)

    text = Text("a")
    assert text.upper() == "A"
    assert Text.upper("b") == "B"
    assert text + "b" == "ab"
    assert inspect.ismethoddescriptor(Text.__dict__["upper"])
    assert Text.__dict__["upper"].__objclass__ is str


def test_other_descriptors_are_asked(wrap: Any) -> None:
    thing = Thing()

    class Holder:
        bound = wrap(thing.method)
        cached = wrap(functools.lru_cache(Thing.method))

    holder = Holder()
    assert holder.bound(1) == (thing, 1)
    assert holder.cached(2) == (holder, 2)
    assert holder.cached(2) == (holder, 2)
    assert Holder.cached.cache_info().hits == 1


def test_wraps(wrap: Any) -> None:
    p = wrap(example)

    @functools.wraps(p)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return p(*args, **kwargs)

    assert outer.__name__ == "example"
    assert outer.__wrapped__ is p
    assert inspect.signature(outer) == inspect.signature(example)
    assert inspect.unwrap(outer) is example


def test_of_a_decorated_function(wrap: Any) -> None:
    @functools.wraps(example)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return example(*args, **kwargs)

    p = wrap(decorated)
    assert p.__wrapped__ is decorated
    assert inspect.signature(p) == inspect.signature(example)
    assert inspect.unwrap(p) is example


def test_copies_are_itself(wrap: Any) -> None:
    p = wrap(example)
    assert copy.copy(p) is p
    assert copy.deepcopy({"f": p})["f"] is p


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An importable module of the program's own."""
    (tmp_path / "users_own.py").write_text(
        "def f(a):\n    return a * 2\nclass C:\n    def m(self):\n        return 5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("users_own")
    sys.modules.pop("users_own")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_by_name(module: Any, wrap: Any, protocol: int) -> None:
    original = module.f
    module.f = wrap(original)
    data = pickle.dumps({"f": module.f}, protocol)
    assert data == pickle.dumps({"f": module.f}, protocol)
    assert b"traincheck" not in data
    assert pickle.loads(data)["f"] is module.f
    held = module.f
    module.f = original  # taken off: what the program still holds is pickled by the same name
    again = pickle.dumps(held, protocol)
    assert b"traincheck" not in again
    assert pickle.loads(again) is original
    module.f = wrap(original)  # put on anew
    assert pickle.loads(pickle.dumps(held, protocol)) is module.f
    module.C.m = wrap(module.C.m)
    if protocol >= 4:
        assert pickle.loads(pickle.dumps(module.C.m, protocol)) is module.C.__dict__["m"]
    assert pickle.loads(pickle.dumps(module.C().m, protocol))() == 5
    assert pickle.loads(multiprocessing.reduction.ForkingPickler.dumps(module.f)) is module.f


def test_unpickled_without_traincheck(module: Any, wrap: Any, tmp_path: Path) -> None:
    original = module.f
    module.f = wrap(original)
    data = [pickle.dumps(module.f), pickle.dumps(wrap(original)), pickle.dumps(wrap(len)), pickle.dumps(module.C.m)]
    program = (
        "import sys, pickle\n"
        "sys.modules['traincheck'] = None\n"
        f"f, g, l, m = [pickle.loads(d) for d in {data!r}]\n"
        "assert f(4) == g(4) == 8 and l is len and m(None) == 5\n"
        "assert 'traincheck.collect' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)


def test_a_local_function_fails_to_pickle_as_ever(wrap: Any) -> None:
    def local() -> None: ...

    with pytest.raises((AttributeError, pickle.PicklingError), match="local"):
        pickle.dumps(wrap(local))


def test_weak_references_and_cycles(wrap: Any) -> None:
    def f() -> None: ...

    p = wrap(f)
    f.me = p  # type: ignore[attr-defined]
    gone = weakref.ref(p)
    f_gone = weakref.ref(f)
    assert gone() is p
    del p, f
    gc.collect()
    assert gone() is None
    assert f_gone() is None


def test_hooks_in_a_cycle_are_collected() -> None:
    def f() -> None: ...

    def enter(*args: Any) -> Any:
        return p  # noqa: F821

    p = _probe.Probe(f, 1, enter=enter)
    gone = weakref.ref(p)
    del p, enter
    gc.collect()
    assert gone() is None


def test_exceptions_and_tracebacks_are_unchanged(wrap: Any, recording: Recording) -> None:
    def f() -> None:
        raise KeyError("why")

    frames = []
    for target in (f, wrap(f)):
        with pytest.raises(KeyError) as caught:
            target()
        assert caught.value.__context__ is None
        frames.append([entry.name for entry in caught.traceback][1:])
    assert frames[0] == frames[1] == ["f"]


def test_replacing_a_builtin_everywhere_keeps_the_program_alive(wrap: Any) -> None:
    original = builtins.len
    builtins.len = wrap(original)
    try:
        assert sorted([[1, 2], [1]], key=len) == [[1], [1, 2]]
        assert list(map(len, ["a", "bb"])) == [1, 2]
        assert functools.reduce(lambda n, s: n + len(s), ["a", "bb"], 0) == 3
        spec = importlib.util.find_spec("json.tool")
        assert spec is not None
    finally:
        builtins.len = original


def test_construction() -> None:
    with pytest.raises(TypeError, match="stands for a callable"):
        _probe.Probe(3, 1)
    with pytest.raises(TypeError, match="stands for a callable"):
        _probe.Mute(None)
    with pytest.raises(ValueError, match="group 0 to 15"):
        _probe.Probe(len, 1, group=16)
    with pytest.raises(TypeError, match="enter must be callable"):
        _probe.Probe(len, 1, enter=3)  # type: ignore[arg-type]
    for captures, error in [
        ([3], "a capture must be a tuple"),
        ([(1, 2, (("ret",),))], "moment must be"),
        ([(1, 0, (("ret",),))], "only at moment 1"),
        ([(1, 0, ())], "path must be a tuple"),
        ([(1, 0, (("attr", "x"),))], "unknown capture step"),
        ([(1, 0, (("arg", 0, None), ("arg", 0, None)))], "unknown capture step"),
        ([(1, 0, (("arg", -1, None),))], "index must be 0 or more"),
        ([(1, 0, (("kw", 3),))], "must be a string"),
        ([(1, 0, (("self",), ("item", 1.5)))], "integer"),
        ([(1, 0, (("self",), ("item",)))], "unknown capture step"),
    ]:
        with pytest.raises((TypeError, ValueError), match=error):
            _probe.Probe(len, 1, captures=captures)  # type: ignore[arg-type]


def test_a_probe_may_drop_itself_during_its_call(recording: Recording) -> None:
    holder: dict[str, Any] = {}

    def f() -> int:
        holder.clear()
        gc.collect()
        return 1

    holder["f"] = _probe.Probe(f, 1, enter=lambda *a: 1, exit=lambda *a: 2)
    assert holder["f"]() == 1
    holder["f"] = _probe.Probe(f, 2)
    assert holder["f"]() == 1
    holder["f"] = _probe.Mute(f)
    assert holder["f"]() == 1
    assert [c.outcome for c in recording.calls()] == [0, 0]
