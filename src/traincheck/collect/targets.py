"""Targets: which functions of the loaded modules a plan puts probes on, and in which role.

Finding only: nothing is changed here (``install`` does that).
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from traincheck.collect.bindings import family
from traincheck.collect.catalog import (
    BOUNDARY_CLASSES,
    BOUNDARY_FUNCTIONS,
    BOUNDARY_SUBCLASSES,
    COMPILING,
    EXCLUDED_METHODS,
    EXCLUDED_MODULES,
    EXCLUDED_NAMES,
    LOOKING,
    METADATA_METHODS,
    MUTED,
    NAMES,
    SPECIAL_METHODS,
)
from traincheck.collect.symbols import full_name

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class Target:
    """One function to probe. ``owner.__dict__[attribute]`` holds ``raw``; ``function`` is what is called.

    ``kind`` as in the symbols file. ``role`` says which observation point or driver it is (``Optimizer:step``), empty
    for none.
    ``boundary``: part of the boundary scope.
    """

    owner: Any
    attribute: str
    raw: Any
    function: Any
    kind: str
    name: str
    role: str = ""
    boundary: bool = False
    muted: bool = False


def unwrap_descriptor(raw: Any) -> tuple[Any, str]:
    """(function, kind) behind a class attribute."""
    if isinstance(raw, staticmethod):
        return raw.__func__, "staticmethod"
    if isinstance(raw, classmethod):
        return raw.__func__, "classmethod"
    if isinstance(raw, types.MethodDescriptorType):
        return raw, "c_method"
    if isinstance(raw, types.BuiltinFunctionType):
        return raw, "builtin"
    return raw, "method"


def parameters(function: Any) -> list[str] | None:
    """Names of the parameters in order, with the stars of variadic ones; None when there is no signature."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError, RecursionError):
        return None
    stars: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(p.kind, "") + name for name, p in signature.parameters.items()]


def excluded(module: str) -> bool:
    """Whether a module is the inner life of a library: private, or listed in the catalogue."""
    parts = module.split(".")
    if any(part.startswith("_") and part != "__main__" for part in parts):
        return True
    return any(module == prefix or module.startswith(prefix + ".") for prefix in EXCLUDED_MODULES)


def home_is_loaded(name: str) -> bool:
    """Whether the module that a function of this full name would be in is loaded."""
    parts = name.split(".")
    while len(parts) > 1:
        parts.pop()
        module = ".".join(parts)
        if module in sys.modules:
            # What follows must be a class or the function itself: a lower-case part would be a module not loaded.
            rest = name[len(module) + 1 :].split(".")
            return len(rest) == 1 or not rest[0][:1].islower() or rest[0] in vars(sys.modules[module])
    return False


# --- boundary ---------------------------------------------------------------------------------------------------------


def boundary(modules: Iterable[str]) -> Iterator[Target]:
    """What training loops are made of, as far as ``modules`` (names in sys.modules) hold it."""
    names = set(modules)
    for module, functions in BOUNDARY_FUNCTIONS.items():
        if module in names:
            for attribute, role in functions.items():
                raw = vars(sys.modules[module]).get(attribute)
                if callable(raw) and not isinstance(raw, type):
                    yield _function_target(sys.modules[module], attribute, raw, role, boundary=True)
    for module, classes in BOUNDARY_CLASSES.items():
        if module in names:
            for class_name, methods in classes.items():
                cls = vars(sys.modules[module]).get(class_name)
                if isinstance(cls, type):
                    yield from _methods(cls, methods)
    for module, (class_name, methods) in BOUNDARY_SUBCLASSES.items():
        base = getattr(sys.modules.get(module), class_name, None)
        if isinstance(base, type):
            for cls in family(base):
                if cls.__module__ in names:
                    yield from _methods(cls, methods)


def of_class(cls: type) -> Iterator[Target]:
    """Boundary targets of one class made later, such as the user's own optimizer."""
    for module, (class_name, methods) in BOUNDARY_SUBCLASSES.items():
        base = getattr(sys.modules.get(module), class_name, None)
        if isinstance(base, type) and issubclass(cls, base):
            for ancestor in cls.__mro__:
                if ancestor is not object and issubclass(ancestor, base):
                    yield from _methods(ancestor, methods)


