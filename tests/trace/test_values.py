"""Canonical text: equal values spell the same, different kinds of values never do."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traincheck.trace.symbols import parameter_path
from traincheck.trace.values import canonical, symbol_text

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(a=scalars, b=scalars)
def test_text_tells_values_apart(a: object, b: object) -> None:
    nans = all(isinstance(x, float) and math.isnan(x) for x in (a, b))
    same = nans or (type(a) is type(b) and repr(a) == repr(b))
    assert (canonical(a) == canonical(b)) == same


@given(value=scalars)
def test_symbols_spell_like_values(value: object) -> None:
    if isinstance(value, str):
        assert symbol_text("str", value)[1] == canonical(value)
    assert symbol_text("dtype", "torch.float32") == ("torch.float32", "torch.float32")
    assert symbol_text("shape", [2, 3])[1] == "[2, 3]"
    assert symbol_text("int", str(10**30))[1] == canonical(10**30)


@pytest.mark.parametrize(
    ("path", "params", "name"),
    [
        ("args[0]", ["x", "y"], "x"),
        ("args[1].dtype", ["x", "y"], "y.dtype"),
        ("args[0][1]", ["x"], "x[1]"),
        ("args[2]", ["x", "*rest"], "rest[1]"),
        ("args[2]", ["x", "**options"], None),
        ("args[5]", ["x"], None),
        ("args[0]", None, None),
        ("args[99999999999999999999]", ["*a"], "a[2147483648]"),
        ("kwargs.lr", ["x"], "lr"),
        ("kwargs.x.shape", None, "x.shape"),
        ("kwargs.a[0]", None, "a[0]"),
        ("self", ["self"], "self"),
        ("args[0]", ["self"], "self"),
        ("ret[1]", None, "ret[1]"),
    ],
)
def test_parameter_path(path: str, params: list[str] | None, name: str | None) -> None:
    assert parameter_path(path, params) == name
