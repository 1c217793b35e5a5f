"""Models of the program: found, not named by the user; their parameters and buffers under the user's own qualified
names.

Wrappers (DDP, FSDP, DeepSpeed engines, torch.compile, activation checkpointing) leave no trace in a name. Tensors are
looked up in their modules
at each observation, so a replaced parameter is seen as what it is now. Nothing here reads tensor data.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from torch import Tensor
from torch.nn import Module

# Class (full name) -> the child that is the user's module. Names are looked up along the MRO, so subclasses count.
WRAPPERS: dict[str, str] = {
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "_fsdp_wrapped_module",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.ActivationWrapper": "_checkpoint_wrapped_module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "deepspeed.runtime.engine.DeepSpeedEngine": "module",
    "lightning.fabric.wrappers._FabricModule": "_forward_module",
    "lightning_fabric.wrappers._FabricModule": "_forward_module",
}
_wrapped_child: dict[type, str | None] = {}
_NOTHING: dict[str, Any] = {}
MOST = 64
"""Models observed at most: a program that makes a new one every step must not fill the trace with names."""


class Names(Protocol):
    """The part of the recorder this file uses."""

    def variable(self, name: str, role: str, type: str, owner: str, **facts: Any) -> int: ...  # noqa: D102


def class_name(cls: type) -> str:
    """Full name of a class, as symbols spell it."""
    return f"{cls.__module__}.{cls.__qualname__}"


def wrapped_child(cls: type) -> str | None:
    """Name of the child that a wrapper class wraps, None if it is no wrapper."""
    try:
        return _wrapped_child[cls]
    except KeyError:
        found = next((WRAPPERS[name] for name in map(class_name, cls.__mro__) if name in WRAPPERS), None)
        _wrapped_child[cls] = found
        return found


def unwrap(module: Module) -> Module:
    """The user's module inside any wrappers."""
    for _ in range(32):
        child = wrapped_child(type(module))
        inner = module.__dict__.get("_modules", {}).get(child) if child is not None else None
        if inner is None:
            break
        module = inner
    return module


class Tracked:
    """One named place of a tensor: a parameter or buffer of a model, or a parameter known only through its
    optimizer.
    """

    __slots__ = ("facts", "facts_rows", "local", "name", "owner", "role", "state_variables", "variable", "wanted")

    def __init__(self, names: Names, name: str, role: str, owner: str, wanted: bool = True) -> None:
        self.name, self.role, self.owner, self.wanted = name, role, owner, wanted
        kind = "torch.nn.Parameter" if role == "parameter" else "torch.Tensor"
        self.variable = names.variable(name, role, kind, owner)
        self.state_variables: dict[str, int] = {}
        self.facts: Any = None
        self.facts_rows: tuple[tuple[int, int, int, int, int], ...] = ()


Entry = tuple[Tracked, Tensor]


class Model:
    """A root module and the names of its tensors. Holds the module weakly."""

    def __init__(self, names: Names, root: Module, owner: str, wanted: Callable[[str], bool]) -> None:
        self._names = names
        self._wanted = wanted
        self._root = weakref.ref(root)
        self._tracked: dict[tuple[str, bool], Tracked] = {}
        self.owner = owner
        self.baselined = False
        self.kind = class_name(type(root))
        self._active = self._modules = 0

    @property
    def root(self) -> Module | None:
        """The user's outermost module, None once it is gone."""
        return self._root()

    def adopt(self, root: Module) -> None:
        """A larger module turned out to be the model: names start from it now."""
        self._root = weakref.ref(root)
        self._tracked.clear()
        self.kind = class_name(type(root))
        self.baselined = False

    def entries(self) -> list[Entry]:
        """Every parameter and buffer with its name, in the order of ``named_parameters`` of each module; tied
        tensors once per name.
        """
        root = self._root()
        found: list[Entry] = []
        self._active = self._modules = 0
        if root is not None:
            sharded: dict[tuple[int, str], Tensor] = {}
            self._walk(root, "", found, set(), sharded)
        return found

    def _walk(
        self, module: Module, prefix: str, found: list[Entry], seen: set[int], sharded: dict[tuple[int, str], Tensor]
    ) -> None:
        seen.add(id(module))
        self._modules += 1
        self._active += bool(module.training)
        own = module.__dict__
        tracked = self._tracked
        if "_fsdp_fully_shard_state" in own or is_fsdp2(type(module)):
            sharded.update(fsdp2_sharded(module))
        for name, tensor in own.get("_parameters", _NOTHING).items():
            if tensor is not None:
                if sharded:
                    tensor = sharded.get((id(module), name), tensor)
                place = tracked.get((prefix + name, True)) or self._track(prefix + name, "parameter")
                if place.wanted:
                    found.append((place, tensor))
        for name, tensor in own.get("_buffers", _NOTHING).items():
            if isinstance(tensor, Tensor):
                place = tracked.get((prefix + name, False)) or self._track(prefix + name, "buffer")
                if place.wanted:
                    found.append((place, tensor))
        children = own.get("_modules")
        if children:
            inside = wrapped_child(type(module))
            for name, child in children.items():
                if child is not None and id(child) not in seen and (inside is None or name == inside):
                    self._walk(child, prefix if name == inside else f"{prefix}{name}.", found, seen, sharded)

    def _track(self, name: str, role: str) -> Tracked:
        place = Tracked(self._names, name, role, self.owner, self._wanted(name))
        self._tracked[(name, role == "parameter")] = place
        return place

    def training(self) -> tuple[bool, int, int]:
        """(training flag of the root, modules in training mode, modules), as of the last ``entries()``."""
        root = self._root()
        return root is not None and bool(root.training), self._active, self._modules


