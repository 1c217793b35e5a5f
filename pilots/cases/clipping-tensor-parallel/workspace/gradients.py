"""The optimizer of this training: DeepSpeed's for bfloat16, and norms of kinds of parameters for the log."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from deepspeed.runtime import engine
from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
from deepspeed.runtime.utils import is_model_parallel_parameter


class MeasuredOptimizer(BF16_Optimizer):
    """BF16_Optimizer for models without experts. ``norms``: of matrices and of vectors, before clipping."""

    norms: dict[str, float]

    def step(self, closure=None) -> None:
        """Measure, clip, update."""
        self.norms = {"matrices": self._norm(lambda p: p.dim() > 1), "vectors": self._norm(lambda p: p.dim() == 1)}
        super().step(closure)

    @torch.no_grad()
    def get_grads_for_norm(self, for_clipping=False):
        """What DeepSpeed takes the norm of (with an empty table: there are no experts), and what it clips."""
        gradients = [gradient for _, gradient in self._own()]
        return gradients if for_clipping else (gradients, {})

    def _own(self) -> Iterator[tuple[torch.nn.Parameter, torch.Tensor]]:
        """Parameters that this rank answers for, each with its float32 gradient.

        A part of a split parameter is its rank's own. What all ranks hold whole, the first one answers for.
        """
        first = self.mpu.get_tensor_model_parallel_rank() == 0
        groups = zip(self.bf16_groups, self.fp32_groups_gradients, self.fp32_groups_has_gradients, strict=True)
        for parameters, gradients, present in groups:
            for parameter, gradient, there in zip(parameters, gradients, present, strict=True):
                if there and (first or is_model_parallel_parameter(parameter)):
                    yield parameter, gradient

    def _norm(self, kind) -> float:
        """Norm over the whole model of the gradients of one kind. All ranks call it."""
        squares = torch.zeros(())
        for parameter, gradient in self._own():
            if kind(parameter):
                squares += gradient.float().square().sum()
        dist.all_reduce(squares, group=self.mpu.get_tensor_model_parallel_group())
        return squares.sqrt().item()


def use_measured_optimizer() -> None:
    """From here on DeepSpeed's engines have this optimizer."""
    engine.BF16_Optimizer = MeasuredOptimizer
