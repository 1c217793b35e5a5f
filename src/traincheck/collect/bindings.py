"""Bindings: the places where a function stands, how each is read and written, and the ones off the beaten track.

A function that stands in two places must be replaced in both: programs compare functions with ``is``
(``nn.TransformerEncoderLayer`` asks whether its activation, by default ``F.relu``, is ``F.relu``).
"""

from __future__ import annotations

import contextlib
import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from traincheck.collect import _probe

ABSENT: Any = object()
"""What ``read`` gives for a place that holds nothing of its own."""

C_MODULES = ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
"""Modules in torch._C from which torch takes the function that it hands to ``__torch_function__``."""

_IMMUTABLE_TYPE = 1 << 8


def read(owner: Any, attribute: str) -> Any:
    """What stands in the place itself, not in a base class; ABSENT if nothing.

    A place is an attribute of a module or class, or of an object (given as a weak reference), ``cell_contents`` of a
    closure's cell, ``__defaults__`` or ``__kwdefaults__`` of a function.
    """
    kind = type(owner)
    if kind is weakref.ref:
        owner = owner()
        return vars(owner).get(attribute, ABSENT) if owner is not None else ABSENT
    if kind is types.CellType:
        try:
            return owner.cell_contents
        except ValueError:
            return ABSENT
    if kind is types.FunctionType and attribute in ("__defaults__", "__kwdefaults__"):
        return getattr(owner, attribute)
    return vars(owner).get(attribute, ABSENT)


def write(owner: Any, attribute: str, value: Any) -> None:
    """Put ``value`` there, or take away what is there (ABSENT). Raises TypeError or AttributeError if refused."""
    if type(owner) is weakref.ref:
        owner = owner()
        if owner is not None:
            vars(owner)[attribute] = value  # past a ``__setattr__`` of the program's own
    elif value is ABSENT:
        delattr(owner, attribute)
    elif issubclass(type(owner), type) and owner.__flags__ & _IMMUTABLE_TYPE:
        _probe.replace(owner, attribute, value)
    else:
        setattr(owner, attribute, value)


def in_c_namespaces(torch: Any) -> Iterator[tuple[Any, str, Any, Any]]:
    """(owner, attribute, what stands there, function) of torch's C functions, where torch itself looks them up."""
    namespace = type(torch._C._VariableFunctions)
    for attribute, raw in list(vars(namespace).items()):
        if isinstance(raw, staticmethod):
            yield namespace, attribute, raw, raw.__func__
    for name in C_MODULES:
        module = getattr(torch._C, name, None)
        if isinstance(module, types.ModuleType):
            for attribute, raw in list(vars(module).items()):
                yield module, attribute, raw, raw


def off_the_track(known: Callable[[Any], Any], wanted: Callable[[str], bool]) -> Iterator[tuple[Any, str, Any, Any]]:
    """(owner, attribute, before, after) of known functions that are defaults, attributes of models and datasets, or in
    what schedulers put on optimizers.

    ``known`` gives what stands for a value (the value itself, if nothing does); ``wanted`` says of a module's name
    whether its functions count. A scheduler puts a function on its optimizer that holds the class's ``step`` in a
    closure: an optimizer that got its scheduler before the probes came would never reach them. And a model that holds a
    function can only be pickled if it is the one that is found under its name.
    """
    optimizers, holders = _classes_of(_OPTIMIZERS), _classes_of(_HOLDERS)
    for obj in gc.get_objects():
        if type(obj) is types.FunctionType:
            if (obj.__defaults__ or obj.__kwdefaults__) and isinstance(obj.__module__, str) and wanted(obj.__module__):
                yield from _defaults(obj, known)
        elif type(obj) in holders:
            for attribute, value in list(vars(obj).items()):
                if known(value) is not value:
                    yield weakref.ref(obj), attribute, value, known(value)
        elif type(obj) in optimizers:
            step = vars(obj).get("step")
            if type(step) is types.FunctionType and hasattr(step, "_wrapped_by_lr_sched"):
                for cell in step.__closure__ or ():
                    function = read(cell, "cell_contents")
                    if known(function) is not function:
                        yield cell, "cell_contents", function, known(function)


_OPTIMIZERS = (("torch.optim.optimizer", "Optimizer"),)
_HOLDERS = (
    ("torch.nn.modules.module", "Module"),
    ("torch.utils.data.dataset", "Dataset"),
    ("torch.utils.data.dataloader", "DataLoader"),
)


def _classes_of(bases: tuple[tuple[str, str], ...]) -> set[type]:
    """The families of these classes (module, name), as far as they are loaded; by real type, since ``isinstance`` runs
    code of the program's.
    """
    found = (getattr(sys.modules.get(module), name, None) for module, name in bases)
    return {cls for base in found if isinstance(base, type) for cls in family(base)}


