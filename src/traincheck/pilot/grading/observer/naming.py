"""Names of parameters, buffers and inputs that do not depend on what a model is wrapped in."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module", "_dp_wrapped_module"})


class Models:
    """The outermost modules that were run with gradients and have parameters: what is trained."""

    def __init__(self) -> None:
        self._roots: list[torch.nn.Module] = []
        self._parts: set[int] = set()

    def seen(self, module: torch.nn.Module) -> bool:
        """Take note of a module that was called from no other; gives whether it is a model, and no part of one."""
        if any(module is root for root in self._roots):
            return True
        if id(module) in self._parts or not _trains(module):
            return False  # a part called by itself, for instance again in a checkpointed backward
        parts = {id(part) for part in module.modules()}
        inside = [place for place, root in enumerate(self._roots) if id(root) in parts]
        if inside:  # it wraps what had been called bare
            self._roots[inside[0]] = module
            self._roots = [root for place, root in enumerate(self._roots) if place not in inside[1:]]
        else:
            self._roots.append(module)
        self._parts |= parts
        return True

    def parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Names and parameters, each parameter once."""
        seen: set[int] = set()
        for prefix, root in self._named():
            for name, parameter in root.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield prefix + bare(name, root), parameter

    def buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and buffers, each buffer once."""
        seen: set[int] = set()
        for prefix, root in self._named():
            for name, buffer in root.named_buffers():
                if id(buffer) not in seen:
                    seen.add(id(buffer))
                    yield prefix + bare(name, root), buffer

    def _named(self) -> Iterator[tuple[str, torch.nn.Module]]:
        for number, root in enumerate(self._roots, start=1):
            yield ("" if number == 1 else f"model{number}."), root


def bare(name: str, root: torch.nn.Module) -> str:
    """``name`` as it would be in the model that ``root`` wraps."""
    words = name.split(".")
    module: Any = root
    while words[0] == "module" and _is_wrapper(module):
        words, module = words[1:], module.module
    return ".".join(word for word in words if word not in _WRAPPERS)


def inputs(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of at least one dimension that a call of the model got, by the names its ``forward`` has for them."""
    inner: Any = module
    while _is_wrapper(inner):
        inner = inner.module
    inner = getattr(inner, "_fsdp_wrapped_module", None) or getattr(inner, "_orig_mod", None) or inner
    variable = ""
    try:
        signature = inspect.signature(inner.forward)
        named = dict(signature.bind_partial(*args, **kwargs).arguments)
        variable = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
    except (TypeError, ValueError):
        named = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    named.update(named.pop(variable, {}))
    return dict(_tensors(named, ""))


def _tensors(value: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if value.dim():
            yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _tensors(item, f"{name}.{place}")


def _trains(module: torch.nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _is_wrapper(module: Any) -> bool:
    """DistributedDataParallel, DeepSpeed's engine and their like: all they hold is one module called ``module``."""
    children = dict(module.named_children())
    own = next(iter(module.parameters(recurse=False)), None)
    return "module" in children and len(children) == 1 and own is None
