"""``digits-cnn``: a small CNN on the digits of scikit-learn, a training loop as beginners write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as functional
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .workload import Workload

if TYPE_CHECKING:
    from .steps import Steps


class DigitsCnn(Workload):
    """Convolutions, batch norm, dropout, Adam, a scheduler; 1,797 images of 8x8."""

    name = "digits-cnn"
    needs = ("torch", "sklearn")
    options = ("batch",)

    model: Any = None

    def build_model(self) -> Any:
        """Make the model alone, before there is an optimizer."""
        self.model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(64 * 16, 128),
            nn.ReLU(),
            nn.Linear(128, 10),
        )
        return self.model

    def build(self) -> None:  # noqa: D102
        if self.model is None:
            self.build_model()
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        self.loader: Any = DataLoader(
            TensorDataset(images, torch.tensor(digits.target)),
            batch_size=int(self.task.options.get("batch", 64)),
            shuffle=True,
            drop_last=True,
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10, gamma=0.5)

    def train(self, steps: Steps) -> None:  # noqa: D102
        done = 0
        self.model.train()
        while done < self.task.steps:
            for images, labels in self.loader:
                with steps:
                    self.optimizer.zero_grad()
                    loss = functional.cross_entropy(self.model(images), labels)
                    loss.backward()
                    self.optimizer.step()
                    self.scheduler.step()
                    steps.batch, steps.loss = (images, labels), loss
                done += 1
                if done == self.task.steps:
                    return

    def models(self) -> dict[str, Any]:  # noqa: D102
        return {"model": self.model}

    def optimizers(self) -> dict[str, Any]:  # noqa: D102
        return {"optimizer": self.optimizer}
