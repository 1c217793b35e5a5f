"""The session: collection in one process, from the moment torch is imported to the end.

It wires the parts together (recorder, targets, probes, steps, observation points) and owns their life: start, sampling,
fork, stop.
Nothing here may raise into the user's program.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from typing import Any

from traincheck.collect import _probe, processes, targets
from traincheck.collect.activation import not_watched
from traincheck.collect.drivers import DRIVER_ROLES, Drivers, compose
from traincheck.collect.imports import ImportWatcher, loaded_modules, mute_imports
from traincheck.collect.install import Installer
from traincheck.collect.observe.points import make_observer, observation_points
from traincheck.collect.paths import compile_path
from traincheck.collect.plan import Plan
from traincheck.collect.recorder import Recorder
from traincheck.collect.steps import StepTracker
from traincheck.collect.suspension import Suspension
from traincheck.collect.targets import Target
from traincheck.events import Mark

_LOOKS = 3
"""Steps at whose begin functions of the main script are looked for."""

_OUTERMOST = frozenset({"Module:__call__", "Module:train", "Module:state_dict"})
"""Roles of functions that call themselves for every submodule: one call is recorded."""

_GROUPS = {
    "Module:__call__": 1,
    "Tensor:backward": 1,  # so that recomputation inside backward is not outermost
    "autograd.backward": 1,
    "Module:train": 2,
    "Module:state_dict": 3,
}
"""Probe groups: of the calls of a group, one inside another is not outermost."""

current: Session | None = None
"""The session of this process."""


class Session:
    """Collection in this process into ``run``.

    Raises OSError if nothing can be written there, RuntimeError if a session is already open.
    """

    def __init__(self, plan: Plan, run: str) -> None:
        global current
        if current is not None:
            raise RuntimeError("this process is already being collected: end the running collection first")
        self.plan = plan
        self.run = run
        self._hash = plan.digest()
        self.observing = True
        self._creating_workers = 0
        self._compiling = False
        self._ended = False
        self._asleep = False
        self._pid = os.getpid()
        self._earlier_failure = getattr(sys, "last_value", None)
        self._undo_mute: Callable[[], None] | None = None
        self._open()
        self.tracker = StepTracker(
            self.recorder, on_begin=self._step_begins, on_update=self._after_update, on_stage=self._after_stage
        )
        self._drivers = Drivers(self.tracker, _grad_enabled)
        self.observer = make_observer(self.recorder, plan.attributes, plan.observe) if plan.state else None
        self._points: dict[str, Any] = observation_points(self.observer) if self.observer is not None else {}
        self._installer = Installer(self._make_probe, lambda target: target.role in DRIVER_ROLES or target.muted)
        self._suspension = Suspension(self._installer, lambda placement: self.observing or placement.driver)
        self._watcher = ImportWatcher([*plan.packages, *_WATCHED], self._module_loaded, self._module_loading)
        self._late: list[str] = []
        self._not_found: list[str] = []
        current = self

    def _open(self) -> None:
        name, self.folder = processes.make_folder(self.run)
        try:
            self.recorder = Recorder(self.folder, self.plan.segment_bytes)
            self._account = self._make_account(name)
        except BaseException:
            _probe.close()
            processes.remove_folder(self.folder)
            raise

    def _make_account(self, name: str, **facts: Any) -> processes.Account:
        description = processes.describe(name, self._hash, self.plan.segment_bytes)
        return processes.Account(self.folder, {**description, **facts})

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Put the probes on and stay until ``stop`` or the end of the process."""
        _probe.set_library_prefixes(library_prefixes())
        with self._guard("start"), _muted():
            self._undo_mute = mute_imports(_probe.Mute)
            if _compiles():
                self._end_full_scope()
            self._install(loaded_modules())
            self._installer.rebind(loaded_modules())
            with self._guard("bindings"):
                self._installer.rebind_elsewhere()
            self._watcher.start()
            if self.observer is not None:
                self.observer.started()
            self._set_observing(self._wanted(1))
        atexit.register(self.stop)
        _follow_forks()
        self._follow_multiprocessing()

    def stop(self, end: str = "") -> None:
        """Take everything off and close the files. ``end``: how the collection ended, when it is not the process that
        ends.

        Idempotent; in a process that was forked off it does nothing.
        """
        failure = getattr(sys, "last_value", None)
        if failure is self._earlier_failure:
            failure = None
        if end:
            failure = sys.exc_info()[1]
        # An interrupt ends the process by the signal; every other code is told by exit(3), when this is long done.
        self._stop(end, failure, 130 if isinstance(failure, KeyboardInterrupt) and not end else None)

    def _stop_in_child(self) -> None:
        """``multiprocessing``'s finalizers run while what ended the child is still on its way."""
        from multiprocessing import parent_process

        if parent_process() is None:  # not a child: it ends as any process
            self.stop()
            return
        failure = sys.exc_info()[1]
        self._stop("", failure, processes.code_of(failure))

    def _stop(self, end: str, failure: BaseException | None, code: int | None) -> None:
        global current
        if self._ended or os.getpid() != self._pid:
            return
        self._ended = True
        atexit.unregister(self.stop)
        with self._guard("stop"), _muted():
            self._watcher.stop()
            self._not_found = self._missing()
            if end:
                self._installer.release()
            else:  # the interpreter ends: nobody will miss what copies of probes remain
                self._installer.take_off(lambda _: True)
            if self._undo_mute is not None:
                self._undo_mute()
                self._undo_mute = None
        if current is self:
            current = None
        if self._asleep:
            _probe.close()
            return
        raised = failure is not None and not isinstance(failure, SystemExit)
        how = end or ("exception" if raised else "exit")
        with self._guard("stop"):
            self.recorder.mark(Mark.PROCESS_END, a=0 if how == "exit" else 1)
        self._describe_end(how, code, type(failure).__name__ if raised else None, final=not end)

    def _describe_end(self, how: str, code: int | None, exception: str | None, final: bool) -> None:
        facts: dict[str, Any] = {}
        with self._guard("process facts"):
            if self.observer is not None:
                facts = self.observer.process_facts()
        with self._guard("stop"):
            self.recorder.close()
        losses = self.recorder.losses()
        facts.update(
            ended_ns=time.time_ns(),
            end=how,
            exit=code,
            exception=exception,
            records=losses["records"],
            dropped=losses["dropped"],
            symbols_lost=losses["symbols_lost"],
            loss_reason=losses["reason"],
            faults=self.recorder.faults(),
            probes={"functions": self._installer.functions, "refused": len(self._installer.refused)},
            missing=self._not_found,
            steps=self.tracker.updates,
        )
        with contextlib.suppress(OSError):
            place = self._account.finish(**facts)
            if final and place is not None:
                _probe.at_exit(self._account.path, place)

    @contextlib.contextmanager
    def _guard(self, where: str) -> Iterator[None]:
        """Whatever goes wrong in here is ours: it is counted and never reaches the user's program."""
        try:
            yield
        except Exception as error:
            self.recorder.fault(where, error)

    # --- probes ------------------------------------------------------------------------------------------------------

    def _install(self, modules: list[str]) -> None:
        found = list(targets.boundary(modules))
        found += targets.machinery(modules)
        if self.plan.scope != "boundary" and not self._compiling:
            whole = self.plan.scope == "full"
            found += [t for t in targets.full(modules, self.plan.packages) if whole or t.name in self.plan.functions]
        self._installer.add(found)

    def _make_probe(self, target: Target) -> Any:
        if target.muted and not target.role:
            return _probe.Mute(target.function)
        driver = self._driver_hooks(target.role)
        point = self._points.get(target.role) or self._points.get(target.name)
        enter, leave = compose(driver, point, lambda: self.observing)
        wanted = not target.muted and (self.plan.scope != "selective" or target.name in self.plan.functions)
        if not wanted and enter is None and leave is None:
            return None
        number = self.recorder.function(target.name, target.kind, targets.parameters(target.function))
        paths = self.plan.functions.get(target.name, ["*"] if self.plan.scope != "selective" else [])
        captures = [
            (self.recorder.capture(number, moment, path), 1 if moment == "out" else 0, steps)
            for path in paths
            if path != "*"
            for moment, steps in [compile_path(path, targets.parameters(target.function))]
        ]
        probe = _probe.Probe(
            target.function,
            number,
            captures=captures,
            capture_all="*" in paths,
            # What is recorded with no recorded call around it says where in the user's code it is.
            location=1 if target.boundary or self.plan.scope == "selective" else 0,
            outermost=int(target.role in _OUTERMOST),
            group=_GROUPS.get(target.role, 0),
            enter=enter,
            exit=leave,
        )
        if not wanted:
            probe.record = False
        return probe

    def _missing(self) -> list[str]:
        """Functions that were to be observed and are not in the modules that hold them, as far as those were loaded."""
        known = self._installer.names
        return sorted(name for name in self.plan.functions if name not in known and targets.home_is_loaded(name))

    def _driver_hooks(self, role: str) -> tuple[Any, Any]:
        own = {
            "Optimizer:__init__": (None, self._optimizer_made),
            "DataLoaderIter:workers": (self._workers_enter, self._workers_exit),
            "worker": (self._worker_starts, None),
            "compile": (self._compile_enter, None),
            "jit": (self._suspension.enter, self._suspension.exit),
            "dynamo": (self._dynamo_enter, self._dynamo_exit),
        }
        return own.get(role) or self._drivers.hooks(role)

    def _module_loading(self, name: str) -> None:
        """torch's modules fill tables with functions while they are imported: those must hold the originals."""
        if name.partition(".")[0] == "torch" and not self._ended and os.getpid() == self._pid:
            with self._guard("late module"), _muted():
                self._suspension.begin()

    def _module_loaded(self, name: str) -> None:
        if self._ended or os.getpid() != self._pid:
            return
        with self._guard("late module"), _muted():
            self._late.append(name)
            if name.partition(".")[0] == "torch":
                self._suspension.end()
            if self._suspension.active:
                return
            late, self._late = [name for name in self._late if name in sys.modules], []
            self._install(late)
            self._installer.rebind(late)
            if not self.observing:
                self._installer.take_off(lambda placement: not placement.driver)

    def _optimizer_made(
        self, probe: Any, token: Any, args: Any, kwargs: Any, result: Any, error: Any, call: int
    ) -> None:
        if args:
            self._installer.add(targets.of_class(type(args[0])))
        self._look_at_main()

    def _look_at_main(self) -> None:
        """The script's own functions are made while it runs, after the session has started: look again."""
        if "__main__" in self.plan.packages and self.observing and not self._suspension.active:
            with self._guard("__main__"):
                self._install(["__main__"])

    # --- compilers: the full scope ends with the first one, because a compiled graph must not see it ---------------

    def _end_full_scope(self) -> None:
        if not self._compiling:
            self._compiling = True
            if self.plan.scope != "boundary":
                self.recorder.mark(Mark.NOTE, "torch.compile: boundary scope from here on")
            self._installer.forget(lambda placement: placement.full_only)

    def _compile_enter(self, probe: Any, args: Any, kwargs: Any, call: int) -> None:
        self._end_full_scope()

    def _dynamo_enter(self, probe: Any, args: Any, kwargs: Any, call: int) -> bool:
        self._end_full_scope()
        _probe.mute()
        return True

    def _dynamo_exit(self, probe: Any, token: Any, args: Any, kwargs: Any, result: Any, error: Any, call: int) -> None:
        if token:
            _probe.unmute()

    # --- sampling ----------------------------------------------------------------------------------------------------

    def _wanted(self, step: int) -> bool:
        stages = self.plan.stages
        return self.plan.observes(step) and (not stages or self.tracker.stage in stages)

    def _step_begins(self, step: int) -> None:
        if step <= _LOOKS:
            self._look_at_main()

    def _after_update(self, step: int) -> None:
        self._set_observing(self._wanted(step + 1))

    def _after_stage(self, stage: str) -> None:
        if self.plan.stages:
            self._set_observing(self._wanted(max(1, self.tracker.step)))

    def _set_observing(self, on: bool) -> None:
        if on == self.observing:
            return
        self.observing = on
        self.recorder.mark(Mark.OBSERVING, a=int(on))
        if on:
            if not self._suspension.active:
                self._installer.put_on(lambda placement: not placement.driver)
            _probe.resume()
        else:
            _probe.pause()
            self._installer.take_off(lambda placement: not placement.driver)

    # --- processes ---------------------------------------------------------------------------------------------------

    def _workers_enter(self, probe: Any, args: Any, kwargs: Any, call: int) -> bool:
        self._creating_workers += 1
        return True

    def _workers_exit(self, probe: Any, token: Any, args: Any, kwargs: Any, result: Any, error: Any, call: int) -> None:
        self._creating_workers -= bool(token)

    def _worker_starts(self, probe: Any, args: Any, kwargs: Any, call: int) -> None:
        """A DataLoader worker that was spawned (a forked one was recognised when it was made)."""
        if not self.plan.trace_workers and not self._ended:
            self.stop(end="dataloader-worker")
            processes.remove_folder(self.folder)

    def _before_fork(self) -> None:
        if not self._ended and not self._asleep:
            self._inherited = os.path.join(self.folder, "symbols.jsonl"), self.recorder.symbols_length()

    def _after_fork(self) -> None:
        """In a forked child: a DataLoader worker, or one that will run another program, is left alone; any other gets
        a folder of its own with its first call.
        """
        global current
        if self._ended:
            return
        self.recorder.abandon()
        self._pid = os.getpid()
        if (self._creating_workers and not self.plan.trace_workers) or processes.about_to_exec():
            self._ended = True
            current = None
            return
        self._asleep = True
        _probe.on_first_call(self.wake)

    def wake(self) -> None:
        """In a forked child, at its first call: begin to record. Does nothing elsewhere."""
        global current
        if not self._asleep or self._ended or os.getpid() != self._pid:
            return
        self._asleep = False
        try:
            self._go_on()
        except Exception as error:
            self._ended = True
            current = None
            not_watched(self.run, error)

    def _go_on(self) -> None:
        parent = os.path.basename(os.path.dirname(self._inherited[0]))
        name, self.folder = processes.make_folder(self.run)
        try:
            self.recorder.reopen(self.folder, *self._inherited)
            self._account = self._make_account(name, forked_from=parent)
        except BaseException:
            self.recorder.abandon()
            processes.remove_folder(self.folder)
            raise
        self.tracker.restart()
        if self.observer is not None:
            self.observer.restart()
        if not self.observing:
            _probe.pause()
        self._set_observing(self._wanted(1))  # its steps are its own, and so is which of them are observed

    def _follow_multiprocessing(self) -> None:
        """Processes of ``multiprocessing`` end without ``atexit``: end with their finalizers."""
        with self._guard("multiprocessing"):
            from multiprocessing import util

            self._finalize_later()
            util.register_after_fork(self, Session._finalize_later)

    def _finalize_later(self) -> None:
        from multiprocessing import util

        if not self._ended:
            util.Finalize(None, self._stop_in_child, exitpriority=-1000)


