"""Which functions rules about results are learned of: those that compute what is trained on."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from traincheck.relations.call_values import MODEL_CALL

_HOMES: Final = ("torch.nn.functional.", "torch._C._nn.")
_OPERATORS: Final = "torch._VariableFunctionsClass."

_LAYERS: Final = re.compile(
    r"conv(_transpose)?\dd|convolution|bilinear|embedding(_bag)?|(batch|layer|group|instance|rms)_norm|(\w+_)?dropout"
    r"|relu|[pcs]elu|rrelu|(log_)?softmax|lstm|gru|rnn_\w+|\w+_loss|binary_cross_entropy_with_logits|kl_div"
)
"""Operators of torch that only layers and losses are made of; ``matmul`` and its like also serve optimizers."""

_ALSO_FOR_DATA: Final = re.compile(
    r"pad|pad_sequence|one_hot|interpolate|upsample\w*|affine_grid|grid_sample|normalize|(un)?fold|im2col|col2im"
    r"|pairwise_distance|cosine_similarity|pixel_(un)?shuffle"
)
"""Functions that prepare data as often as they compute activations: what they give back is no rule."""


@lru_cache(maxsize=65536)
def computes(function: str) -> bool:
    """Whether the function computes activations or losses: forward of a module, a layer, an activation, a loss."""
    name = function.rpartition(".")[2]
    if _ALSO_FOR_DATA.fullmatch(name):
        return False
    if function.startswith(_OPERATORS):
        return bool(_LAYERS.fullmatch(name))
    return name == "forward" or function == MODEL_CALL or function.startswith(_HOMES)


@lru_cache(maxsize=65536)
def serves(function: str) -> bool:
    """Whether modules are made of it: a function of ``torch.nn.functional`` or an operator."""
    return function.startswith((*_HOMES, _OPERATORS))


@lru_cache(maxsize=65536)
def wraps(function: str) -> bool:
    """Whether it is forward of a layer of torch, which is little more than one of the functions that it calls."""
    layer = function.startswith("torch.nn.modules.") and function.endswith(".forward")
    return layer and not function.startswith("torch.nn.modules.container.")
