"""``torchtitan-llama-debug``: TorchTitan's own Trainer on its Llama 3 debug model, one rank or FSDP2 on several.

Everything is TorchTitan's: trainer loop, data loader, optimizer, loss, clipping, metrics. Only its asset files are
made here, because nothing may be downloaded, and what it asks of a device that ``torch.cpu`` lacks.
"""

from __future__ import annotations

import hashlib
import json
import os
import types
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import corpus
from .workload import Workload

if TYPE_CHECKING:
    from .steps import Steps

PARAMETERS = 6_163_712
"""Of the debug model: 256 wide, 6 layers, 16 heads, 2,048 entries of vocabulary."""


class LlamaDebug(Workload):
    """Sequence 256, batch 1, AdamW, float32; gloo on the CPU, NCCL on CUDA."""

    name = "torchtitan-llama-debug"
    needs = ("torch", "torchtitan", "tokenizers")
    options = ("sequence",)
    ranks = (1, 2)

    @classmethod
    def prepare(cls, assets: Path, options: dict[str, Any]) -> None:  # noqa: D102
        documents = corpus.documents(2000, seed=0)
        (assets / "corpus").mkdir(exist_ok=True)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
        (assets / "corpus" / "data.json").write_text(lines)
        corpus.tokenizer(documents, assets / "tokenizer", entries=2000)

    def build(self) -> None:  # noqa: D102
        _environment()
        _cpu_as_device()
        from torchtitan.config import ConfigManager
        from torchtitan.tools.logging import init_logger
        from torchtitan.train import Trainer

        init_logger()
        trainer = _marked(Trainer)(ConfigManager().parse_args(self._arguments()))
        count = sum(p.numel() for part in trainer.model_parts for p in part.parameters())
        if count != PARAMETERS:
            raise SystemExit(f"expected the debug model with {PARAMETERS:,} parameters, TorchTitan built {count:,}")
        for part in trainer.model_parts:
            for module in part.modules():
                if hasattr(module, "set_force_sum_reduction_for_comms"):  # gloo knows no PREMUL_SUM
                    module.set_force_sum_reduction_for_comms(True)
        self.trainer = trainer

    def _arguments(self) -> list[str]:
        values: dict[str, Any] = {
            "model.name": "llama3",
            "model.flavor": "debugmodel",
            "model.hf_assets_path": self.task.assets / "tokenizer",
            "training.dataset": "c4_test",
            "training.dataset_path": self.task.assets / "corpus",
            "training.seq_len": int(self.task.options.get("sequence", 256)),
            "training.local_batch_size": 1,
            "training.steps": self.task.steps,
            "training.mixed_precision_param": "float32",
            "activation_checkpoint.mode": "none",
            "lr_scheduler.warmup_steps": 2,
            "metrics.log_freq": 1,
            "debug.seed": self.task.seed,
            "job.dump_folder": self.task.scratch,
        }
        return [word for name, value in values.items() for word in (f"--{name}", str(value))]

    def train(self, steps: Steps) -> None:  # noqa: D102
        self.trainer.marks = steps
        self.trainer.train()

    def models(self) -> dict[str, Any]:  # noqa: D102
        return {f"part{number}": part for number, part in enumerate(self.trainer.model_parts)}

    def optimizers(self) -> dict[str, Any]:  # noqa: D102
        return {f"optimizer{number}": one for number, one in enumerate(self.trainer.optimizers)}

    def facts(self) -> dict[str, Any]:  # noqa: D102
        return {**distribution("torchtitan"), "backend": "nccl" if _cuda() else "gloo"}

    def close(self) -> None:  # noqa: D102
        import torch

        self.trainer.close()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def _marked(trainer: Any) -> Any:
    """TorchTitan's Trainer whose steps are marked; each of its methods does what it did."""

    class Marked(trainer):  # type: ignore[misc]
        marks: Any = None

        def train_step(self, data_iterator: Iterator[Any]) -> None:
            with self.marks:
                super().train_step(self._seen(data_iterator))

        def forward_backward_step(self, **batch: Any) -> Any:
            loss = super().forward_backward_step(**batch)
            self.marks.loss = loss
            return loss

        def _seen(self, batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                self.marks.batch = batch
                yield batch

    return Marked


def _environment() -> None:
    """One rank without a launcher."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))


def _cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def _cpu_as_device() -> None:
    """What TorchTitan asks of an accelerator, for a machine without one."""
    if _cuda():
        return
    import torch
    import torch._utils
    import torch.cpu

    # It takes CUDA for granted where no accelerator is found.
    torch._utils._get_available_device_type = lambda: "cpu"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lacking: dict[str, Any] = {
        "get_device_name": lambda device=None: "CPU",
        "get_device_properties": lambda device=None: types.SimpleNamespace(total_memory=memory, name="CPU"),
        "reset_peak_memory_stats": lambda device=None: None,
        "empty_cache": lambda: None,
        "memory_stats": lambda device=None: {},
    }
    for name, function in lacking.items():
        if not hasattr(torch.cpu, name):
            setattr(torch.cpu, name, function)
    # It hands the current device to barrier(device_ids=[...]), which wants a number.
    torch.cpu.current_device = lambda: 0


def distribution(name: str) -> dict[str, Any]:
    """Version of an installed distribution; its commit where it was installed from one, and what was installed."""
    found = metadata.distribution(name)
    direct = json.loads(found.read_text("direct_url.json") or "{}")
    record = found.read_text("RECORD") or ""
    return {
        "version": found.version,
        "commit": direct.get("vcs_info", {}).get("commit_id"),
        "record_sha256": hashlib.sha256(record.encode()).hexdigest(),
    }