_WATCHED = (
    "torch",
    "safetensors",
    "transformers",
    "accelerate",
    "deepspeed",
    "lightning",
    "pytorch_lightning",
    "megatron",
)


@functools.cache
def _follow_forks() -> None:
    """Registered once for all sessions: it can't be undone."""

    def before() -> None:
        if current is not None:
            current._before_fork()

    def after() -> None:
        if current is not None:
            current._after_fork()

    os.register_at_fork(before=before, after_in_child=after)


def _compiles() -> bool:
    """Whether the program has asked for compiled functions before the probes came."""
    backends = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", None) or {}
    return any(backend is not None for backend in backends.values())


def _grad_enabled() -> bool:
    torch = sys.modules["torch"]
    return bool(torch.is_grad_enabled())


@contextlib.contextmanager
def _muted() -> Iterator[None]:
    _probe.mute()
    try:
        yield
    finally:
        _probe.unmute()


def library_prefixes() -> list[str]:
    """Path prefixes of code that is not the user's."""
    paths = sysconfig.get_paths()
    found = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib") if paths.get(key)}
    found |= {path for path in sys.path if path.rstrip(os.sep).endswith(("site-packages", "dist-packages"))}
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        found.add(os.path.dirname(torch.__file__))
    found.add(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [os.path.join(path, "") for path in sorted(found)] + ["<frozen"]
