"""The observer: at an observation point, looks at the state the policy asks for and hands it to the recorder.

It owns the models and optimizers met so far. Every public method is total: a fault of ours is counted through the
recorder, never raised, and
nothing is observed while a compiler, a transform or a fake-tensor mode is at work.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import torch
from torch.nn import Module

from traincheck.collect.digests import Digester
from traincheck.collect.observe import batches, losses, ranks, rng, sources, versions
from traincheck.collect.observe.guard import quiet, tracing
from traincheck.collect.observe.models import Entry, Model, Models, unwrap
from traincheck.collect.observe.optimizers import Optimizer, Optimizers
from traincheck.collect.observe.policy import DATA, FACTS, GRAD, GROUPS, HAS_GRAD, MODE, STATE, Policy
from traincheck.collect.observe.tensors import Sheet, Writer
from traincheck.collect.observe.threads import Trainers, leaves
from traincheck.events import Moment

BEFORE, AFTER, ALONE = Moment.BEFORE, Moment.AFTER, Moment.ALONE
Survey = list[tuple[Model, list[Entry]]]
"""Models and their tensors, looked up once in an observation."""
Own = Callable[[], Collection[int]]
"""``id`` of tensors that the program itself is working on in the call that is observed."""


class Observer:
    """Observes into ``writer`` (the recorder) what ``policy`` asks for. One a process; ``enabled`` False makes
    every method do nothing.
    """

    def __init__(self, writer: Writer, policy: Policy | None = None) -> None:
        self.policy = Policy() if policy is None else policy
        self.enabled = True
        self._writer = writer
        self._digester = Digester(writer.view, force_reduction=self.policy.force_reduction)
        self._attributes: dict[str, int] = {}
        names = self.policy.names
        self.models = Models(writer, (lambda name: True) if names is None else names.__contains__)
        self.optimizers = Optimizers(writer)
        self._called: dict[int, weakref.ref[Module]] = {}
        self._loaders: list[weakref.ref[Any] | int] = []
        self._rank: dict[str, Any] | None = None
        self._described = False
        self._rng_due = True
        self._local = threading.local()
        self._trainers = Trainers()

    # --- entering and leaving points ----------------------------------------------------------------------------------

    def enter(self, what: str) -> bool:
        """True for the outermost open point of this kind on this thread; pair it with ``leave``."""
        depths = self._local.__dict__
        depth = depths.get(what, 0)
        depths[what] = depth + 1
        if depth == 0 and what in ("backward", "step", "engine step", "zero_grad"):
            self._trainers.trains()
        return bool(depth == 0)

    def leave(self, what: str) -> bool:
        """True if the outermost point of this kind ends."""
        depths = self._local.__dict__
        depth = depths[what] = max(depths.get(what, 1) - 1, 0)
        return bool(depth == 0)

    # --- the points ---------------------------------------------------------------------------------------------------

    def optimizer_created(self, optimizer: Any, call: int) -> None:
        """An optimizer's ``__init__`` ended."""
        known = self.optimizers.discover(optimizer)
        if known is not None:
            self._observe("optimizer", call, AFTER, lambda sheet: self._groups(sheet, [known]), GROUPS)

    def started(self) -> None:
        """Collection starts: the process, as far as it is known by now (ranks are looked at again at the first
        baseline).
        """
        try:
            self._describe()
        except Exception as error:
            self._writer.fault("observe process", error)
        self._described = False

    def restart(self) -> None:
        """A forked child goes on: what every trace begins with is observed again, for its own."""
        for model in self.models.living():
            model.baselined = False
        self._called.clear()
        self._described = False
        self._rng_due = True
        self._local = threading.local()
        self._trainers = Trainers()

    def process_facts(self) -> dict[str, Any]:
        """``rank`` (coordinates as last seen, None in a lone process) and ``versions``, for ``process.json``."""
        return {"rank": self._rank or ranks.coordinates(), "versions": versions.versions()}

    def module_called(self, module: Module, call: int) -> None:
        """An outermost module is about to run.

        The first time, it is a model, and its baseline is taken; the first call after an update begins a new step for
        the generators.
        """
        known = self._called.get(id(module))
        if (known is None or known() is not module) and not tracing():
            if len(self._called) > 1000:
                self._called = {key: ref for key, ref in list(self._called.items()) if ref() is not None}
            self._called[id(module)] = weakref.ref(module)
            with quiet():
                model = self.models.discover(module)
                if model is not None and not model.baselined:
                    self._baseline([model], call)
        if self._rng_due:
            self.step_begins(call)

    def before_step(self, optimizer: Any, call: int) -> None:
        """An optimizer is about to update."""
        known = self.optimizers.discover(optimizer)
        if known is None:
            return
        known.stepped = True
        if any(not model.baselined for model in self.models.living()):
            self._baseline([model for model, _ in self._concerned(known) if not model.baselined], call)
        self._tensors("step", call, BEFORE, known)

    def after_step(self, optimizer: Any, call: int) -> None:
        """An optimizer has updated."""
        known = self.optimizers.find(optimizer)
        if known is not None:
            self._rng_due = True
            self._tensors("step", call, AFTER, known)

    def engine_step(self, engine: Module, call: int, moment: Moment) -> None:
        """An engine (DeepSpeed's) updates its model, by optimizers that work on copies of the parameters."""
        model = self.models.discover(engine)
        if model is not None:
            if not model.baselined and moment is BEFORE:
                self._baseline([model], call)
            self._tensors("step", call, moment, model)

    def zero_grad(self, target: Any, call: int, moment: Moment) -> None:
        """``zero_grad`` of an optimizer or a module, before or after."""
        known = self.models.find(target) if isinstance(target, Module) else self.optimizers.discover(target)
        if known is not None:
            self._tensors("zero_grad", call, moment, known, lambda: ids(target))

    def before_backward(self, tensors: list[torch.Tensor], call: int) -> None:
        """A backward starts from these roots."""
        self._observe("loss", call, BEFORE, lambda sheet: losses.losses(self._writer, sheet, tensors))

    def after_backward(self, roots: list[torch.Tensor], call: int) -> None:
        """The backward that started from ``roots`` ended: gradients are there.

        Where several threads train, only the models that this one went through are looked at.
        """
        self._tensors("backward", call, AFTER, None, lambda: leaves(roots))

    def loaded_state(self, target: Any, call: int) -> None:
        """``load_state_dict`` of a module or an optimizer ended."""
        known = self.models.discover(target) if isinstance(target, Module) else self.optimizers.discover(target)
        if known is not None:
            self._tensors("load_state_dict", call, AFTER, known, lambda: ids(target))

    def mode_changed(self, module: Module, call: int) -> None:
        """``train()`` or ``eval()`` of an outermost module ended."""
        model = self.models.discover(module)
        if model is None:
            return

        def look(sheet: Sheet) -> None:
            model.entries()
            self._mode(sheet, model)
            inner = unwrap(module)
            if inner is not model.root:
                path = next((name for name, child in _modules(model) if child is inner), None)
                if path is not None:
                    variable = self._writer.variable(path, "model", type(inner).__qualname__, model.owner)
                    sheet.value(variable, "training", bool(inner.training))

        self._observe("mode", call, AFTER, look)

    def scheduled(self, scheduler: Any, call: int) -> None:
        """A learning-rate scheduler stepped."""
        known = self.optimizers.discover(getattr(scheduler, "optimizer", None))
        if known is not None:
            self._observe("scheduler", call, AFTER, lambda sheet: self._groups(sheet, [known]))

    def batch(self, iterator: Any, batch: Any, call: int) -> None:
        """A DataLoader's iterator gave a batch."""
        owner = self._loader(getattr(iterator, "_dataset", iterator))

        def look(sheet: Sheet) -> None:
            variable = self._writer.variable("batch", "batch", type(batch).__name__, owner)
            batches.batch_rows(sheet, self._digester, variable, batch)

        self._observe("batch", call, AFTER, look)

    def inputs(self, module: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, call: int) -> None:
        """What an outermost module is called with. Loaders look ahead and some programs have none: this is what the
        step really consumed.
        """
        model = self.models.find(module)
        if model is None:
            return

        def look(sheet: Sheet) -> None:
            variable = self._writer.variable("input", "batch", "input", model.owner)
            batches.batch_rows(sheet, self._digester, variable, [*args, dict(kwargs or {})])

        self._observe("input", call, BEFORE, look)

    def file_loaded(self, path: str, call: int) -> None:
        """Weights were read from a file."""
        self._observe("file", call, AFTER, lambda sheet: sources.source_rows(self._writer, sheet, path))

    def step_begins(self, call: int = 0) -> None:
        """A training step begins: random generators."""
        self._rng_due = False
        self._observe("rng", call, ALONE, lambda sheet: rng.rng_states(self._writer, sheet))

    # --- looking ------------------------------------------------------------------------------------------------------

    def _observe(
        self, reason: str, call: int, moment: Moment, look: Callable[[Sheet], None], part: str | None = None
    ) -> None:
        parts = self.policy.at(reason)
        if not self.enabled or not parts or (part is not None and part not in parts) or tracing():
            return
        self._write(reason, call, moment, look)

    def _write(self, reason: str, call: int, moment: Moment, look: Callable[[Sheet], None]) -> None:
        with quiet():
            sheet = Sheet(self._writer, self._digester, self._attributes)
            try:
                look(sheet)
            finally:  # what was seen before a fault is still true
                rows = sheet.finish()
                if rows:
                    self._writer.states(self._writer.observe(reason, call, moment), rows)

    def _tensors(
        self, reason: str, call: int, moment: Moment, about: Optimizer | Model | None, own: Own | None = None
    ) -> None:
        """Observe an optimizer with the models it concerns, one model, or (None) all models.

        Where several threads train, gradients are read of the optimizer's parameters or of ``own`` only (None: of all
        that is observed), and "all models" are those that have one of them.
        """
        split = reason in ("step", "zero_grad")
        parts = self.policy.at(f"{reason}:{'before' if moment is BEFORE else 'after'}" if split else reason)
        if not self.enabled or not parts or tracing():
            return

        def look(sheet: Sheet) -> None:
            optimizer = about if isinstance(about, Optimizer) else None
            mine: Collection[int] | None = None
            if not alone and optimizer is not None:
                mine = {id(tensor) for _, tensor in optimizer.parameters()}
            elif not alone and own is not None:
                mine = own()
            if optimizer is not None:
                survey = self._concerned(optimizer)
            else:
                chosen = [about] if isinstance(about, Model) else self.models.living()
                survey = [(model, model.entries()) for model in chosen]
            if about is None and mine is not None:
                survey = [one for one in survey if any(id(tensor) in mine for _, tensor in one[1])]
            entries = [entry for _, found in survey for entry in found]
            # Before its first step an optimizer's model may merely not have been met yet: no makeshift names till then.
            if optimizer is not None and optimizer.stepped:
                entries += self._unclaimed(optimizer, entries)
            if FACTS in parts:
                sheet.facts(entries, self.optimizers.membership())
            if MODE in parts:
                for model, _ in survey:
                    self._mode(sheet, model)
            if DATA in parts and not (optimizer is not None and reason == "load_state_dict"):
                sheet.data(entries)
            readable = entries if mine is None else [entry for entry in entries if id(entry[1]) in mine]
            if GRAD in parts:
                sheet.grad(readable)
            elif HAS_GRAD in parts:
                sheet.has_grad(readable)
            if optimizer is not None:
                if STATE in parts:
                    self._state(sheet, optimizer, entries)
                if GROUPS in parts:
                    self._groups(sheet, [optimizer])

        with self._trainers.looking() as alone:
            self._write(reason, call, moment, look)

    def _baseline(self, models: list[Model], call: int) -> None:
        if not self.enabled or tracing():
            return
        if not self._described:
            self._describe()
        for model in models:
            model.baselined = True
            self._tensors("baseline", call, BEFORE, model, tuple)
        self._look_for_mesh(models)

    def _describe(self) -> None:
        self._described = True

        def look(sheet: Sheet) -> None:
            variable = self._writer.variable("process", "process", "process", "run")
            self._rank = ranks.coordinates()
            for name, value in flat(self._rank or {"rank": 0, "world_size": 1}):
                sheet.value(variable, name, value)
            for name, value in versions.versions().items():
                sheet.value(variable, f"version.{name}", value)

        self._observe("process", 0, ALONE, look)

    def _look_for_mesh(self, models: list[Model]) -> None:
        for model in models:
            for _, tensor in model.entries():
                mesh = getattr(getattr(tensor, "_spec", None), "mesh", None)
                if mesh is not None:
                    self._rank = ranks.add_mesh(self._rank or {}, mesh)
                    return

    # --- who and what -------------------------------------------------------------------------------------------------

    def _concerned(self, optimizer: Optimizer) -> Survey:
        """The models this optimizer works on, and trainable models that none works on: their standing still is a fact.

        Inside an engine's step the latter are the engine's, which updates them later.
        """
        mine = {id(tensor) for _, tensor in optimizer.parameters()}
        others = {id(tensor) for one in self.optimizers.all if one is not optimizer for _, tensor in one.parameters()}
        found: Survey = []
        for model in self.models.living():
            entries = model.entries()
            numbers = {id(tensor) for place, tensor in entries if place.role == "parameter"}
            if not numbers.isdisjoint(mine) or (
                not self._local.__dict__.get("engine step", 0)
                and numbers.isdisjoint(others)
                and any(tensor.requires_grad for place, tensor in entries if place.role == "parameter")
            ):
                found.append((model, entries))
        return found

    def _unclaimed(self, optimizer: Optimizer, entries: list[Entry]) -> list[Entry]:
        """Parameters of an optimizer that are in no model."""
        claimed = {id(tensor) for _, tensor in entries}
        if all(id(tensor) in claimed for _, tensor in optimizer.parameters()):
            return []
        if self.policy.names is not None:  # entries were narrowed: what is not in them may well belong to a model
            return []
        return optimizer.unclaimed(claimed)

    def _state(self, sheet: Sheet, optimizer: Optimizer, entries: list[Entry]) -> None:
        seen: set[int] = set()
        for place, tensor in entries:
            if place.role == "parameter" and id(tensor) not in seen:
                seen.add(id(tensor))
                state = optimizer.state(place, tensor)
                if state is not None:
                    sheet.content(*state)

    def _groups(self, sheet: Sheet, optimizers: Iterable[Optimizer]) -> None:
        for optimizer in optimizers:
            for variable, values in optimizer.groups():
                sheet.content(variable, values)

    def _mode(self, sheet: Sheet, model: Model) -> None:
        variable = self._writer.variable(model.owner, "model", model.kind, model.owner)
        training, active, modules = model.training()
        sheet.value(variable, "training", training)
        sheet.value(variable, "training_modules", active)
        sheet.value(variable, "modules", modules)

    def _loader(self, dataset: Any) -> str:
        same = (
            known() is dataset if isinstance(known, weakref.ref) else known == id(dataset) for known in self._loaders
        )
        index = next((index for index, found in enumerate(same) if found), len(self._loaders))
        if index == len(self._loaders):
            try:
                self._loaders.append(weakref.ref(dataset))
            except TypeError:  # a list or tuple: an id is the best there is
                self._loaders.append(id(dataset))
        return "loader" if index == 0 else f"loader.{index}"


def ids(module: Module) -> set[int]:
    """``id`` of every parameter."""
    return {id(tensor) for tensor in module.parameters()}


def flat(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Nested mappings as dotted names."""
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += [(f"{name}.{inner}", one) for inner, one in flat(value)]
        else:
            found.append((name, value))
    return found


def _modules(model: Model) -> list[tuple[str, Module]]:
    root = model.root
    return [] if root is None else list(root.named_modules())
