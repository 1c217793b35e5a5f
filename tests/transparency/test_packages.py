"""Functions of the user's own packages (``packages=``, ``--package``), and what a loop says itself."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import traincheck
from tests.collect.running import clean_environment
from tests.transparency.watching import Watched, differences, everything, watching
from traincheck.events import STAGES

PACKAGE = {
    "__init__.py": "from .models import Net\nfrom .tools import helper, _private\n",
    "tools.py": """
import dataclasses, enum, functools, typing
import torch

def helper(x, *, scale=2):
    return _private(x) * scale

def _private(x):
    return x + 1

def generator(n):
    yield from range(n)

async def coroutine(x):
    return helper(x)

@functools.lru_cache
def cached(x):
    return x * 2

@functools.wraps(helper)
def wrapped(*args, **kwargs):
    return helper(*args, **kwargs)

def fails():
    raise ValueError("mine")

class Colour(enum.Enum):
    RED = 1

    def shout(self):
        return self.name

@dataclasses.dataclass
class Point:
    x: int = 1

    def double(self):
        return Point(self.x * 2)

class Pair(typing.NamedTuple):
    a: int
    def total(self):
        return self.a

class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def get(self):
        return self.value

class MyError(ValueError):
    def explain(self):
        return "why"
""",
    "models.py": """
import torch
from torch import nn
from .tools import helper

class Base:
    @property
    def name(self):
        return type(self).__name__

    def method(self):
        return "base"

class Net(nn.Module, Base):
    count = 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.block(helper(x))

    def block(self, x):
        return self.linear(x)

    def method(self):
        return "net and " + super().method()

    @staticmethod
    def make_static(x):
        return x

    @classmethod
    def make(cls, *args):
        cls.count += 1
        return cls(*args)

    class Inner:
        def deep(self):
            return "deep"
""",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "userpackage"
    folder.mkdir()
    for name, source in PACKAGE.items():
        (folder / name).write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "userpackage"
    for name in [n for n in sys.modules if n.partition(".")[0] == "userpackage"]:
        del sys.modules[name]


def use() -> list[Any]:
    import asyncio

    import userpackage
    from userpackage import tools

    torch.manual_seed(0)
    net = userpackage.Net.make()
    errors = []
    try:
        tools.fails()
    except ValueError as error:
        errors.append(str(error))
    return [
        net(torch.ones(1, 2)).tolist(),
        userpackage.helper(1, scale=3),
        net.method(),
        net.name,
        net.make_static(4),
        userpackage.Net.make_static(5),
        userpackage.Net.count,
        userpackage.Net.Inner().deep(),
        list(tools.generator(2)),
        asyncio.run(tools.coroutine(1)),
        tools.cached(2),
        tools.cached(2),
        tools.cached.cache_info().hits > 0,
        tools.wrapped(1),
        tools.Colour.RED.shout(),
        tools.Colour(1) is tools.Colour.RED,
        tools.Point(3).double() == tools.Point(6),
        tools.Pair(7).total(),
        tools.Slotted(8).get(),
        tools.MyError().explain(),
        errors,
        inspect.signature(tools.helper),
        inspect.iscoroutinefunction(tools.coroutine),
        inspect.isgeneratorfunction(tools.generator),
        type(pickle.loads(pickle.dumps(net))).__name__,
        pickle.loads(pickle.dumps(tools.helper)) is tools.helper,
    ]


@pytest.mark.parametrize("when", ["imported before", "imported while"])
def test_a_package(when: str, package: str, tmp_path: Path) -> None:
    if when == "imported before":
        expected = use()
        sys.modules["userpackage"].Net.count = 0
        before = everything((package,))
    with watching(tmp_path / "run", packages=("torch", package)) as watched:
        found = use()
    if when == "imported while":
        sys.modules["userpackage"].Net.count = 0
        expected = use()
        before = everything((package,))
    assert found == expected
    changed = [key for key in differences(before, everything((package,))) if key[1] != "count"]
    assert changed == []
    counts = {
        "userpackage.models.Net.__init__": 1,
        "userpackage.models.Net.forward": 1,
        "userpackage.models.Net.block": 1,
        "userpackage.models.Net.method": 1,
        "userpackage.models.Base.method": 1,
        "userpackage.models.Net.make_static": 2,
        "userpackage.models.Net.make": 1,
        "userpackage.tools.generator": 1,
        "userpackage.tools.fails": 1,
        "userpackage.tools.Colour.shout": 1,
        "userpackage.tools.Point.double": 1,
        "userpackage.tools.Slotted.get": 1,
    }
    for name, count in counts.items():
        assert watched.count(name) == count, name
    assert watched.count("userpackage.tools.helper") >= 3
    assert watched.count("_private") == 0
    assert watched.count("MyError.explain") == 0
    calls = watched.calls
    outcomes = dict(calls.select("function", "outcome").iter_rows())
    assert outcomes["userpackage.tools.fails"] == "raised"
    functions = dict(calls.select("call", "function").iter_rows())
    parents = {str(f): functions.get(p) for p, f in calls.select("parent", "function").iter_rows()}
    assert parents["userpackage.models.Net.block"] == "userpackage.models.Net.forward"
    assert parents["userpackage.models.Net.forward"] == "torch.nn.modules.module.Module.__call__"
    assert parents["torch.nn.modules.linear.Linear.forward"] == "userpackage.models.Net.block"


MAIN = """
import torch
from torch import nn

