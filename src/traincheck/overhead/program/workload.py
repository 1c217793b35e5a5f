"""What a workload is: a native training program whose steps are marked.

A workload of your own is a class with this interface (deriving from it is not needed) in a module beside the study
file, named there as ``class = "my_module:MyWorkload"``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .steps import Steps


@dataclass(frozen=True)
class Task:
    """What a trial asks of its workload."""

    seed: int
    steps: int
    """Training steps to make, exactly."""
    assets: Path
    """What ``prepare`` wrote: the same for all trials of a study."""
    scratch: Path
    """A folder for what the framework wants to write."""
    options: dict[str, Any] = field(default_factory=dict)
    """``[workload.options]`` of the study file."""


class Workload:
    """Interface of all workloads. One instance trains once, in a fresh process."""

    name = ""
    needs: tuple[str, ...] = ("torch",)
    """Modules that the environment must have."""
    options: tuple[str, ...] = ()
    """Options it understands."""
    ranks: tuple[int, ...] = (1,)
    """Numbers of processes it can train with."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @classmethod
    def prepare(cls, assets: Path, options: dict[str, Any]) -> None:
        """Write what all trials read (tokenizer, corpus), seeded. Called once a study, in a process of its own."""

    def build(self) -> None:
        """Make model, optimizer and data, with generators that were just seeded. Not timed as training.

        A workload that also has ``build_model`` (the model alone) can be measured with 0.x subclass tracking.
        """
        raise NotImplementedError

    def train(self, steps: Steps) -> None:
        """Train ``task.steps`` steps, each in ``with steps:``; leave its loss and batch in ``steps``."""
        raise NotImplementedError

    def models(self) -> dict[str, Any]:
        """The models that are trained, by a name of one's own."""
        raise NotImplementedError

    def optimizers(self) -> dict[str, Any]:
        """The optimizers, likewise."""
        return {}

    def facts(self) -> dict[str, Any]:
        """What the report says of it: versions, sizes. Of JSON values."""
        return {}

    def close(self) -> None:
        """Give back what the framework holds. Not timed as training."""
