"""The components of watching: which of TrainCheck's code belongs to which, and where each is entered.

Exclusive times need only the entrances from one component into another to be timed; that none is missing is what
``witness`` proves. Code that is none of TrainCheck's is the application's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

APPLICATION: Final = "application"
PROBE: Final = "probe"
CAPTURES: Final = "captures"
SYMBOLS: Final = "interning"
DIGESTS: Final = "state digests"
OBSERVATION: Final = "observation logic"
WRITING: Final = "segment writing"
STEPS: Final = "step logic"
INSTALLATION: Final = "installation"

TIMED: Final = (APPLICATION, SYMBOLS, DIGESTS, OBSERVATION, WRITING, STEPS, INSTALLATION)
"""What the ledger times. The compiled core (probe, captures) is calibrated and counted instead."""

WATCHING: Final = (PROBE, CAPTURES, SYMBOLS, DIGESTS, OBSERVATION, WRITING, STEPS, INSTALLATION)
"""All components but the application."""

ABOUT: Final = {
    PROBE: "compiled core: entry, exit and call-through of watched functions, their hooks",
    CAPTURES: "compiled core: reading arguments and results, places in the code",
    SYMBOLS: "names and values met for the first time, written to the symbols file",
    DIGESTS: "hashing the bytes of tensors, generators, batches",
    OBSERVATION: "finding models and their tensors, gathering rows of state",
    WRITING: "appending observations, state and marks; opening segments",
    STEPS: "finding steps and stages",
    INSTALLATION: "putting probes on and taking them off while training runs",
    APPLICATION: "the training program: the same steps with every probe off",
}
"""What each is, for the report."""

MODULES: Final = {
    "events": OBSERVATION,
    "errors": INSTALLATION,
    "files": INSTALLATION,
    "strictjson": INSTALLATION,
    "collect": INSTALLATION,
    "collect._probe": PROBE,
    "collect.activation": INSTALLATION,
    "collect.api": STEPS,
    "collect.bindings": INSTALLATION,
    "collect.boot.sitecustomize": INSTALLATION,
    "collect.catalog": INSTALLATION,
    "collect.commandlines": INSTALLATION,
    "collect.digests": DIGESTS,
    "collect.drivers": STEPS,
    "collect.imports": INSTALLATION,
    "collect.install": INSTALLATION,
    "collect.interrupts": OBSERVATION,
    "collect.jsonfile": SYMBOLS,
    "collect.launch": INSTALLATION,
    "collect.lookup": INSTALLATION,
    "collect.observe": OBSERVATION,
    "collect.observe.batches": OBSERVATION,
    "collect.observe.guard": OBSERVATION,
    "collect.observe.losses": OBSERVATION,
    "collect.observe.models": OBSERVATION,
    "collect.observe.observer": OBSERVATION,
    "collect.observe.optimizers": OBSERVATION,
    "collect.observe.points": OBSERVATION,
    "collect.observe.policy": OBSERVATION,
    "collect.observe.ranks": OBSERVATION,
    "collect.observe.reduction": DIGESTS,
    "collect.observe.rng": OBSERVATION,
    "collect.observe.sources": OBSERVATION,
    "collect.observe.tensors": OBSERVATION,
    "collect.observe.threads": OBSERVATION,
    "collect.observe.versions": OBSERVATION,
    "collect.paths": INSTALLATION,
    "collect.plan": STEPS,
    "collect.processes": INSTALLATION,
    "collect.recorder": SYMBOLS,
    "collect.runfolder": INSTALLATION,
    "collect.session": STEPS,
    "collect.steps": STEPS,
    "collect.suspension": INSTALLATION,
    "collect.symbols": SYMBOLS,
    "collect.targets": INSTALLATION,
}
"""Module below ``traincheck`` -> its component."""

ENTRANCES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "collect.digests": {DIGESTS: ("Digester.many", "combine", "digest_bytes")},
    "collect.symbols": {SYMBOLS: ("Symbols.add",)},
    "collect.recorder": {
        SYMBOLS: ("Recorder._miss",),
        WRITING: ("Recorder.observe", "Recorder.states", "Recorder.mark"),
    },
    "collect.observe.observer": {OBSERVATION: ("Observer.started", "Observer.restart", "Observer.process_facts")},
    "collect.steps": {STEPS: ("StepTracker.explicit_step",)},
    "collect.api": {STEPS: ("step",)},
    "collect.install": {
        INSTALLATION: (
            "Installer.add",
            "Installer.forget",
            "Installer.put_on",
            "Installer.rebind",
            "Installer.rebind_elsewhere",
            "Installer.release",
            "Installer.take_off",
        )
    },
    "collect.imports": {INSTALLATION: ("ImportWatcher.find_spec",)},
    "collect.suspension": {INSTALLATION: ("Suspension.begin", "Suspension.end", "Suspension.enter", "Suspension.exit")},
    "collect.session": {
        INSTALLATION: (
            "Session._compile_enter",
            "Session._dynamo_enter",
            "Session._dynamo_exit",
            "Session._end_full_scope",
            "Session._install",
            "Session._look_at_main",
            "Session._make_probe",
            "Session._module_loaded",
            "Session._module_loading",
            "Session._optimizer_made",
            "Session._worker_starts",
            "Session._workers_enter",
            "Session._workers_exit",
        )
    },
}
"""Module -> component -> functions that are timed as entrances into it. Hooks of probes are entrances too."""

ANYWHERE: Final[dict[str, tuple[str, ...]]] = {
    "collect.recorder": ("variable", "attribute", "symbol", "encode", "view", "function", "capture"),
    "collect.digests": ("unreadable", "components", "_span", "_loaded"),
    "collect.symbols": ("type_name", "full_name"),
    "collect.session": ("_guard", "_muted", "<lambda>"),
    "collect.imports": ("exec_module",),
    "collect.plan": ("observes",),
}
"""Small functions that count to whoever calls them: a look-up, or the way through to the program's own code."""

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_INSTALLERS: Final = frozenset(name.partition(".")[2] for name in ENTRANCES["collect.session"][INSTALLATION])
_WRITERS: Final = frozenset(name.partition(".")[2] for name in ENTRANCES["collect.recorder"][WRITING])