_fsdp2: dict[type, bool] = {}


def is_fsdp2(cls: type) -> bool:
    """True for module classes made by ``fully_shard``."""
    try:
        return _fsdp2[cls]
    except KeyError:
        known = any(
            class_name(base).startswith("torch.distributed.fsdp.") and base.__name__ == "FSDPModule"
            for base in cls.__mro__
        )
        _fsdp2[cls] = known
        return known


def fsdp2_sharded(module: Module) -> dict[tuple[int, str], Tensor]:
    """(id of the module that has it, name) -> the sharded parameter, for parameters that stand unsharded in their
    modules right now.

    The optimizer owns the sharded one; the unsharded one is a passing guest whose storage comes and goes.
    """
    get_state = getattr(module, "_get_fsdp_state", None)
    if get_state is None:
        return {}
    state = get_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [group for group in (getattr(state, "_fsdp_param_group", None),) if group is not None]
    found: dict[tuple[int, str], Tensor] = {}
    for group in groups:
        for param in group.fsdp_params:
            if param.sharded_state.name == "SHARDED":
                continue
            info = param._module_info
            found[(id(info.module), info.param_name)] = param.sharded_param
            for shared, name in zip(info.shared_modules, info.shared_param_names, strict=False):
                found[(id(shared), name)] = param.sharded_param
    return found


class TooManyModelsError(RuntimeError):
    """The program keeps making models. The first ``MOST`` stay observed; this is counted as a fault, so the trace
    says it.
    """


class Models:
    """All models met so far, in order of discovery: owners ``model``, ``model.1``, …"""

    def __init__(self, names: Names, wanted: Callable[[str], bool] = lambda name: True) -> None:
        self._names = names
        self._wanted = wanted
        self._members: dict[int, tuple[weakref.ref[Module], Model]] = {}
        self._count = 0
        self.all: list[Model] = []

    def find(self, module: Module) -> Model | None:
        """The model that ``module`` (or what it wraps) is or is a part of."""
        for candidate in (module, unwrap(module)):
            member = self._members.get(id(candidate))
            if member is not None and member[0]() is candidate:
                return member[1]
        return None

    def discover(self, module: Module) -> Model | None:
        """Take ``module`` for a root, unless it is part of a known model or has no tensors. A root of known roots
        takes the first one's place.
        """
        known = self.find(module)
        if known is not None:
            return known
        root = unwrap(module)
        if root.__dict__.get("_is_replica"):  # DataParallel makes new ones in every forward
            return None
        modules = list(root.modules())
        if not any(m.__dict__.get("_parameters") or m.__dict__.get("_buffers") for m in modules):
            return None
        inside = {id(m) for m in modules}
        absorbed = [model for model in self.all if model.root is not None and id(model.root) in inside]
        if absorbed:
            model = absorbed[0]
            model.adopt(root)
            self.all = [m for m in self.all if m not in absorbed[1:]]
        elif self._count == MOST:
            raise TooManyModelsError(f"{MOST} models are observed, the ones that come after them are not")
        else:
            owner = "model" if self._count == 0 else f"model.{self._count}"
            self._count += 1
            model = Model(self._names, root, owner, self._wanted)
            self.all.append(model)
        self._remember(model, modules)
        return model

    def _remember(self, model: Model, modules: Iterable[Module]) -> None:
        for module in modules:
            self._members[id(module)] = (weakref.ref(module), model)

    def living(self) -> list[Model]:
        """Models whose modules still exist; the others are forgotten."""
        dead = [model for model in self.all if model.root is None]
        if dead:
            self.all = [model for model in self.all if model not in dead]
            self._members = {key: member for key, member in list(self._members.items()) if member[0]() is not None}
        return self.all


def loaded(module: str) -> Any:
    """A module of the program if it has been imported already, else None: nothing is imported on our account."""
    return sys.modules.get(module)
