"""Process groups, and Megatron's layers as this model uses them."""

import importlib
import os
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from torch import nn


class Groups:
    """Megatron's groups under all names that DeepSpeed asks for: ``get_model_parallel_*`` are those of tensors."""

    def __getattr__(self, name: str):
        return getattr(parallel_state, name.replace("get_model_parallel_", "get_tensor_model_parallel_"))


def start() -> Groups:
    """Join the job; all its ranks are one tensor-parallel group."""
    # DeepSpeed's shared-memory collectives are compiled for two minutes at first use; gloo does without them.
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    deepspeed.init_distributed("gloo", verbose=False)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    return Groups()


def finish() -> None:
    """Leave the job together: gloo's threads need a moment before the interpreter goes."""
    dist.barrier()
    time.sleep(0.5)
    dist.destroy_process_group()


def column(inputs: int, outputs: int, bias: bool = True) -> ColumnParallelLinear:
    """A linear layer whose outputs are split over the ranks."""
    return ColumnParallelLinear(
        inputs, outputs, config=_config(), init_method=_initialise, bias=bias, gather_output=False
    )


def row(inputs: int, outputs: int) -> RowParallelLinear:
    """A linear layer whose inputs are split over the ranks; every rank has the whole output and bias."""
    return RowParallelLinear(
        inputs,
        outputs,
        config=_config(),
        init_method=_initialise,
        bias=True,
        input_is_parallel=True,
        skip_bias_add=False,
    )


def _config() -> ModelParallelConfig:
    return ModelParallelConfig(
        tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
        use_cpu_initialization=True,  # the whole matrix is drawn on every rank and then cut: the same for any split
        perform_initialization=True,
        gradient_accumulation_fusion=False,
    )


def _initialise(weight) -> None:
    nn.init.normal_(weight, 0.0, 0.02)
