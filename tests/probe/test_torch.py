"""Real torch with probes where its functions stood: same results, same behaviour, recorded calls."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.jit import _builtins

from tests.probe.conftest import Recording
from traincheck.collect import _probe
from traincheck.events import Outcome, Value

# torch says of several things tried here that they are on their way out, or new.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

Put = Callable[..., Any]


@pytest.fixture
def put(recording: Recording) -> Iterator[Put]:
    """Puts a probe in the place of ``owner.name``; takes all off at the end."""
    undo: list[Callable[[], None]] = []
    ids = iter(range(1, 1000))

    def place(owner: Any, name: str, **options: Any) -> Any:
        own = name in vars(owner)
        raw = vars(owner)[name] if own else getattr(owner, name)
        function = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
        probe = _probe.Probe(function, next(ids), **options)
        new = type(raw)(probe) if isinstance(raw, classmethod | staticmethod) else probe
        setattr(owner, name, new)
        undo.append(lambda: setattr(owner, name, raw) if own else delattr(owner, name))
        return probe

    yield place
    for step in reversed(undo):
        step()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 2))


def train(steps: int = 3) -> list[torch.Tensor]:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(torch.randn(6, 4)), torch.randint(0, 2, (6,)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.detach().clone() for p in net.parameters()), torch.get_rng_state()]


PROBED: list[tuple[Any, str]] = [
    (torch, "randn"), (torch, "randint"), (torch, "add"), (torch, "layer_norm"), (torch, "manual_seed"), (F, "linear"),
    (F, "gelu"), (F, "dropout"), (F, "layer_norm"), (F, "cross_entropy"), (torch._C._nn, "gelu"),
    (nn.Module, "__call__"), (nn.Linear, "forward"), (nn.Module, "parameters"), (torch.Tensor, "backward"),
    (torch.Tensor, "add_"),
    (torch.Tensor, "mul_"), (torch.Tensor, "detach"), (torch.Tensor, "__add__"), (torch.autograd, "backward"),
    (torch.optim.AdamW, "step"), (torch.optim.Optimizer, "zero_grad"), (torch.nn.utils, "clip_grad_norm_"),
]  # fmt: skip


def test_training_is_bitwise_the_same(put: Put, recording: Recording) -> None:
    expected = train()
    for owner, name in PROBED:
        put(owner, name, capture_all=True, location=2)
    found = train()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert _probe.faults() == []
    calls = recording.calls()
    assert len({c.function for c in calls}) >= len(PROBED) - 6
    assert all(c.outcome == Outcome.RETURNED for c in calls)


def test_c_functions_and_methods(put: Put, recording: Recording) -> None:
    put(torch, "add", capture_all=True)
    put(torch.Tensor, "add_", capture_all=True)
    put(torch.Tensor, "__mul__", capture_all=True)
    x = torch.ones(2)
    assert torch.add(x, 1, alpha=2).tolist() == [3, 3]
    assert x.add_(1).tolist() == [2, 2]
    assert torch.Tensor.add_(x, 1).tolist() == [3, 3]
    assert (x * 2).tolist() == [6, 6]
    with pytest.raises(TypeError, match=r"add\(\) received an invalid combination"):
        torch.add("x")  # type: ignore[call-overload]
    calls = recording.calls()
    assert [c.outcome for c in calls] == [0, 0, 0, 0, 1]
    tensor = ("Tensor", "torch.float32", (2,), "cpu", False)
    assert recording.captured(calls[0]) == {"args[0]": tensor, "args[1]": 1, "kwargs.alpha": 2, "ret": tensor}
    assert recording.captured(calls[1]) == {"args[0]": tensor, "args[1]": 1, "ret": tensor}


def test_autograd_function_apply(put: Put, recording: Recording) -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    put(torch.autograd.Function, "apply", capture_all=True)
    put(Double, "forward")
    put(Double, "backward")
    x = torch.ones(2, requires_grad=True)
    Double.apply(x).sum().backward()
    apply = Double.apply
    apply(x)
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]
    assert Double.apply.__self__ is Double
    assert [(c.function, c.parent) for c in recording.calls()] == [(1, 0), (2, 1), (3, 0), (1, 0), (2, 4)]


def test_backward_runs_in_its_own_thread_with_hooks(put: Put, recording: Recording) -> None:
    """On CPU autograd runs in the caller's thread; a thread of the program's own stands for its device threads."""
    seen: list[int] = []
    probe = _probe.Probe(torch.Tensor.sum, 50)
    x = torch.ones(3, requires_grad=True)

    def hook(grad: torch.Tensor) -> None:
        probe(grad)
        seen.append(threading.get_ident())

    x.register_hook(hook)
    y = (x * 2).sum()
    put(torch.Tensor, "backward")
    thread = threading.Thread(target=y.backward)
    thread.start()
    thread.join()
    calls = recording.calls()
    assert len(seen) == 1
    assert [(c.function, c.parent) for c in calls] == [(1, 0), (50, 1)]
    assert len({c.thread for c in calls}) == 1


def test_module_hooks(put: Put, recording: Recording) -> None:
    put(nn.Module, "__call__", outermost=1, group=2)
    put(nn.Linear, "forward")
    net = model()
    seen: list[str] = []
    net[0].register_forward_pre_hook(lambda m, a: seen.append("pre"))
    net[0].register_forward_hook(lambda m, a, o: seen.append("post"))
    net[0].register_full_backward_hook(lambda m, i, o: seen.append("back"))
    net(torch.randn(2, 4, requires_grad=True)).sum().backward()
    net[0](torch.randn(2, 4))
    assert seen == ["pre", "post", "back", "pre", "post"]
    assert [c.function for c in recording.calls()] == [1, 2, 2, 1, 2]


# --- __torch_function__ -----------------------------------------------------------------------------------------------


class Watching(torch.Tensor):
    """Answers through a registry keyed by function, as the torch documentation shows it."""

    registry: dict[Any, Callable[..., Any]] = {}  # noqa: RUF012
    seen: list[Any] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        if func in cls.registry:
            return cls.registry[func](*args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def watching() -> Iterator[type[Watching]]:
    Watching.registry.clear()
    Watching.seen.clear()
    yield Watching
    Watching.registry.clear()
    Watching.seen.clear()


@pytest.mark.parametrize("before", [True, False], ids=["registered before", "registered after"])
def test_torch_function_registries(put: Put, watching: type[Watching], before: bool) -> None:
    functions: list[tuple[Any, str]] = [(torch, "add"), (F, "relu"), (torch.Tensor, "mul"), (torch._C._nn, "gelu")]
    if before:
        watching.registry.update({getattr(o, n): lambda *a, n=n, **k: n for o, n in functions})
    for owner, name in functions:
        put(owner, name, capture_all=True)
    if not before:
        watching.registry.update({getattr(o, n): lambda *a, n=n, **k: n for o, n in functions})
    x = torch.ones(2).as_subclass(watching)
    assert [torch.add(x, 1), F.relu(x), x.mul(2), F.gelu(x)] == ["add", "relu", "mul", "gelu"]
    assert _probe.faults() == []


def test_torch_function_identity(put: Put, watching: type[Watching]) -> None:
    """``func is torch.add``: torch hands the handler what stands at the place torch itself looks it up.

    Tensor methods are looked up on torch.Tensor and Python functions by their global name: the probe is found.
    Functions in C are looked up in the class of torch._C._VariableFunctions, so a probe on torch.add alone is not
    what the handler gets: an installer puts the same probe there too.
    """
    put(torch.Tensor, "mul")
    put(F, "relu")
    probe = put(torch, "add")
    x = torch.ones(2).as_subclass(watching)
    _ = x.mul(2), F.relu(x), torch.add(x, 1)
    seen = [f for f in watching.seen if getattr(f, "__name__", "") in ("mul", "relu", "add")]
    assert [s is t for s, t in zip(seen, (torch.Tensor.mul, F.relu, torch.add), strict=False)] == [True, True, False]
    assert seen[2] == torch.add
    watching.seen.clear()
    namespace = type(torch._C._VariableFunctions)
    original = _probe.replace(namespace, "add", staticmethod(probe))
    try:
        torch.add(x, 1)
        assert any(f is torch.add for f in watching.seen)
    finally:
        assert _probe.replace(namespace, "add", original).__func__ is probe
    assert torch._C._VariableFunctions.add is probe.__wrapped__
    with pytest.raises(AttributeError, match="no attribute 'nothing' of its own"):
        _probe.replace(namespace, "nothing", 1)


def test_reading_a_tensor_never_calls_torch_function(recording: Recording, watching: type[Watching]) -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    x = torch.ones(2).as_subclass(watching)
    x.grad = torch.ones(2)
    names = ("dtype", "shape", "device", "requires_grad", "grad", "is_leaf", "data_ptr", "names", "ndim")
    watching.seen.clear()
    captures = [(i, 0, (("arg", 0, None), ("attr", name))) for i, name in enumerate(names)]
    probe = _probe.Probe(bool, 1, captures=captures)
    everything = _probe.Probe(type, 2, capture_all=True)
    one = object()
    with Mode():
        everything(x)
        everything(torch.ones(3))
        everything(one)
        seen.clear()
        everything(torch.Tensor)
        everything(x)
    assert watching.seen == []
    assert seen == []
    plain = torch.ones(1)
    with Mode():
        seen.clear()
        probe(plain)
        assert {getattr(f, "__name__", "") for f in seen} <= {"__bool__"}
    assert recording.captured(recording.calls()[0])["args[0]"][0] == "Watching"
    assert _probe.faults() == []


def test_tensor_subclasses_of_all_kinds(recording: Recording) -> None:
    from torch._subclasses import FakeTensorMode
    from torch.nested import nested_tensor

    with FakeTensorMode() as mode:
        fake = mode.from_tensor(torch.ones(2, 3))
    jagged = nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    strided = nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided)
    sparse = torch.eye(3).to_sparse()
    compressed = torch.eye(3).to_sparse_csr()
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    many = torch.ones((1,) * 40)
    named = torch.ones(2, names=("n",)) if hasattr(torch.ones(1), "names") else torch.ones(2)

    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(
                cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes"
            )

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise RuntimeError("an angry subclass")

    values = [fake, jagged, strided, sparse, compressed, quantized, many, named, Wrapper(torch.ones(2))]
    probe = _probe.Probe(id, 1, capture_all=True)
    for value in values:
        assert probe(value) == id(value)
    calls = recording.calls()
    kinds = {}
    for value, call in zip(values, calls, strict=True):
        _, kind, _, high = call.captures[0]
        kinds[type(value).__name__, str(value.layout)] = kind
        assert kind in (Value.TENSOR, Value.OBJECT)
        assert high == id(value)
    assert kinds["Tensor", "torch.sparse_coo"] == kinds["Tensor", "torch.sparse_csr"] == Value.TENSOR
    assert kinds["FakeTensor", "torch.strided"] == Value.TENSOR


def test_dtensors_differ_by_placement(recording: Recording, tmp_path: Path) -> None:
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        full = torch.ones(4, 2)
        made = [distribute_tensor(full, mesh, [p]) for p in (Shard(0), Shard(1), Replicate(), Shard(0))]
        encoded = [_probe.encode(t) for t in made]
        assert [kind for kind, _, _ in encoded] == [Value.TENSOR] * 4
        symbols = [low for _, low, _ in encoded]
        assert len(set(symbols[:3])) == 3
        assert symbols[3] == symbols[0]
        assert recording.symbols.by_id[symbols[0]][1][0] == "DTensor"
        assert _probe.faults() == []
    finally:
        dist.destroy_process_group()


# --- copies and files -------------------------------------------------------------------------------------------------


class HoldsFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = F.relu
        self.op = torch.add
        self.method = torch.Tensor.mul

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.op(x, x))


def test_modules_that_hold_functions(put: Put) -> None:
    for owner, name in [(F, "relu"), (torch, "add"), (torch.Tensor, "mul")]:
        put(owner, name)
    net = HoldsFunction()
    assert _probe.is_probe(net.act)
    assert copy.deepcopy(net).act is F.relu
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert (again.act is F.relu, again.op is torch.add, again.method == torch.Tensor.mul) == (True, True, True)
    assert b"traincheck" not in file.getvalue().replace(b"tests", b"")
    assert torch.equal(again(torch.ones(2)), net(torch.ones(2)))


@pytest.mark.parametrize("target", [(torch, "add"), (F, "relu"), (nn.Linear, "forward"), (torch.optim.SGD, "step")])
def test_pickled(put: Put, target: tuple[Any, str]) -> None:
    owner, name = target
    original = getattr(owner, name)
    probe = put(owner, name)
    assert pickle.loads(pickle.dumps(probe)) is getattr(owner, name)
    assert pickle.loads(pickle.dumps(_probe.Probe(original, 99))) == original


# --- torch.jit --------------------------------------------------------------------------------------------------------


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(F.relu(self.norm(self.linear(x))) + x.sum(), -1)


def test_jit_script(put: Put) -> None:
    """Python functions and methods compile through their probe. C functions are known to the compiler by identity: a
    probe of one must be registered (else it becomes an opaque Python call)."""
    for owner, name in [(F, "relu"), (F, "layer_norm"), (nn.Linear, "forward"), (nn.Module, "__call__")]:
        put(owner, name, capture_all=True)
    for owner, name in [
        (torch, "softmax"),
        (torch, "layer_norm"),
        (torch, "relu"),
        (F, "linear"),
        (torch.Tensor, "sum"),
    ]:
        original = getattr(owner, name)
        probe = put(owner, name)
        known = _builtins._find_builtin(original)
        if known:
            _builtins._register_builtin(probe, known)
    net = Scripted()
    x = torch.ones(2, 2)
    scripted = torch.jit.script(net)
    assert torch.allclose(scripted(x), net(x))
    file = io.BytesIO()
    torch.jit.save(scripted, file)  # impossible with an opaque Python call inside
    file.seek(0)
    assert torch.allclose(torch.jit.load(file)(x), net(x))


def test_jit_trace(put: Put) -> None:
    for owner, name in [(torch, "softmax"), (F, "relu"), (nn.Linear, "forward"), (nn.Module, "__call__")]:
        put(owner, name, location=2)
    net = Scripted()
    x = torch.rand(2, 2)
    traced = torch.jit.trace(net, x)
    assert torch.allclose(traced(x + 1), net(x + 1))


# --- torch.func, checkpoint, compile ----------------------------------------------------------------------------------


def test_torch_func(put: Put, recording: Recording) -> None:
    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.add(w * x, 1)).sum()

    def all_of_it() -> list[torch.Tensor]:
        net = nn.Linear(3, 3)
        nn.init.ones_(net.weight)
        nn.init.ones_(net.bias)
        w, x = torch.arange(3.0), torch.arange(6.0).reshape(2, 3)
        params = dict(net.named_parameters())
        return [
            torch.func.vmap(loss, in_dims=(None, 0))(w, x),
            torch.func.grad(loss)(w, x[0]),
            torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, x),
            torch.func.jacrev(torch.sin)(w),
            torch.func.hessian(lambda w: loss(w * w, x[0]))(w),
            torch.func.jvp(torch.sin, (w,), (w,))[1],
            torch.func.functional_call(net, params, (x,)).detach(),
            torch.func.vmap(torch.sum)(x),
        ]

    expected = all_of_it()
    for owner, name in [
        (torch, "add"),
        (torch, "sin"),
        (torch, "sum"),
        (F, "relu"),
        (nn.Module, "__call__"),
        (torch.Tensor, "sum"),
    ]:
        put(owner, name, capture_all=True, location=2)
    assert all(torch.equal(a, b) for a, b in zip(expected, all_of_it(), strict=True))
    assert _probe.faults() == []
    assert len(recording.calls()) > 8


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint(put: Put, recording: Recording, reentrant: bool) -> None:
    def run() -> torch.Tensor:
        net = model()
        torch.manual_seed(3)
        x = torch.randn(2, 4, requires_grad=True)
        torch.utils.checkpoint.checkpoint(net, x, use_reentrant=reentrant).sum().backward()
        weight = net[0].weight.grad
        assert weight is not None
        return weight

    expected = run()
    for owner, name in [
        (nn.Module, "__call__"),
        (F, "dropout"),
        (torch.utils.checkpoint, "checkpoint"),
        (torch.Tensor, "backward"),
    ]:
        put(owner, name, capture_all=True)
    assert torch.equal(expected, run())
    calls = recording.calls()
    by_number = {c.number: c for c in calls}
    dropouts = [c for c in calls if c.function == 2]
    assert len(dropouts) == 2  # in the forward and again in the recomputation, which is inside backward
    top = dropouts[1]
    while top.parent:
        top = by_number[top.parent]
    assert top.function == 4


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_with_boundary_probes(put: Put, recording: Recording, backend: str) -> None:
    def run(compile: bool) -> list[torch.Tensor]:
        torch._dynamo.reset()
        net = model().eval()
        forward = torch.compile(net, backend=backend, fullgraph=True) if compile else net
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        torch.manual_seed(1)
        for _ in range(3):
            optimizer.zero_grad()
            forward(torch.randn(6, 4)).sum().backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()]

    expected = run(True)
    put(nn.Module, "__call__", outermost=1, group=1, capture_all=True)
    put(torch.optim.SGD, "step")
    put(torch.optim.Optimizer, "zero_grad")
    put(torch.Tensor, "backward")
    assert all(torch.equal(a, b) for a, b in zip(expected, run(True), strict=True))
    assert [c.function for c in recording.calls() if not c.parent] == [3, 1, 4, 2] * 3
    assert _probe.faults() == []
    torch._dynamo.reset()


def test_compile_of_a_whole_step(put: Put, recording: Recording) -> None:
    """A compiled function that itself calls probed functions: graph breaks are allowed, wrong results are not."""
    torch._dynamo.reset()
    put(F, "relu")
    put(torch, "add")
    put(torch.Tensor, "mul")

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.relu(torch.add(x, 1)).mul(2)

    x = torch.ones(2, requires_grad=True)
    y = torch.compile(f, backend="eager")(x)
    assert y.tolist() == [4, 4]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]
    torch._dynamo.reset()


def test_inference_and_other_modes(put: Put, recording: Recording) -> None:
    put(torch, "add", capture_all=True)
    x = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        torch.add(x, x)
    with torch.no_grad(), torch.autograd.set_multithreading_enabled(False):
        torch.add(x, x)
    with torch.device("meta"):
        torch.add(torch.ones(2), 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.add(x, x)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        torch.add(x, x).sum().backward()
    assert x._version == 0
    assert _probe.faults() == []
    found = [recording.captured(c)["ret"] for c in recording.calls()]
    assert [f[3] for f in found] == ["cpu", "cpu", "meta", "cpu", "cpu"]