def _defaults(function: types.FunctionType, known: Callable[[Any], Any]) -> Iterator[tuple[Any, str, Any, Any]]:
    positional, keyword = function.__defaults__, function.__kwdefaults__
    if positional:
        new = tuple(known(value) for value in positional)
        if any(a is not b for a, b in zip(new, positional, strict=True)):
            yield function, "__defaults__", positional, new
    if keyword:
        named = {name: known(value) for name, value in keyword.items()}
        if any(named[name] is not keyword[name] for name in keyword):
            yield function, "__kwdefaults__", keyword, named


def family(base: type) -> Iterator[type]:
    """``base`` and all its subclasses, each once."""
    seen: set[int] = set()
    waiting = [base]
    while waiting:
        cls = waiting.pop()
        if id(cls) not in seen:
            seen.add(id(cls))
            yield cls
            waiting.extend(type.__subclasses__(cls))


# --- what still holds a probe -----------------------------------------------------------------------------------------


def release(probes: list[tuple[Any, Any]]) -> None:
    """Put the original back wherever a probe still stands: copies that the program or torch made while probes were on.

    ``probes``: (probe, original). Modules' and objects' attributes, dictionaries' and lists' values, closures, defaults
    and class attributes are written; tuples, sets and keys are left (there the probe passes through). Nothing raises.
    """
    held = [pair for pair in probes if sys.getrefcount(pair[0]) > _OWN_REFERENCES]
    if not held:
        return
    originals = {id(probe): original for probe, original in held}
    ours = {id(pair) for pair in held}
    holders = [holder for holder in gc.get_referrers(*(probe for probe, _ in held)) if id(holder) not in ours]
    methods = [holder for holder in holders if type(holder) is types.MethodType]
    if methods:
        originals |= {id(m): types.MethodType(originals[id(m.__func__)], m.__self__) for m in methods}
        holders += [holder for holder in gc.get_referrers(*methods) if holder is not holders and holder is not methods]
    classes = _namespaces()
    wrapped = [holder for holder in holders if type(holder) in (tuple, staticmethod, classmethod)]
    around = gc.get_referrers(*wrapped) if wrapped else []
    for holder in holders:
        with contextlib.suppress(Exception):  # an object of the program's own that refuses: its probe passes through
            _release_from(holder, originals, classes)
    inner = {id(holder): holder for holder in wrapped}
    for holder in around:
        with contextlib.suppress(Exception):
            _release_around(holder, inner, originals, classes)


_OWN_REFERENCES = 2
"""References to a probe that nobody else holds: its pair and getrefcount's argument."""


def _release_from(holder: Any, originals: dict[int, Any], classes: dict[int, type]) -> None:
    kind = type(holder)
    if issubclass(kind, dict):
        owner = classes.get(id(holder))
        for key, value in list(dict.items(holder)):
            if id(value) in originals:
                if owner is None:
                    dict.__setitem__(holder, key, originals[id(value)])
                else:
                    write(owner, key, originals[id(value)])
    elif issubclass(kind, list):
        for index, value in enumerate(list.__iter__(holder)):
            if id(value) in originals:
                list.__setitem__(holder, index, originals[id(value)])
    elif kind is types.CellType:
        if id(read(holder, "cell_contents")) in originals:
            holder.cell_contents = originals[id(holder.cell_contents)]
    elif kind not in (tuple, staticmethod, classmethod, types.MethodType, types.FrameType):
        # an object whose attributes are in slots, or not in a dictionary yet
        for member in (m for cls in kind.__mro__ for m in vars(cls).values() if type(m) is types.MemberDescriptorType):
            value = member.__get__(holder)
            if id(value) in originals:
                member.__set__(holder, originals[id(value)])
        for name, value in list(object.__getattribute__(holder, "__dict__").items()):
            if id(value) in originals:
                object.__setattr__(holder, name, originals[id(value)])


def _release_around(holder: Any, inner: dict[int, Any], originals: dict[int, Any], classes: dict[int, type]) -> None:
    """Functions whose defaults are a tuple with a probe; classes whose static or class method is a probe."""
    if type(holder) is types.FunctionType:
        if id(holder.__defaults__) in inner:
            holder.__defaults__ = tuple(originals.get(id(value), value) for value in holder.__defaults__ or ())
    elif type(holder) is dict and id(holder) in classes:
        for name, value in list(holder.items()):
            method = inner.get(id(value))
            if isinstance(method, (staticmethod, classmethod)):
                write(classes[id(holder)], name, type(method)(originals[id(method.__func__)]))


def _namespaces() -> dict[int, type]:
    """id of a class's own namespace -> the class; writing there past the class would leave its method cache stale."""
    return {id(inner): cls for cls in family(object) for inner in gc.get_referents(cls) if type(inner) is dict}
