"""After a collection everything stands where it stood: every attribute of every module and class, and every copy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.collect.running import clean_environment
from tests.transparency.watching import SCOPES, Watched, differences, everything, probes_alive, watching
from traincheck.collect import _probe


def program() -> tuple[Any, ...]:
    """Touches optimizers, schedulers, attention, loaders, files; imports nothing after its first run."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = torch.utils.data.DataLoader(torch.randn(8, 4, 8), batch_size=4)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    return model, optimizer, scheduler


# What the tests run by keeps books of its own meanwhile: hypothesis, for one, times every garbage collection.
BYSTANDERS = (
    "tests.",
    "traincheck",
    "polars",
    "_pytest",
    "pytest",
    "pluggy",
    "xdist",
    "execnet",
    "hypothesis",
    "_hypothesis",
    "coverage",
    "psutil",
    "__main__",
    "__mp_main__",
)


def ours(difference: tuple[str, str]) -> bool:
    owner, attribute = difference
    return not owner.startswith(BYSTANDERS) and (
        attribute not in ("__warningregistry__", "_abc_impl", "_RUST_NUMPY_BORROW_CHECKING_API")
    )


@pytest.mark.parametrize("scope", SCOPES)
def test_every_attribute_is_the_one_before_twice(scope: str, tmp_path: Path) -> None:
    with watching(tmp_path / "warm", scope=scope):
        program()
    before = everything()
    assert len(before) > 50_000
    for turn in ("first", "second"):
        with watching(tmp_path / turn, scope=scope):
            changed = len(differences(before, everything()))
            kept = program()
        assert changed > (2000 if scope == "full" else 100)
        assert [d for d in differences(before, everything()) if ours(d)] == []
        del kept
    assert probes_alive() == []


def test_both_collections_record_the_same(tmp_path: Path) -> None:
    found = []
    for turn in ("first", "second", "third"):
        with watching(tmp_path / turn) as watched:
            program()
        found.append(watched.by_step())
    assert found[1] == found[2]
    assert {step: calls for step, calls in found[0].items() if step} == {
        step: calls for step, calls in found[1].items() if step
    }


def test_copies_made_meanwhile_hold_the_originals_afterwards(tmp_path: Path) -> None:
    class Act(nn.Module):
        act = staticmethod(F.gelu)

        def __init__(self) -> None:
            super().__init__()
            self.own = F.relu

    def make() -> Any:
        class Local:
            plain = F.relu
            static = staticmethod(torch.add)

        def default(function: Any = F.relu, *, other: Any = torch.add) -> tuple[Any, Any]:
            return function, other

        inside = torch.mul

        def closure() -> Any:
            return inside

        inner = nn.Linear(2, 2)
        inner.reset = inner.reset_parameters  # type: ignore[assignment]
        slim = Slim()
        slim.function = torch.mul
        return (
            Local,
            default,
            closure,
            {"relu": F.relu},
            [torch.add],
            Act(),
            nn.TransformerEncoderLayer(8, 2, 8, activation=F.gelu),
            slim,
            inner,
        )

    class Slim:
        __slots__ = ("function",)
        function: Any

    originals = F.relu, torch.add, torch.mul, F.gelu
    with watching(tmp_path / "run"):
        local, default, closure, table, items, act, layer, slim, inner = make()
        assert all(_probe.is_probe(f) for f in (local.plain, local.static, default()[0], table["relu"], act.own))
    relu, add, mul, gelu = originals
    assert (F.relu, torch.add, torch.mul, F.gelu) == originals
    assert local.plain is relu
    assert local.static is add
    assert default() == (relu, add)
    assert default()[0] is relu
    assert default()[1] is add
    assert closure() is mul
    assert table["relu"] is relu
    assert items[0] is add
    assert act.own is relu
    assert layer.activation is gelu
    assert slim.function is mul
    assert inner.reset.__func__ is nn.Linear.reset_parameters
    assert inner.reset.__self__ is inner
    assert probes_alive() == []


def test_what_cannot_be_changed_passes_through_and_stays_out_of_the_next_recording(tmp_path: Path) -> None:
    with watching(tmp_path / "first"):
        kept = (F.relu, frozenset([torch.add]))
        bound = torch.ones(2).add_
    assert kept[0] == F.relu
    assert torch.add in kept[1]
    with watching(tmp_path / "second") as watched:
        assert kept[0](torch.tensor([-1.0])).tolist() == [0.0]
        bound(1)
    assert watched.count("relu") <= 1  # the C function below, which has a probe of this recording
    assert watched.count("nn.functional.relu") == 0
    assert watched.count("TensorBase.add_") == 0


LAZY = """
import sys, gc, torch
from torch import nn
import traincheck
from traincheck.collect import _probe
model = nn.Linear(2, 2)
assert "torch._dynamo" not in sys.modules
with traincheck.collect(sys.argv[1]):
    optimizer = torch.optim.AdamW(model.parameters())  # imports much of torch, which copies functions into tables
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    import torch._dynamo, torch._inductor.decomposition, torch.distributed.tensor
    assert _probe.is_probe(torch.manual_seed), "re-installed"
assert "torch._dynamo" in sys.modules
gc.collect()
left = [o for o in gc.get_objects() if _probe.is_probe(o)]
assert left == [], left[:10]

@torch.jit.script
def scripted(x):
    return torch.softmax(torch.relu(x), 0) + torch.nn.functional.gelu(x)

assert "aten::softmax" in str(scripted.graph) and "PythonOp" not in str(scripted.graph)
compiled = torch.compile(lambda x: torch.relu(x) + 1, backend="eager", fullgraph=True)
assert compiled(torch.ones(1)).tolist() == [2.0]
"""


def test_modules_of_torch_imported_meanwhile_never_see_probes(tmp_path: Path) -> None:
    script = tmp_path / "lazy.py"
    script.write_text(LAZY)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    steps = Watched(tmp_path / "run").by_step()
    # Nothing of the imports in the first step was recorded; it makes the optimizer's state.
    assert set(steps[1] - steps[2]) == {
        "torch._VariableFunctionsClass.tensor",
        "torch._VariableFunctionsClass.zeros_like",
    }
    assert not steps[2] - steps[1]
