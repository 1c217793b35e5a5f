"""An LSTM that continues sequences: another architecture, SGD with momentum, no autocast, evaluation at the end."""

import torch
import torch.nn.functional as F
from _options import options
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

o = options(lr=0.041, batch=7, width=19, length=13, epochs=2, clip=0.61)
torch.manual_seed(o.seed)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(60, o.width)
        self.lstm = nn.LSTM(o.width, o.width, batch_first=True)
        self.head = nn.Linear(o.width, 60)

    def forward(self, ids):
        return self.head(self.lstm(self.words(ids))[0])


ids = torch.randint(0, 60, (6 * o.batch, o.length))
loader = DataLoader(TensorDataset(ids), batch_size=o.batch, shuffle=True)
model = Tagger()
optimizer = torch.optim.SGD(model.parameters(), lr=o.lr, momentum=o.beta1)
for _ in range(o.epochs):
    for (batch,) in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), o.clip)
        optimizer.step()
model.eval()
with torch.no_grad():
    model(ids)
