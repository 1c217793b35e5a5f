"""The observer: it changes nothing, and its records are the training's, whatever its loop looks like."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.pilot.observed_programs import observed
from traincheck.pilot.cases import Tolerance
from traincheck.pilot.grading.comparison import compare
from traincheck.pilot.grading.records import Records

TRAINING = """
    import hashlib, random, sys
    import torch

    torch.manual_seed(3)
    random.seed(4)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(4, 8)
            self.norm = torch.nn.BatchNorm1d(8)
            self.dropout = torch.nn.Dropout(0.3)
            self.last = torch.nn.Linear(8, 1)

        def forward(self, x, scale=1.0, **extra):
            return self.last(self.dropout(self.norm(self.first(x)))) * scale

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        for part in range(2):
            batch = torch.randn(6, 4) * random.random()
            loss = torch.nn.functional.mse_loss(model(batch, mask=torch.ones(6)), torch.zeros(6, 1)) / 2
            loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.eval()
            model(torch.ones(2, 4))  # an evaluation is no part of an update
            model.train()
    state = [*model.state_dict().values(), torch.get_rng_state()]
    state += [value for held in optimizer.state.values() for value in held.values()]
    digest = hashlib.sha256()
    for tensor in state:
        digest.update(tensor.numpy().tobytes())
    versions = [parameter._version for parameter in model.parameters()]
    print(digest.hexdigest(), random.getstate()[1][:3], versions, loss.item().hex(), sys.path)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Records, str]:
    """What the training prints with and without the observer, and its records."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "plain").mkdir()
    plain, _ = observed(folder / "plain", TRAINING, watched=False)
    watched, records = observed(folder / "watched", TRAINING)
    assert plain.returncode == watched.returncode == 0, watched.stderr
    return watched.stdout.replace("watched", "plain"), records, plain.stdout


def test_the_observer_changes_nothing(trained: tuple[str, Records, str]) -> None:
    """Parameters, buffers, optimizer, generators, loss and versions: the same bits; the module path too."""
    watched, records, plain = trained
    assert watched == plain
    assert not records.faults


def test_records_of_a_training(trained: tuple[str, Records, str]) -> None:
    _, records, _ = trained
    assert records.missing(1, 3) == []
    assert records.extra(1, 3) == []
    process = records.ranks[0]
    assert process.end is not None
    assert process.end.steps == 3
    first, second, third = (process.steps[number] for number in (1, 2, 3))
    names = ["first.bias", "first.weight", "last.bias", "last.weight", "norm.bias", "norm.weight"]
    assert sorted(first.before.parameters) == sorted(first.gradients) == names
    assert sorted(first.after.buffers) == ["norm.num_batches_tracked", "norm.running_mean", "norm.running_var"]
    assert first.after.parameters != first.before.parameters
    assert first.after.parameters == second.before.parameters
    assert second.after.buffers != third.before.buffers  # the evaluation moves none of them, the next forwards do
    assert [len(step.inputs) for step in (first, second, third)] == [2, 2, 2]
    assert sorted(first.inputs[0]) == ["mask", "x"]
    assert first.generators_before == first.generators_after
    assert first.generators_after != second.generators_after
    assert sorted(first.generators_after)[-2:] == ["python", "torch"]
    assert {"first.weight.exp_avg", "first.weight.step", "first.weight.setting.lr", "first.weight.setting.betas.1"} <= {
        *first.optimizer_state
    }


def test_generators_that_nobody_seeded_are_told_from_seeded_ones(tmp_path: Path) -> None:
    """The system seeds them anew in every run, and libraries draw from them: that is no state of the training."""
    program = """
        import random
        import torch
        import numpy
        random.random()
        {seed}
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            [random.random() for _ in range(700)], numpy.random.rand(1300)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    """
    found = {}
    for name, seed in (("none", ""), ("one", "random.seed(1); numpy.random.seed(1)"), ("two", "random.seed(2)")):
        done, records = observed(tmp_path / name, program.replace("{seed}", seed))
        assert done.returncode == 0, done.stderr
        found[name] = [records.ranks[0].steps[number].generators_after for number in (1, 2)]
    assert [one["python"] for one in found["none"]] == [one["numpy"] for one in found["none"]] == ["unseeded"] * 2
    assert len({one["python"] for name in ("one", "two") for one in found[name]}) == 4
    assert [one["numpy"] == "unseeded" for name in ("one", "two") for one in found[name]] == [False, False, True, True]


def test_each_content_is_kept_once(trained: tuple[str, Records, str]) -> None:
    import torch

    _, records, _ = trained
    files = sorted(records.ranks[0].folder.glob("*.pt"))
    held = [name for path in files for name in torch.load(path, weights_only=True)]
    assert len(held) == len(set(held))
    wanted = {
        entry.sha256
        for step in records.ranks[0].steps.values()
        for entry in (*step.after.parameters.values(), *step.optimizer_state.values())
    }
    assert wanted <= set(held)


def test_steps_of_any_loop_are_counted_at_the_outermost_optimizer(tmp_path: Path) -> None:
    """Two optimizers in turn, one that steps another inside itself, a step that raises, and a closure."""
    done, records = observed(
        tmp_path,
        """
        import torch
        one, two = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        model = torch.nn.ModuleDict({"one": one, "two": two})

        class Both(torch.optim.SGD):
            def step(self, closure=None):
                inner.step()
                return super().step(closure)

        class Fails(torch.optim.SGD):
            def step(self, closure=None):
                raise ArithmeticError

        def loss():
            value = one(torch.ones(3, 2)).sum() + two(torch.ones(3, 2)).square().sum()
            value.backward()
            return value

        inner = torch.optim.SGD(one.parameters(), lr=0.1)
        outer = Both(two.parameters(), lr=0.1)
        fails = Fails(two.parameters(), lr=0.1)
        closure = torch.optim.LBFGS(two.parameters(), lr=0.1, max_iter=2)
        loss(); inner.step()            # 1
        loss(); outer.step()            # 2, with a step of inner inside
        try:
            fails.step()
        except ArithmeticError:
            pass
        loss(); inner.step()            # 3
        closure.step(loss)              # 4
        """,
    )
    assert done.returncode == 0, done.stderr
    assert not records.faults
    steps = records.ranks[0].steps
    assert [(number, step.optimizer) for number, step in sorted(steps.items())] == [(1, 1), (2, 2), (3, 1), (4, 4)]
    assert sorted(steps[1].before.parameters) == ["bias", "model2.bias", "model2.weight", "weight"]
    assert len(steps[4].inputs) >= 4


def test_names_are_those_of_the_model_whatever_it_is_wrapped_in(tmp_path: Path) -> None:
    """Called bare first, then wrapped, then through a wrapper that only holds it; a checkpointed part is no model."""
    done, records = observed(
        tmp_path,
        """
        import torch
        from torch.utils.checkpoint import checkpoint

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.module = torch.nn.Linear(2, 2)
                self.head = torch.nn.Linear(2, 1)

            def forward(self, tokens, labels=None):
                return self.head(checkpoint(self.module, tokens, use_reentrant=True)).sum()

        class Wrapper(torch.nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module

            def forward(self, *args, **kwargs):
                return self.module(*args, **kwargs)

        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(3, 2, requires_grad=True)
        model(x).backward(); optimizer.step()
        wrapped = Wrapper(Wrapper(model))
        wrapped(x, labels=x).backward(); optimizer.step()
        """,
    )
    assert done.returncode == 0, done.stderr
    assert not records.faults
    for step in records.ranks[0].steps.values():
        assert sorted(step.after.parameters) == ["head.bias", "head.weight", "module.bias", "module.weight"]
    assert [sorted(one) for one in records.ranks[0].steps[2].inputs] == [["labels", "tokens"]]


def test_how_a_program_ends_is_recorded(tmp_path: Path) -> None:
    """An exception before torch is there, one with an excepthook of the program's own, and sys.exit."""
    done, records = observed(tmp_path / "syntax", "import torch\nthis is no program\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert [one.raised.type for one in records.processes if one.raised] == ["builtins.SyntaxError"]

    program = "import sys, torch\nsys.excepthook = lambda *_: print('mine')\nraise KeyError('w')\n"
    done, records = observed(tmp_path / "hook", program)
    assert done.stdout == "mine\n"
    (raised,) = [one.raised for one in records.processes if one.raised]
    assert (raised.type, raised.text) == ("builtins.KeyError", "'w'")

    done, records = observed(tmp_path / "exit", "import sys, torch\nsys.exit(7)\n")
    assert done.returncode == 7
    assert [(one.raised, one.end is not None) for one in records.processes] == [(None, True)]


def test_a_program_that_leaves_at_once_has_ended_in_order(tmp_path: Path) -> None:
    """``os._exit`` after training, as some programs do to be rid of noise at the end; a child's is none of it."""
    done, records = observed(
        tmp_path,
        """
        import os, torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        if os.fork() == 0:
            os._exit(3)
        os.wait()
        os._exit(0)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert records.missing(1, 1) == []
    assert len(records.processes) == 1


def test_another_finder_that_asks_all_finders_is_no_trouble(tmp_path: Path) -> None:
    """As TrainCheck's own does, which stands in front of ours."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text(
        textwrap.dedent(
            """
            import sys
            class Finder:
                def find_spec(self, name, path=None, target=None):
                    if name != "torch":
                        return None
                    others = [one for one in sys.meta_path if one is not self]
                    return next(filter(None, (one.find_spec(name, path, target) for one in others)), None)
            sys.meta_path.insert(0, Finder())
            """
        )
    )
    program = """
        import torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    """
    done, records = observed(tmp_path / "run", program, path=str(other))
    assert done.returncode == 0, done.stderr[-500:]
    assert records.missing(1, 1) == []


def test_a_fault_of_the_observer_does_not_reach_the_program(tmp_path: Path) -> None:
    done, records = observed(
        tmp_path,
        """
        import os, shutil, torch
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        mine = torch.get_rng_state
        torch.get_rng_state = lambda: None   # what the observer reads is broken
        optimizer.step()
        torch.get_rng_state = mine
        print("trained")
        """,
    )
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert records.faults
    assert records.missing(1, 1)


def test_another_sitecustomize_runs_as_it_would_have(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("import builtins\nbuiltins.was_customized = __name__\n")
    done, _ = observed(tmp_path / "run", "import torch\nprint(was_customized)\n", path=str(other))
    assert done.stdout == "sitecustomize\n", done.stderr


@pytest.mark.slow
def test_two_ranks_under_torchrun(tmp_path: Path) -> None:
    """DistributedDataParallel on gloo: complete records of both ranks, and the same again in another run."""
    program = """
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        torch.manual_seed(dist.get_rank())
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).square().mean().backward()
            optimizer.step()
        dist.barrier()
        dist.destroy_process_group()
    """
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    runs = []
    for name in ("one", "two"):
        done, records = observed(tmp_path / name, program, prefix=launch)
        assert done.returncode == 0, done.stderr
        assert records.missing(2, 2) == []
        assert not records.faults
        runs.append(records)
    for process in runs[0].ranks.values():
        assert sorted(process.steps[1].after.parameters) == ["bias", "weight"]
    found = compare(runs[1], runs[0], name="again", ranks=2, steps=2, tolerance=Tolerance())
    assert found.matches, found.first


@pytest.mark.slow
def test_fsdp_shards_and_watching_by_traincheck(tmp_path: Path) -> None:
    """FSDP1 flat and FSDP2 sharded parameters are read as this rank's shard; TrainCheck around it changes no bit."""
    program = """
        import torch
        import torch.distributed as dist
        from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
        dist.init_process_group("gloo")
        for kind in ("flat", "sharded"):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
            if kind == "flat":
                model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
            else:
                fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2,)))
            optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
            for step in range(2):
                optimizer.zero_grad()
                model(torch.randn(3, 4)).square().mean().backward()
                optimizer.step()
        dist.barrier()
        dist.destroy_process_group()
    """
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    plain, one = observed(tmp_path / "plain", program, prefix=launch)
    collect = ("-m", "traincheck", "collect", "-o", "trace", "--")
    import sys

    watched, two = observed(tmp_path / "watched", program, prefix=(*collect, sys.executable, *launch))
    assert plain.returncode == watched.returncode == 0, plain.stderr + watched.stderr
    assert one.missing(2, 4) == []
    assert not one.faults + two.faults
    step = one.ranks[1].steps[1]
    assert {name: entry.shape for name, entry in step.after.parameters.items()} == {"_flat_param": (22,)}
    shapes = {name: entry.shape for name, entry in one.ranks[1].steps[3].after.parameters.items() if "model2" in name}
    assert shapes["model2.0.weight"] == (3, 4)
    found = compare(two, one, name="plain", ranks=2, steps=4, tolerance=Tolerance())
    assert found.matches, found.first or found.missing
    assert json.loads((tmp_path / "watched" / "trace" / "manifest.json").read_text())
