"""The observation points: functions around which state is looked at, and the hooks that a probe runs there.

Keys are full names of original functions, or ``Role:method`` for a method of a class and all its subclasses; the
session resolves roles:
``Optimizer`` torch.optim.Optimizer, ``Module`` torch.nn.Module, ``LRScheduler`` torch.optim.lr_scheduler.LRScheduler
(and ReduceLROnPlateau),
``DataLoaderIter`` torch.utils.data.dataloader._BaseDataLoaderIter. ``Module:__call__`` wants only outermost calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from traincheck.collect.observe import losses, sources
from traincheck.collect.observe.guard import quiet
from traincheck.collect.observe.observer import Observer
from traincheck.collect.observe.optimizers import wraps
from traincheck.collect.observe.policy import Policy
from traincheck.collect.observe.tensors import Writer
from traincheck.events import Moment

Enter = Callable[[Any, tuple[Any, ...], "Mapping[str, Any] | None", int], Any]
Exit = Callable[[Any, Any, tuple[Any, ...], "Mapping[str, Any] | None", Any, "BaseException | None", int], None]


class Point(NamedTuple):
    """Hooks with the signatures that ``_probe.Probe`` documents; either may be None."""

    enter: Enter | None
    exit: Exit | None


Before = Callable[[tuple[Any, ...], "Mapping[str, Any] | None", int], None]
After = Callable[[tuple[Any, ...], "Mapping[str, Any] | None", Any, int], None]


def make_observer(
    writer: Writer, attributes: Iterable[str] = (), parts: Mapping[str, Iterable[str]] | None = None
) -> Observer:
    """An observer that records into ``writer`` what is needed to see ``attributes`` (none: everything).

    With ``parts`` (reason -> parts) exactly those; raises ValueError for one that this version does not know.
    """
    return Observer(writer, Policy.from_json({"parts": parts}) if parts else Policy.for_attributes(attributes))


def observation_points(observer: Observer, policy: Policy | None = None) -> dict[str, Point]:
    """Function or ``Role:method`` -> hooks, for the reasons that ``policy`` (the observer's own) observes. Hooks
    never raise.
    """
    o, points = observer, {}
    policy = observer.policy if policy is None else policy

    def add(
        names: tuple[str, ...], reasons: tuple[str, ...], what: str, before: Before | None, after: After | None
    ) -> None:
        if any(policy.at(reason) for reason in reasons):
            for name in names:
                points[name] = _point(o, what, before, after)

    add(
        ("Optimizer:__init__", "Optimizer:add_param_group"),
        ("optimizer", "step:before", "step:after"),
        "optimizer",
        None,
        lambda args, kwargs, result, call: o.optimizer_created(args[0], call),
    )
    add(
        ("Optimizer:step",),
        ("step:before", "step:after"),
        "step",
        lambda args, kwargs, call: o.before_step(args[0], call),
        lambda args, kwargs, result, call: o.after_step(args[0], call),
    )
    add(
        ("deepspeed.runtime.engine.DeepSpeedEngine.step",),
        ("step:before", "step:after"),
        "engine step",
        lambda args, kwargs, call: o.engine_step(args[0], call, Moment.BEFORE),
        lambda args, kwargs, result, call: o.engine_step(args[0], call, Moment.AFTER),
    )
    add(
        ("Optimizer:zero_grad", "Module:zero_grad"),
        ("zero_grad:before", "zero_grad:after"),
        "zero_grad",
        lambda args, kwargs, call: o.zero_grad(args[0], call, Moment.BEFORE),
        lambda args, kwargs, result, call: o.zero_grad(args[0], call, Moment.AFTER),
    )

    def module_called(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, call: int) -> None:
        o.module_called(args[0], call)
        o.inputs(args[0], args[1:], kwargs, call)

    add(
        ("Module:__call__",),
        ("baseline", "step:before", "step:after", "backward", "input"),
        "module",
        module_called,
        None,
    )
    add(
        ("torch._tensor.Tensor.backward", "torch.autograd.backward"),
        ("loss", "backward"),
        "backward",
        lambda args, kwargs, call: o.before_backward(losses.roots(args, kwargs), call),
        lambda args, kwargs, result, call: o.after_backward(losses.roots(args, kwargs), call),
    )
    add(
        ("Module:load_state_dict", "Optimizer:load_state_dict"),
        ("load_state_dict",),
        "load_state_dict",
        None,
        lambda args, kwargs, result, call: o.loaded_state(args[0], call),
    )
    add(
        ("Module:train", "Module:eval"),
        ("mode",),
        "mode",
        None,
        lambda args, kwargs, result, call: o.mode_changed(args[0], call),
    )
    add(
        ("LRScheduler:step",),
        ("scheduler",),
        "scheduler",
        None,
        lambda args, kwargs, result, call: o.scheduled(args[0], call),
    )
    add(
        ("DataLoaderIter:__next__",),
        ("batch",),
        "batch",
        None,
        lambda args, kwargs, result, call: o.batch(args[0], result, call),
    )

    def file_loaded(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, result: Any, call: int) -> None:
        path = sources.path_of(args, kwargs)
        if path is not None:
            o.file_loaded(path, call)

    def pretrained(args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, result: Any, call: int) -> None:
        """``_load_pretrained_model(model, state_dict, checkpoint_files, …)`` of transformers, which reads files on
        its own.
        """
        named = dict(kwargs or {})
        for path in named.get("checkpoint_files", args[2] if len(args) > 2 else None) or ():
            if isinstance(path, str):
                o.file_loaded(sources.path_of((path,), None) or path, call)
        o.loaded_state(named.get("model", args[0] if args else None), call)

    add(
        ("transformers.modeling_utils.PreTrainedModel._load_pretrained_model",),
        ("file", "load_state_dict"),
        "file",
        None,
        pretrained,
    )
    add(
        ("torch.serialization.load", "safetensors.torch.load_file", "safetensors.torch.load_model"),
        ("file",),
        "file",
        None,
        file_loaded,
    )
    return points


def _is_front(args: tuple[Any, ...]) -> bool:
    try:
        return bool(args) and wraps(args[0])
    except Exception:  # an object of the program's own that cannot be asked
        return False


def _point(observer: Observer, what: str, before: Before | None, after: After | None) -> Point:
    """Hooks that run ``before`` and ``after`` for the outermost call of this kind, and count what goes wrong
    instead of raising it.
    """
    fault = observer._writer.fault
    optimizers = what in ("step", "zero_grad", "load_state_dict")
    if after is None:

        def enter_only(probe: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, call: int) -> None:
            if observer.enabled and before is not None:
                try:
                    before(args, kwargs, call)
                except Exception as error:
                    fault(f"observe {what}", error)

        return Point(enter_only, None)

    def enter(probe: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None, call: int) -> bool | None:
        if optimizers and _is_front(args):  # what it passes on to is the one to look at
            return None
        outermost = observer.enter(what)
        if outermost and before is not None and observer.enabled:
            try:
                with quiet():
                    before(args, kwargs, call)
            except Exception as error:
                fault(f"observe before {what}", error)
        return True

    def exit(
        probe: Any,
        token: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None,
        result: Any,
        error: BaseException | None,
        call: int,
    ) -> None:
        if token is not True:  # entered before hooks were on
            return
        if observer.leave(what) and error is None and observer.enabled:
            try:
                with quiet():
                    after(args, kwargs, result, call)
            except Exception as problem:
                fault(f"observe after {what}", problem)

    return Point(enter, exit)
