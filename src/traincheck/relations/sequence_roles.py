"""What part a function plays in a training loop, told from its name: only such functions get rules of order.

Rules of order between any two functions are thousands of accidents. Those between the parts of a loop are few, and each
of them says something: gradients are cleared, computed, clipped, applied, and the schedule goes on.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import Final


class Role(Enum):
    """Part of a training loop."""

    ZERO = "clearing gradients"
    BACKWARD = "backward"
    STEP = "the optimizer's step"
    SCHEDULE = "the scheduler's step"
    SCALE = "scaling the loss"
    UNSCALE = "unscaling gradients"
    SCALER_STEP = "the scaler's step"
    SCALER_UPDATE = "the scaler's update"
    CLIP = "clipping gradients"
    FORWARD = "the forward pass"
    DATA = "taking a batch"
    AUTOCAST = "entering autocast"
    COLLECTIVE = "talking to other ranks"


ANCHORS: Final = frozenset(
    (
        Role.ZERO,
        Role.BACKWARD,
        Role.STEP,
        Role.SCHEDULE,
        Role.SCALE,
        Role.UNSCALE,
        Role.SCALER_STEP,
        Role.SCALER_UPDATE,
        Role.CLIP,
    )
)
"""What happens in training only: between two of these something may be demanded. The rest also happens elsewhere (an
evaluation takes batches, calls the model and gathers results), and may only be what is demanded."""

CORE: Final = frozenset((Role.ZERO, Role.BACKWARD, Role.STEP))
"""Rules between these are told as they are, whatever else stands between them."""

KNOWN: Final = frozenset(((Role.SCHEDULE, Role.STEP), (Role.SCHEDULE, Role.SCALER_STEP)))
"""(called again, only after): documented by PyTorch, so two observations of it are enough and it is never folded away.
A scheduler that is stepped once an epoch is not seen more often in a short run. Nothing else is asked of a scheduler:
what comes between its steps is said of the updates."""

_SCALER: Final = {
    "scale": Role.SCALE,
    "unscale_": Role.UNSCALE,
    "step": Role.SCALER_STEP,
    "update": Role.SCALER_UPDATE,
}
_CLIPS: Final = frozenset(("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "clip_gradients"))
_COLLECTIVES: Final = frozenset(
    (
        "all_reduce",
        "all_reduce_coalesced",
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_tensor",
        "all_to_all",
        "all_to_all_single",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "broadcast",
    )
)


def may_ask(anchor: str, witness: str) -> bool:
    """Whether an order is worth asking for: the one between two calls of the other."""
    one, two = role_of(anchor), role_of(witness)
    if one is Role.SCHEDULE:
        return (one, two) in KNOWN
    return one in ANCHORS and two is not None and one is not two


@lru_cache(maxsize=65536)
def role_of(function: str) -> Role | None:
    """The part the function plays, None for most."""
    module, _, name = function.rpartition(".")
    owner = module.rpartition(".")[2]
    if owner.endswith("GradScaler"):
        return _SCALER.get(name)
    if name == "zero_grad":
        return Role.ZERO
    if name == "backward" and (owner in ("Tensor", "autograd") or owner.endswith(("Accelerator", "Engine", "Fabric"))):
        return Role.BACKWARD
    if name == "step":
        if "lr_scheduler" in module or owner.endswith(("Scheduler", "LR")):
            return Role.SCHEDULE
        if owner.endswith(("Optimizer", "Engine")) or ".optim." in f".{module}.":
            return Role.STEP
    if name in _CLIPS:
        return Role.CLIP
    if name == "__call__" and function.endswith(".Module.__call__"):
        return Role.FORWARD
    if name == "__next__" and "DataLoader" in owner:
        return Role.DATA
    if name == "__enter__" and owner == "autocast":
        return Role.AUTOCAST
    if name in _COLLECTIVES and module.startswith("torch.distributed"):
        return Role.COLLECTIVE
    return None
