"""Places in the arguments and results of a call, as ``InputOutputParam`` names them, and their values."""

from __future__ import annotations

import polars as pl

from traincheck.invariants import InputOutputParam
from traincheck.relations.call_values import argument, readable, say_path
from traincheck.relations.call_values_rules import Values

INPUTS, OUTPUTS = "input_tensors", "output_tensors"


def unfollowable(place: InputOutputParam) -> str | None:
    """None, or why this version cannot find the place in a call."""
    if place.name in (INPUTS, OUTPUTS):
        if place.index is None:
            return f"which of {place.name} is meant is not said"
        return readable(place.additional_path)
    return None if place.additional_path is None else readable(place.additional_path)


def value_at(place: InputOutputParam, values: Values) -> pl.DataFrame:
    """The value there, one row a call: kind (null where not known), int, float, value, key and ``path``."""
    side = "in" if place.is_input else "out"
    path = place.additional_path
    if path is None:
        value = argument(values.found, place.name)
        return value.with_columns(pl.lit(place.name).alias("path"))
    tensors = values.tensors(side)
    if place.name in (INPUTS, OUTPUTS):
        mine = pl.col("index") == (place.index or 0)
    else:
        mine = (pl.col("name") == place.name) | (pl.col("path") == place.name)
    found = pl.concat([tensors.select("row", "index", "name", "path"), values.attribute(side, path)], how="horizontal")
    found = found.filter(mine).unique("row", keep="first", maintain_order=True).drop("index", "name")
    every = pl.DataFrame({"row": range(values.height)}, schema={"row": pl.UInt32})
    return every.join(found, on="row", how="left", maintain_order="left").drop("row")


def say_place(place: InputOutputParam) -> str:
    """``input[0].dtype``, ``query.shape[1]``, ``max_length``."""
    if place.name in (INPUTS, OUTPUTS):
        name = f"{'input' if place.is_input else 'output'}[{place.index}]"
    else:
        name = place.name
    return name if place.additional_path is None else f"{name}.{say_path(place.additional_path)}"


def tensor_place(
    function: str, name: str | None, index: int, path: list[str | int], is_input: bool
) -> InputOutputParam:
    """The attribute ``path`` of a tensor: of the argument ``name``, or (None) the ``index``-th one."""
    fallback = INPUTS if is_input else OUTPUTS
    return InputOutputParam(
        param_type="InputOutputParam",
        name=name or fallback,
        index=None if name else index,
        type="torch.Tensor",
        additional_path=path,
        api_name=function,
        is_input=is_input,
    )


def numbers(value: pl.DataFrame) -> pl.Series:
    """The values as numbers; null where they are none."""
    number = pl.when(pl.col("kind").is_in(["int", "float"])).then(
        pl.coalesce(pl.col("float"), pl.col("int").cast(pl.Float64))
    )
    return value.select(number.alias("n"))["n"]
