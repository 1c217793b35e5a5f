"""Places in the arguments and results of a call, as ``InputOutputParam`` names them, and their values."""

from __future__ import annotations

import numpy as np

from traincheck.invariants import InputOutputParam, Invariant
from traincheck.relations.call_values import readable, say_path
from traincheck.relations.call_values_table import Column, Values

INPUTS, OUTPUTS = "input_tensors", "output_tensors"


def unfollowable(place: InputOutputParam) -> str | None:
    """None, or why this version cannot find the place in a call."""
    if place.name in (INPUTS, OUTPUTS):
        if place.index is None:
            return f"which of {place.name} is meant is not said"
        return readable(place.additional_path)
    return None if place.additional_path is None else readable(place.additional_path)


def value_at(place: InputOutputParam, function: str, values: Values) -> Column:
    """The value there, one entry a call of the function."""
    path = place.additional_path
    if path is None:
        return values.argument(function, place.name)
    tensors = values.given if place.is_input else values.returned
    at = tensors.of(function)
    if place.name in (INPUTS, OUTPUTS):
        mine = tensors.index[at] == (place.index or 0)
    else:
        mine = (tensors.names[at] == place.name) | (tensors.paths[at] == place.name)
    at = at[mine][::-1]  # the first one wins
    spots = np.full(len(values.rows(function)), -1, dtype=np.int64)
    spots[values.local(function, tensors, at)] = at
    return tensors.column(path).at(spots)


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


def places_of(invariant: Invariant) -> tuple[InputOutputParam, InputOutputParam]:
    """The two places of a rule ``[place, function, place]``. Raises TypeError for any other rule."""
    first, _, second = invariant.params
    if not isinstance(first, InputOutputParam) or not isinstance(second, InputOutputParam):
        raise TypeError(f"not parameters of {invariant.relation}")  # the model has made sure
    return first, second