def machinery(modules: Iterable[str]) -> Iterator[Target]:
    """Entrances to what is not training (fake tensors, tracing, compiling); ``role`` says what happens there."""
    entrances = [("", path) for path in MUTED] + [("jit", path) for path in LOOKING]
    for role, path in [*entrances, *(("dynamo", path) for path in COMPILING)]:
        module, _, rest = path.partition(":")
        if module not in modules or module not in sys.modules:
            continue
        owner: Any = sys.modules[module]
        *outer, attribute = rest.split(".")
        for part in outer:
            owner = getattr(owner, part, None)
        raw = vars(owner).get(attribute) if owner is not None else None
        if raw is not None:
            function, kind = unwrap_descriptor(raw)
            yield Target(owner, attribute, raw, function, kind, full_name(function), role, muted=True)


def _methods(cls: type, methods: dict[str, str]) -> Iterator[Target]:
    for attribute, role in methods.items():
        raw = cls.__dict__.get(attribute)
        if raw is not None:
            target = _method_target(cls, attribute, raw, role, boundary=True)
            if target is not None:
                yield target


# --- full -------------------------------------------------------------------------------------------------------------


def full(modules: Iterable[str], packages: tuple[str, ...]) -> Iterator[Target]:
    """Public functions and methods of ``packages`` found in ``modules``; each object once."""
    seen: set[int] = set()
    for module_name in sorted(modules):
        if not _within(module_name, packages) or excluded(module_name):
            continue
        module = sys.modules.get(module_name)
        if not isinstance(module, types.ModuleType):
            continue
        for attribute, raw in list(vars(module).items()):
            if attribute.startswith("_") or id(raw) in seen:
                continue
            # By real type: asking ``isinstance`` would run the code of objects that answer for their class.
            if issubclass(type(raw), _FUNCTIONS):
                if _ours(raw, packages):
                    seen.add(id(raw))
                    yield _function_target(module, attribute, raw, "")
            elif issubclass(type(raw), type) and raw.__module__ == module_name and _plain_class(raw):
                seen.add(id(raw))
                yield from _class_targets(raw)
    torch = sys.modules.get("torch")
    if "torch" in modules and torch is not None:
        yield from _tensor_methods(torch)


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == p or module.startswith(p + ".") for p in packages)


def _ours(function: Any, packages: tuple[str, ...]) -> bool:
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or not _within(module, packages):
        return False
    name = full_name(function)
    if name in EXCLUDED_NAMES or "<locals>" in name or "pybind11_detail" in name:
        return False
    if isinstance(function, types.BuiltinFunctionType):
        return not function.__name__.startswith("_")
    return not excluded(module) and not function.__name__.startswith("_")


_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8


def _plain_class(cls: type) -> bool:
    """A public class whose attributes can be replaced and whose methods are somebody's calls."""
    if type(cls).__name__ == "pybind11_type":  # torch's compiler types, seen through the module torch
        return False
    if full_name(cls) in EXCLUDED_NAMES:
        return False
    changeable = cls.__flags__ & _HEAP_TYPE and not cls.__flags__ & _IMMUTABLE_TYPE
    return bool(changeable) and not cls.__name__.startswith("_") and not issubclass(cls, BaseException)


def _class_targets(cls: type) -> Iterator[Target]:
    for attribute, raw in list(cls.__dict__.items()):
        if (attribute.startswith("_") and attribute not in SPECIAL_METHODS) or attribute in EXCLUDED_METHODS:
            continue
        target = _method_target(cls, attribute, raw, "")
        if target is not None and target.name not in EXCLUDED_NAMES and "<locals>" not in target.name:
            yield target


def _tensor_methods(torch: Any) -> Iterator[Target]:
    """C methods of tensors, put on ``torch.Tensor`` (its C base class is immutable); metadata reads are left alone."""
    for attribute, raw in vars(torch._C.TensorBase).items():
        if (
            isinstance(raw, types.MethodDescriptorType)
            and not attribute.startswith("_")
            and attribute not in METADATA_METHODS
            and attribute not in vars(torch.Tensor)
        ):
            yield Target(torch.Tensor, attribute, None, raw, "c_method", full_name(raw))


def _function_target(module: Any, attribute: str, raw: Any, role: str, boundary: bool = False) -> Target:
    kind = "builtin" if isinstance(raw, types.BuiltinFunctionType) else "function"
    return Target(module, attribute, raw, raw, kind, full_name(raw), role, boundary)


def _method_target(cls: type, attribute: str, raw: Any, role: str, boundary: bool = False) -> Target | None:
    function, kind = unwrap_descriptor(raw)
    if isinstance(function, type) or not isinstance(function, (*_FUNCTIONS, types.MethodDescriptorType)):
        return None
    if attribute == "apply" and cls.__name__ == "Function" and cls.__module__ == "torch.autograd.function":
        kind = "autograd_apply"
    name = NAMES.get((cls.__module__, cls.__name__, attribute)) or full_name(function)
    return Target(cls, attribute, raw, function, kind, name, role, boundary)