def module_of(file: str) -> str | None:
    """Module below ``traincheck`` whose code is in ``file``; None when it is none of what is profiled."""
    if not file.startswith(_PACKAGE + os.sep):
        return None
    name = os.path.splitext(file[len(_PACKAGE) + 1 :])[0].replace(os.sep, ".").removesuffix(".__init__")
    return None if name == "__init__" or name.startswith(("overhead", "cli")) else name


def component_of(module: str, function: str) -> str | None:
    """The component of a function (its bare name) of a module below ``traincheck``; None when the table lacks it."""
    if module == "collect.session" and function in _INSTALLERS:
        return INSTALLATION
    if module == "collect.recorder" and function in _WRITERS:
        return WRITING
    return MODULES.get(module)


def anywhere(module: str, function: str) -> bool:
    """Whether a function counts to whoever calls it."""
    return function in ANYWHERE.get(module, ())


def unlisted() -> list[str]:
    """Modules of ``traincheck.collect`` that the table lacks: with one of them a profile would be incomplete."""
    return sorted(name for name in _collect_modules() if name not in MODULES)


def _collect_modules() -> Iterator[str]:
    root = os.path.join(_PACKAGE, "collect")
    for folder, _, files in os.walk(root):
        for file in files:
            stem, _, ending = file.partition(".")
            if ending.endswith(("py", "so", "pyd")):
                path = os.path.relpath(os.path.join(folder, stem), _PACKAGE)
                yield path.replace(os.sep, ".").removesuffix(".__init__")
