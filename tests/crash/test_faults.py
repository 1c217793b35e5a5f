"""Faults of our own, and interrupts that arrive while our code runs: neither changes training, the first are told,
the second passed on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.activation.watching import TRAIN, Done, plain, script, watched
from traincheck.trace import open_trace

INJECT = (
    TRAIN
    + """
def inject(target, error, at=1):
    \"\"\"Make ``target`` (``module:Class.method``) of TrainCheck raise ``error`` from its ``at``-th call on.\"\"\"
    import functools, importlib, sys
    session = sys.modules.get("traincheck.collect.session")
    if session is None or session.current is None:
        return
    module, _, path = target.partition(":")
    name, _, method = path.partition(".")
    owner = getattr(importlib.import_module("traincheck.collect." + module), name)
    calls = [0]
    original = getattr(owner, method)
    @functools.wraps(original)
    def broken(*args, **kwargs):
        calls[0] += 1
        if calls[0] >= at:
            error()
        return original(*args, **kwargs)
    setattr(owner, method, broken)
def throw(error):
    raise error
"""
)

PLACES = [
    "observe.observer:Observer.enter",
    "observe.observer:Observer.leave",
    "observe.observer:Observer.before_step",
    "observe.observer:Observer.after_step",
    "observe.observer:Observer._write",
    "observe.observer:Observer.process_facts",
    "steps:StepTracker.update_begins",
    "steps:StepTracker.update_ends",
    "steps:StepTracker.sign_of_iteration",
    "steps:StepTracker.forward_begins",
    "symbols:Symbols.add",
    "recorder:Recorder.states",
    "recorder:Recorder.mark",
    "recorder:Recorder.close",
    "install:Installer.take_off",
]

ERRORS = ["RuntimeError('injected')", "MemoryError()", "RecursionError('injected')", "StopIteration()"]


EVERY_TIME = ("observe.observer:Observer.enter", "steps:StepTracker.update_ends", "symbols:Symbols.add")


def _marked(places: list[str]) -> list[Any]:
    return [place if place in EVERY_TIME else pytest.param(place, marks=pytest.mark.slow) for place in places]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("plain")
    return plain(folder, script(folder, INJECT + "print(train(5))\nraise SystemExit(4)\n"))


@pytest.mark.parametrize("place", _marked(PLACES))
def test_a_fault_in_a_hook(tmp_path: Path, healthy: Done, place: str) -> None:
    error = ERRORS[PLACES.index(place) % len(ERRORS)]
    program = INJECT + f"inject({place!r}, lambda: throw({error}))\nprint(train(5))\nraise SystemExit(4)\n"
    done = watched(tmp_path, script(tmp_path, program))
    assert (done.code, done.out, done.err_of_program) == (healthy.code, healthy.out, healthy.err)
    (account,) = done.accounts
    assert (account["end"], account["exit"]) == ("exit", 4)
    assert account["faults"]
    name = error.partition("(")[0]
    assert all(name in fault["error"] and fault["count"] > 0 for fault in account["faults"]), account["faults"]
    number = len(account["faults"])
    words = (
        f"{number} part{'s' * (number > 1)} of the collection failed and {'was' if number == 1 else 'were'} left out"
    )
    assert words in "\n".join(done.said)
    assert "faults" in {lack.code for lack in open_trace(done.run).lacks}
    assert done.manifest["faults"] == number


def test_a_fault_before_anything_is_recorded(tmp_path: Path) -> None:
    """An unreadable plan: nothing is collected, and the reason is told."""
    program = (
        "import os\nopen(os.environ['TRAINCHECK_RUN'] + '/plan.json', 'w').write('{')\n" + TRAIN + "print(train())\n"
    )
    done = watched(tmp_path, script(tmp_path, program)).fine()
    assert done.said[-1].startswith("traincheck: nothing was collected: ")
    assert "JSONDecodeError" in done.said[-1]
    assert done.out == b"-4.1980791091918945\n"


INTERRUPT = (
    INJECT
    + """
import os, signal, sys, time
class Late(TimeoutError): pass
def handler(number, frame):
    raise Late("too late")
if sys.argv[1] == "Late":
    signal.signal(signal.SIGINT, handler)
waits = [1]
def interrupt():
    if waits:
        waits.pop()
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): time.sleep(0)
inject(sys.argv[2], interrupt, 3)
expected = Late if sys.argv[1] == "Late" else KeyboardInterrupt
seen = 0
for _ in range(3):
    try:
        train(3)
        if "traincheck.collect.session" not in sys.modules:
            os.kill(os.getpid(), signal.SIGINT) if waits and waits.pop() else None
            time.sleep(0.1)
    except expected as error:
        seen += 1
print(seen, train(2))
"""
)


@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "Late"])
@pytest.mark.parametrize("place", _marked([place for place in PLACES if "process_facts" not in place][:11]))
def test_an_interrupt_in_a_hook_is_the_programs(tmp_path: Path, kind: str, place: str) -> None:
    done = watched(tmp_path, [*script(tmp_path, INTERRUPT), kind, place]).fine()
    number, _, loss = done.out.decode().partition(" ")
    assert number == "1", done.accounts[0]["faults"]
    assert done.accounts[0]["faults"] == []
    assert "failed" not in "\n".join(done.said)
    assert float(loss)


def test_an_uncaught_interrupt_in_a_hook(tmp_path: Path) -> None:
    program = INTERRUPT.partition("expected =")[0] + "train(5)\nprint('never')\n"
    done = watched(tmp_path, [*script(tmp_path, program), "x", "observe.observer:Observer.before_step"])
    assert (done.code, done.out) == (130, b"")
    assert done.err_of_program.splitlines()[-1] == b"KeyboardInterrupt"
    assert (done.accounts[0]["end"], done.accounts[0]["exception"]) == ("exception", "KeyboardInterrupt")
