"""A workload of one's own for tests: trains in a blink, and plants what a test asks for when it is watched."""

from __future__ import annotations

import os
import signal


class Tiny:
    needs, options, ranks = ("torch",), ("plant",), (1, 2)

    def __init__(self, task):
        self.task = task

    @classmethod
    def prepare(cls, assets, options):
        (assets / "words.txt").write_text("a b c\n")

    def build(self):
        import torch

        assert (self.task.assets / "words.txt").read_text() == "a b c\n"
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.loader = torch.utils.data.DataLoader(list(torch.randn(64, 4)), batch_size=8, shuffle=True)

    def train(self, steps):
        watched = "TRAINCHECK_RUN" in os.environ
        batches = iter(self.loader)
        for number in range(1, self.task.steps + 1):
            with steps:
                batch = next(batches)
                self.optimizer.zero_grad()
                loss = self.model(batch).square().mean()
                loss.backward()
                self.optimizer.step()
                steps.batch, steps.loss = batch, loss
                if number == 2 and (watched or str(self.task.options.get("plant", "")).endswith("-always")):
                    steps.loss = self.planted(loss)

    def planted(self, loss):
        import torch

        plant = self.task.options.get("plant")
        if plant == "random":
            torch.rand(1)
        elif plant == "in-place":
            with torch.no_grad():
                self.model[2].weight.add_(1e-6)
        elif plant == "replaced":
            self.model[2].weight = torch.nn.Parameter(self.model[2].weight.detach().clone())
        elif plant == "infinite-always":
            return loss / 0
        elif plant == "killed" and os.environ.get("RANK") == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        elif plant == "fails-always":
            raise RuntimeError("out of luck")
        return loss

    def models(self):
        return {"model": self.model}

    def optimizers(self):
        return {"optimizer": self.optimizer}

    def facts(self):
        return {}

    def close(self):
        pass
