"""Lightning's ``Trainer.fit``."""

import _evidence
import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

losses = []


class Lit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        losses.append(F.cross_entropy(self.net(x), y).item())

    def configure_optimizers(self):
        self.used = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return self.used


lightning.seed_everything(0, verbose=False)
data = TensorDataset(torch.rand(64, 16), torch.randint(0, 4, (64,)))
module = Lit()
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    gradient_clip_val=1.0,
)
trainer.fit(module, DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=16))
_evidence.write({"model": module}, {"adamw": module.used}, losses)
