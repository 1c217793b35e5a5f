"""``gpt2-trainer``: a tiny GPT-2 with the Trainer of Transformers, which owns the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .titan import distribution
from .workload import Workload

if TYPE_CHECKING:
    from .steps import Steps


class Gpt2Trainer(Workload):
    """A step is what lies between the Trainer's ``on_step_begin`` and ``on_step_end``; data is fetched before it."""

    name = "gpt2-trainer"
    needs = ("torch", "transformers")
    options = ("width", "layers", "sequence", "batch")

    def build(self) -> None:  # noqa: D102
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel, TrainingArguments

        options = self.task.options
        length = int(options.get("sequence", 128))
        config = GPT2Config(
            vocab_size=512,
            n_positions=length,
            n_embd=int(options.get("width", 128)),
            n_layer=int(options.get("layers", 4)),
            n_head=4,
        )
        self.model = GPT2LMHeadModel(config)
        rows = [torch.randint(0, 512, (length,)) for _ in range(256)]
        self.data = [{"input_ids": row, "labels": row.clone()} for row in rows]
        self.arguments = TrainingArguments(
            output_dir=str(self.task.scratch),
            per_device_train_batch_size=int(options.get("batch", 4)),
            max_steps=self.task.steps,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=not torch.cuda.is_available(),
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=self.task.seed,
        )
        self.trainer: Any = None

    def train(self, steps: Steps) -> None:  # noqa: D102
        from transformers import Trainer, TrainerCallback

        class Seen(Trainer):  # type: ignore[misc]
            def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
                loss = super().training_step(model, inputs, *rest, **named)
                steps.batch, steps.loss = dict(inputs), loss
                return loss

        class Clock(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                steps.begin()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                steps.end()

        self.trainer = Seen(model=self.model, args=self.arguments, train_dataset=self.data, callbacks=[Clock()])
        self.trainer.train()

    def models(self) -> dict[str, Any]:  # noqa: D102
        return {"model": self.model}

    def optimizers(self) -> dict[str, Any]:  # noqa: D102
        optimizer = getattr(self.trainer, "optimizer", None)
        return {"optimizer": getattr(optimizer, "optimizer", optimizer)} if optimizer is not None else {}

    def facts(self) -> dict[str, Any]:  # noqa: D102
        return distribution("transformers")
