"""Where this process stands: rank, world size, coordinates on device meshes and in the groups of DeepSpeed and
Megatron. Only looks.
"""

from __future__ import annotations

import os
from typing import Any

from traincheck.collect.observe.models import loaded
from traincheck.collect.observe.tensors import mesh_facts

_ENVIRONMENT = {
    "RANK": "rank",
    "WORLD_SIZE": "world_size",
    "LOCAL_RANK": "local_rank",
    "LOCAL_WORLD_SIZE": "local_world_size",
    "GROUP_RANK": "node_rank",
    "NODE_RANK": "node_rank",
}
_PARALLEL = (
    ("dp", "get_data_parallel_rank", "get_data_parallel_world_size"),
    ("tp", "get_tensor_model_parallel_rank", "get_tensor_model_parallel_world_size"),
    ("pp", "get_pipeline_model_parallel_rank", "get_pipeline_model_parallel_world_size"),
    ("cp", "get_context_parallel_rank", "get_context_parallel_world_size"),
    ("ep", "get_expert_model_parallel_rank", "get_expert_model_parallel_world_size"),
)


def coordinates() -> dict[str, Any] | None:
    """``rank``, ``world_size``, ``local_rank``, …, ``backend``, ``mesh`` {dimension: coordinate}, ``mesh_size``;
    None in a lone process.
    """
    found: dict[str, Any] = {}
    for variable, name in _ENVIRONMENT.items():
        text = os.environ.get(variable, "")
        if text.isdigit():
            found[name] = int(text)
    distributed = loaded("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        found["rank"] = distributed.get_rank()
        found["world_size"] = distributed.get_world_size()
        found["backend"] = str(distributed.get_backend())
    mesh, sizes = _megatron()
    if mesh:
        found["mesh"], found["mesh_size"] = mesh, sizes
    return found or None


def add_mesh(found: dict[str, Any], mesh: Any) -> dict[str, Any]:
    """``found`` with the coordinates of a DeviceMesh met in the program."""
    for name, value in mesh_facts(mesh).items():
        kind, _, dimension = name.partition(".")
        found.setdefault(kind, {})[dimension] = value
    return found


def _megatron() -> tuple[dict[str, int], dict[str, int]]:
    ranks: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for name in ("megatron.core.parallel_state", "megatron.mpu", "deepspeed.utils.groups"):
        state = loaded(name)
        for dimension, rank, size in _PARALLEL if state is not None else ():
            try:
                ranks.setdefault(dimension, int(getattr(state, rank)()))
                sizes.setdefault(dimension, int(getattr(state, size)()))
            except Exception:  # not initialised, or a version without this group: then there is no such coordinate
                ranks.pop(dimension, None)
    return {name: rank for name, rank in ranks.items() if name in sizes}, sizes
