"""Digests: every byte counts, every kind of tensor is digested or said to have none, nothing changes."""

from __future__ import annotations

import warnings

import pytest
import torch
from fake import FakeRecorder
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_intdigest

from traincheck.collect import digests as module
from traincheck.collect.digests import Absent, Digester, combine
from traincheck.collect.observe import reduction
from traincheck.collect.observe.guard import quiet, tracing

DTYPES = [
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype) and not str(dtype).startswith(("torch.q", "torch.bits"))
]


@pytest.fixture(params=[False, True], ids=["memory", "reduction"])
def digester(request: pytest.FixtureRequest) -> Digester:
    return Digester(FakeRecorder.view, force_reduction=request.param)


def one(digester: Digester, tensor: torch.Tensor) -> int | Absent:
    with quiet():
        return digester.one(tensor)


def of_bytes(data: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of ``dtype`` whose memory is ``data`` (uint8)."""
    return data.clone().view(dtype)


@pytest.mark.parametrize("dtype", sorted(set(DTYPES), key=str), ids=str)
def test_every_dtype_every_byte(digester: Digester, dtype: torch.dtype) -> None:
    size = 6 * dtype.itemsize
    data = torch.arange(size, dtype=torch.uint8) % 2 if dtype is torch.bool else torch.arange(size, dtype=torch.uint8)
    tensor = of_bytes(data, dtype)
    digest = one(digester, tensor)
    assert isinstance(digest, int)
    assert digest == one(digester, tensor)
    assert digest == one(digester, of_bytes(data, dtype))
    for position in range(size):
        changed = data.clone()
        changed[position] ^= 1
        assert one(digester, of_bytes(changed, dtype)) != digest, f"byte {position}"


def test_memory_digest_is_xxh3_of_all_bytes() -> None:
    tensor = torch.randn(1000)
    assert one(Digester(FakeRecorder.view), tensor) == xxh3_128_intdigest(tensor.numpy().tobytes())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=100), st.data(), st.booleans())
def test_change_and_permutation_change_the_digest(values: list[int], data: st.DataObject, force: bool) -> None:
    digester = Digester(FakeRecorder.view, force_reduction=force)
    tensor = torch.tensor(values, dtype=torch.uint8)
    digest = one(digester, tensor)
    changed = tensor.clone()
    position = data.draw(st.integers(0, len(values) - 1))
    changed[position] ^= data.draw(st.integers(1, 255))
    assert one(digester, changed) != digest
    order = data.draw(st.permutations(range(len(values))))
    permuted = tensor[torch.tensor(order)]
    assert (one(digester, permuted) == digest) == torch.equal(permuted, tensor)
    longer = torch.cat([tensor, torch.zeros(1, dtype=torch.uint8)])
    assert one(digester, longer) != digest


@pytest.mark.parametrize("make", [
    lambda t: t.t(),
    lambda t: t[:, ::2],
    lambda t: t[1:, 1:],
    lambda t: t[0],
    lambda t: t[0, 0],
    lambda t: t.expand(3, *t.shape),
    lambda t: t[:0],
    lambda t: t.unflatten(1, (2, 3)).permute(2, 0, 1),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.uint8, torch.complex128])
def test_layout_in_memory_does_not_matter(digester: Digester, make, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    base = torch.arange(24).reshape(4, 6).to(dtype)
    tensor = make(base)
    assert one(digester, tensor) == one(digester, tensor.clone(memory_format=torch.contiguous_format))


def test_large_strided_tensor_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 64)
    digester = Digester(FakeRecorder.view)
    tensor = torch.randn(7, 5, 9).permute(2, 0, 1)
    assert one(digester, tensor) == one(digester, tensor.contiguous())


def test_channels_last(digester: Digester) -> None:
    tensor = torch.randn(2, 3, 4, 5)
    assert one(digester, tensor.to(memory_format=torch.channels_last)) == one(digester, tensor)


def test_conjugate_and_negative_views(digester: Digester) -> None:
    tensor = torch.randn(5, dtype=torch.complex64)
    assert one(digester, tensor.conj()) == one(digester, tensor.conj().resolve_conj()) != one(digester, tensor)
    negative = tensor.conj().imag
    assert negative.is_neg()
    assert one(digester, negative) == one(digester, negative.resolve_neg().contiguous())


def test_empty(digester: Digester) -> None:
    assert isinstance(one(digester, torch.empty(0)), int)
    assert one(digester, torch.empty(0, 3)) == one(digester, torch.empty(0))


def test_sparse(digester: Digester) -> None:
    dense = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forms = [dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((1, 1))]
    found = [one(digester, form) for form in forms]
    assert all(isinstance(digest, int) for digest in found)
    assert len(set(found)) == len(found)
    assert one(digester, (dense * 2).to_sparse()) != found[0]


def test_quantized(digester: Digester) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tensor = torch.quantize_per_tensor(torch.randn(5), 0.1, 3, torch.qint8)
        except (RuntimeError, NotImplementedError, AttributeError):
            pytest.skip("this torch has no quantized tensors")
        rescaled = torch._make_per_tensor_quantized_tensor(tensor.int_repr(), 0.2, 3)
        assert isinstance(one(digester, tensor), int)
        assert one(digester, tensor) != one(digester, rescaled)


def test_nested(digester: Digester) -> None:
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor(parts, layout=layout)
            digest = one(digester, nested)
            assert isinstance(digest, int)
            other = torch.nested.nested_tensor([parts[0], parts[1] + 1], layout=layout)
            assert one(digester, other) != digest


def test_without_content_is_said(digester: Digester) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert one(digester, torch.empty(3, device="meta")) == Absent("meta")
    with FakeTensorMode() as mode:
        fake = torch.empty(3)
        parameter = torch.nn.Parameter(torch.empty(3))
        assert tracing()
    assert mode.from_tensor is not None
    assert not tracing()
    assert one(digester, fake) == Absent("fake")
    assert one(digester, parameter) == Absent("fake")
    assert one(digester, torch._to_functional_tensor(torch.ones(3))) == Absent("functional")
    assert one(digester, torch.nn.parameter.UninitializedParameter()) == Absent("uninitialized")
    freed = torch.randn(8)
    view = freed[4:]
    freed.untyped_storage().resize_(0)
    assert one(digester, freed) == Absent("no storage")
    assert one(digester, view) == Absent("no storage")


def test_inside_functorch_is_said(digester: Digester) -> None:
    seen = []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        assert tracing()
        seen.append(one(digester, tensor))
        return tensor.sum()

    torch.func.vmap(look)(torch.randn(3, 2))
    torch.func.grad(look)(torch.randn(3))
    assert seen == [Absent("functorch"), Absent("functorch")]


def test_copy_on_write_stays_lazy() -> None:
    base = torch.randn(4)
    lazy = torch._lazy_clone(base)
    digest = one(Digester(FakeRecorder.view), lazy)
    assert digest == one(Digester(FakeRecorder.view), base)
    if hasattr(torch.Tensor, "const_data_ptr"):
        assert torch._C._is_cow_tensor(lazy)


def test_wrapper_subclass_is_digested_by_its_parts(digester: Digester) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    a, b = torch.randn(3), torch.randn(3)
    digest = one(digester, TwoTensor(a, b))
    assert isinstance(digest, int)
    assert digest == one(digester, TwoTensor(a.clone(), b.clone()))
    assert digest != one(digester, TwoTensor(b, a))


def test_combine_keeps_order_and_absence() -> None:
    assert combine("x", [1, 2]) != combine("x", [2, 1]) != combine("y", [2, 1])
    assert combine("x", [1, Absent("meta")]) == Absent("meta")


def test_looking_changes_nothing(digester: Digester) -> None:
    tensor = torch.randn(6, 4, requires_grad=True)
    loss = (tensor.t() * 2).sum()
    before = (tensor._version, tensor.grad_fn, tensor.is_leaf, torch.get_rng_state())
    one(digester, tensor)
    one(digester, tensor.t())
    one(digester, loss)
    assert (tensor._version, tensor.grad_fn, tensor.is_leaf) == before[:3]
    assert torch.equal(torch.get_rng_state(), before[3])
    loss.backward()
    assert torch.equal(tensor.grad, torch.full_like(tensor, 2))  # type: ignore[arg-type]
    torch.utils.swap_tensors(tensor, torch.randn(6, 4))  # refuses if anything held a reference


def test_modes_do_not_see_us(digester: Digester) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    ops: list[str] = []

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            ops.append(str(func))
            return func(*args, **(kwargs or {}))

    tensor = torch.randn(4, 4).t()
    with Spy(), torch.device("meta"):
        digest = one(digester, tensor)
    assert ops == []
    assert digest == one(digester, tensor)


# --- the device path


@pytest.mark.parametrize("group", [8, 64, 1 << 20])
def test_reduction_does_not_depend_on_grouping(monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(n, generator=generator) for n in (1, 2, 3, 100, 0, 257, 64)]
    expected = [reduction.reduce_many([tensor])[0] for tensor in tensors]
    monkeypatch.setattr(reduction, "GROUP", group)
    assert reduction.reduce_many(tensors) == expected
    assert reduction.reduce_many([tensor.clone() for tensor in reversed(tensors)]) == expected[::-1]


def test_reduction_does_not_depend_on_alignment() -> None:
    base = torch.arange(64, dtype=torch.uint8)
    for start in range(9):
        piece = base[start : start + 24]
        assert reduction.reduce_many([piece]) == reduction.reduce_many([piece.clone()])


def test_reduction_swaps_of_lanes_change_the_digest() -> None:
    lanes = torch.arange(64, dtype=torch.int64)
    found = set()
    for i in range(64):
        swapped = lanes.clone()
        swapped[i], swapped[(i + 7) % 64] = lanes[(i + 7) % 64], lanes[i]
        found.add(reduction.reduce_many([swapped])[0])
    assert len(found) == 64


def test_reduction_leaves_its_input_alone() -> None:
    tensor = torch.randn(100)
    copy = tensor.clone()
    reduction.reduce_many([tensor, tensor])
    assert torch.equal(tensor, copy)
    assert tensor._version == 0
