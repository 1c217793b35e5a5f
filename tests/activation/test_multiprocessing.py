"""Children of ``multiprocessing`` and ``fork``: who trains has a trace of its own, who only loads data has none."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.activation.watching import TRAIN, Done, script, watched
from traincheck.trace import open_trace


def _children(done: Done) -> list[dict[str, object]]:
    parent = next(a for a in done.accounts if a["argv"][1:] == ["program.py"] and a["ppid"] != a["pid"])
    return [a for a in done.fine().accounts if a["pid"] != parent["pid"]]


CHILDREN = (
    TRAIN
    + """
import multiprocessing, sys
def child(steps):
    train(steps)
    if steps == 3:
        sys.exit(7)
    if steps == 4:
        raise ValueError("four")
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    train(1)
    started = []
    for steps in (2, 3, 4):
        started.append(context.Process(target=child, args=(steps,)))
        started[-1].start()
    for process in started:
        process.join()
    print([process.exitcode for process in started])
"""
)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_that_train(tmp_path: Path, method: str) -> None:
    done = watched(tmp_path, [*script(tmp_path, CHILDREN), method]).fine()
    assert done.out == b"[0, 7, 1]\n"
    found = sorted((a["steps"], a["end"], a["exit"], a["exception"], a["dropped"], a["faults"]) for a in done.accounts)
    assert found == [
        (1, "exit", 0, None, 0, []),
        (2, "exit", 0, None, 0, []),
        (3, "exit", 7, None, 0, []),
        (4, "exception", 1, "ValueError", 0, []),
    ]
    trace = open_trace(done.run)
    assert trace.lacks == []
    # Every child's trace stands on its own: it begins with step 1 and a baseline of its model.
    for index, process in enumerate(trace.processes):
        marks = trace.marks.filter((pl.col("process") == index) & (pl.col("kind") == "step_begin"))
        assert marks["value"].to_list() == list(range(1, process.raw["steps"] + 1))
        reasons = trace.states.filter(pl.col("process") == index)["reason"].unique().to_list()
        assert {"baseline", "step"} <= set(reasons)


def test_fork_while_training(tmp_path: Path) -> None:
    """Parent and child go on with the same model; each records what it does itself, and nothing twice."""
    program = (
        TRAIN
        + """
import os
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def steps(n):
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
steps(2)
child = os.fork()
if child == 0:
    steps(3)
    raise SystemExit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
steps(1)
"""
    )
    done = watched(tmp_path, script(tmp_path, program)).fine()
    assert done.out == b"5\n"
    parent, child = done.accounts
    assert (parent["steps"], parent["end"], parent["exit"]) == (3, "exit", 0)
    assert (child["steps"], child["end"], child["exit"], child["forked_from"]) == (3, "exit", 5, parent["name"])
    assert child["ppid"] == parent["pid"]
    trace = open_trace(done.run)
    assert trace.lacks == []
    for index in (0, 1):
        updates = trace.marks.filter((pl.col("process") == index) & (pl.col("kind") == "step_end"))
        assert updates["value"].to_list() == [1, 2, 3]
        assert "baseline" in trace.states.filter(pl.col("process") == index)["reason"].to_list()


@pytest.mark.parametrize(
    "child",
    [
        "os._exit(0)",
        "os.execv('/bin/true', ['true'])",
        "sys.exit()",
    ],
)
def test_forked_children_that_call_nothing_leave_no_folder(tmp_path: Path, child: str) -> None:
    program = TRAIN + f"import os, sys\ntrain()\nif os.fork() == 0:\n    {child}\nos.wait()\ntrain()\n"
    (account,) = watched(tmp_path, script(tmp_path, program)).fine().accounts
    assert (account["end"], account["exit"]) == ("exit", 0)


def test_programs_that_are_started_leave_no_folder(tmp_path: Path) -> None:
    """``preexec_fn`` runs Python, even torch, between fork and exec."""
    program = (
        TRAIN
        + """
import subprocess
train()
subprocess.run(["/bin/true"], preexec_fn=lambda: torch.ones(1), check=True)
subprocess.run(["/bin/true"], check=True)
import os; os.system("true")
"""
    )
    (account,) = watched(tmp_path, script(tmp_path, program)).fine().accounts
    assert account["end"] == "exit"


def test_children_of_children(tmp_path: Path) -> None:
    program = (
        TRAIN
        + """
import os
train(1)
if os.fork() == 0:  # calls nothing itself
    if os.fork() == 0:
        train(2)
        raise SystemExit
    os.wait()
    os._exit(0)
os.wait()
"""
    )
    done = watched(tmp_path, script(tmp_path, program)).fine()
    assert [(a["steps"], a["end"]) for a in done.accounts] == [(1, "exit"), (2, "exit")]
    assert open_trace(done.run).lacks == []


LOADER = (
    TRAIN
    + """
import sys
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.arange(8.0))
    loader = DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1])
    print([batch.tolist() for (batch,) in loader])
    train()
"""
)


@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_loader_workers_are_left_alone(tmp_path: Path, method: str) -> None:
    done = watched(tmp_path, [*script(tmp_path, LOADER), method]).fine()
    assert done.out == b"[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]\n"
    (account,) = done.accounts
    assert (account["end"], account["steps"]) == ("exit", 2)
    assert [p.name for p in (done.run / "processes").iterdir()] == [account["name"]]
    assert "1 process," in done.said[-1]


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_loader_workers_are_traced_on_request(tmp_path: Path, method: str) -> None:
    words = [*script(tmp_path, LOADER), method]
    done = watched(tmp_path, words, "--trace-workers", "--scope", "full").fine()
    assert len(done.accounts) == 3
    assert all(account["records"] > 10 for account in done.accounts)
    assert open_trace(done.run).lacks == []


def test_pool_of_forked_children(tmp_path: Path) -> None:
    """A pool ends its workers with SIGTERM: what they did is there, and they are said to have ended without a word."""
    program = TRAIN + "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as p:\n"
    program += "    print(sorted(set(p.map(train, [2] * 8))))\n"
    done = watched(tmp_path, script(tmp_path, program)).fine()
    parent, *workers = done.accounts
    assert parent["end"] == "exit"
    assert workers
    trace = open_trace(done.run)
    assert {lack.code for lack in trace.lacks} <= {"unfinished-process", "open-segment", "incomplete-run"}
    assert trace.marks.filter(pl.col("kind") == "step_end").height == 16


def test_fork_server_that_has_imported_torch(tmp_path: Path) -> None:
    """The server itself trains nothing and has no folder; the children, which never import torch, are collected."""
    program = (
        TRAIN
        + """
import multiprocessing
if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    children = [context.Process(target=train, args=(steps,)) for steps in (2, 3)]
    for child in children: child.start()
    for child in children: child.join()
"""
    )
    done = watched(tmp_path, script(tmp_path, program)).fine()
    assert sorted((a["steps"], a["end"], a["exit"]) for a in done.accounts) == [
        (0, "exit", 0),
        (2, "exit", 0),
        (3, "exit", 0),
    ]
    assert open_trace(done.run).lacks == []
