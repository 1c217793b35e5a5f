"""Looking functions up before a run starts: which of those wanted does the program's interpreter not have?

The launcher runs ``main`` in a process of its own, with the interpreter that the command would use, so that nothing is
imported in the program before its time. Only torch is looked into; of other packages it is asked whether they are
installed. What is found out later (a module of the program's own) the session says at the end.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_SECONDS = 180
_ASKED = "import sys; sys.path.append({root!r}); from traincheck.collect.lookup import main; main()"
_MARK = "traincheck-lookup:"


def missing(program: str, functions: Mapping[str, Sequence[str]]) -> dict[str, str] | None:
    """Functions (with the capture paths wanted of them) that cannot be observed, and why.

    None if the interpreter of ``program`` is not known or could not be asked.
    """
    interpreter = interpreter_of(program)
    if interpreter is None or not functions:
        return None if functions else {}
    root = str(Path(__file__).resolve().parents[2])
    environment = {name: value for name, value in os.environ.items() if name != "TRAINCHECK_RUN"}
    try:
        done = subprocess.run(
            [interpreter, "-c", _ASKED.format(root=root)],
            input=json.dumps({name: list(paths) for name, paths in functions.items()}),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
        line = next(line for line in done.stdout.splitlines() if line.startswith(_MARK))
        found: dict[str, str] = json.loads(line.removeprefix(_MARK))
    except (OSError, ValueError, StopIteration, subprocess.SubprocessError):
        return None
    return found


def interpreter_of(program: str) -> str | None:
    """The Python that a command runs in: itself, or what its first line names. None for anything else."""
    path = shutil.which(program) or program
    if os.path.basename(path).startswith(("python", "pypy")):
        return path
    try:
        with open(path, "rb") as file:
            first = file.readline(512)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode("utf-8", "replace").split()
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        words = [shutil.which(words[0]) or ""] if words else []
    return words[0] if words and os.path.basename(words[0]).startswith(("python", "pypy")) else None


def main() -> None:
    """Read functions from standard input, write those that cannot be observed, with reasons."""
    wanted: dict[str, list[str]] = json.load(sys.stdin)
    print(_MARK + json.dumps(unobservable(wanted)), flush=True)


def unobservable(wanted: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Functions that cannot be observed in this interpreter, with the reason. Imports torch."""
    try:
        import torch
    except Exception as error:
        return dict.fromkeys(wanted, f"torch cannot be imported ({type(error).__name__}: {error})")
    from traincheck.collect import targets

    for name in wanted:
        if name.startswith("torch."):
            _load(name)
    modules = [name for name in sys.modules if name == "torch" or name.startswith("torch.")]
    known = {
        target.name: target.function
        for found in (targets.full(modules, ("torch",)), targets.boundary(modules))
        for target in found
        if not target.muted
    }
    result: dict[str, str] = {}
    version = f"torch {torch.__version__}"
    for name, paths in wanted.items():
        package = name.partition(".")[0]
        if package != "torch":
            if package != "__main__" and not _installed(package):
                result[name] = f"{name} cannot be observed: {package} is not installed"
        elif name not in known:
            exists = "can't be observed" if _exists(name) else "does not exist"
            result[name] = f"{name} {exists} in {version}"
        else:
            lost = list(_lost_arguments(paths, targets.parameters(known[name])))
            if lost:
                result[name] = f"{name} has no argument {', '.join(lost)} in {version}"
    return result


def _load(name: str) -> None:
    parts = name.split(".")
    for end in range(2, len(parts)):
        module = ".".join(parts[:end])
        if module not in sys.modules:
            try:
                importlib.import_module(module)
            except Exception:  # a class, or a module that this machine cannot load
                return


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _exists(name: str) -> bool:
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        owner: object = sys.modules.get(".".join(parts[:end]))
        if owner is not None:
            with contextlib.suppress(Exception):
                for part in parts[end:]:
                    owner = getattr(owner, part)
                return True
            return False
    return False


def _lost_arguments(paths: Sequence[str], params: list[str] | None) -> Iterator[str]:
    """Wanted arguments that the signature has no place for."""
    if params is None or any(name.startswith("**") for name in params):
        return
    for path in paths:
        root = path.partition(".")[0].partition("[")[0]
        if root not in ("*", "args", "kwargs", "self", "ret") and root not in {name.lstrip("*") for name in params}:
            yield root