def load(n):
    return torch.ones(n, 2)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 1)

    def forward(self, x):
        return self.inner(x)

    @staticmethod
    def loss(out):
        return out.sum()

def main():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        Net.loss(model(load(3))).backward()
        optimizer.step()
    print(round(sum(p.sum().item() for p in model.parameters()), 6))

if __name__ == "__main__":
    torch.manual_seed(0)
    main()
"""


def test_the_main_script_as_a_package(tmp_path: Path) -> None:
    """Its functions are made after the session starts: they are found when the script's module has got them."""
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    plain = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    words = [sys.executable, "-m", "traincheck", "collect", "-o", str(tmp_path / "run"), "--package", "__main__"]
    done = subprocess.run(
        [*words, "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    watched = Watched(tmp_path / "run")
    assert watched.count("__main__.Net.forward") == 2
    assert watched.count("__main__.Net.loss") == 2
    assert watched.count("__main__.load") == 2


# --- what a loop says itself ------------------------------------------------------------------------------------------


def test_step(tmp_path: Path) -> None:
    traincheck.step()  # harmless when nothing is collected
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with watching(tmp_path / "run") as watched:
        for _ in range(3):
            traincheck.step()
            for _ in range(2):  # two updates in what the loop calls a step
                optimizer.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
    assert [watched.count("SGD.step", step) for step in (1, 2, 3)] == [2, 2, 2]
    assert sorted(watched.by_step()) in ([1, 2, 3], [0, 1, 2, 3])


def test_stage(tmp_path: Path) -> None:
    with traincheck.stage("evaluation"):
        pass
    with pytest.raises(ValueError, match="a stage is one of"):
        traincheck.stage("lunch")
    with watching(tmp_path / "run") as watched:
        for name in STAGES:
            with traincheck.stage(name):
                torch.neg(torch.ones(1))
        with pytest.raises(KeyError), traincheck.stage("evaluation"):
            raise KeyError
        with pytest.raises(ValueError, match="a stage is one of"), traincheck.stage("lunch"):
            pass
        torch.abs(torch.ones(1))
    calls = watched.calls
    negs = calls.filter(calls["function"].cast(str).str.ends_with("Class.neg"))
    assert [str(s) for s in negs["stage"]] == list(STAGES)
    absolute = calls.filter(calls["function"].cast(str).str.ends_with("Class.abs"))
    assert [str(s) for s in absolute["stage"]] == ["init"]
