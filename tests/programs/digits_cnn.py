"""A small CNN on 8x8 digits: convolution, batch norm, dropout, scheduler, evaluation, DataLoader."""

import _evidence
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images, labels = torch.rand(256, 1, 8, 8), torch.randint(0, 10, (256,))
train = DataLoader(TensorDataset(images[:192], labels[:192]), batch_size=32, shuffle=True)
test = DataLoader(TensorDataset(images[192:], labels[192:]), batch_size=32)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8 * 6 * 6, 10)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)
losses = []
for _ in range(2):
    model.train()
    for x, y in train:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    scheduler.step()
    model.eval()
    with torch.no_grad():
        for x, y in test:
            losses.append(F.cross_entropy(model(x), y).item())
_evidence.write({"model": model}, {"adam": optimizer}, losses)
