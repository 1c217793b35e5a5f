"""A regression MLP: AdamW, cosine schedule, dropout, evaluation each epoch, no DataLoader."""

import torch
from _options import options
from torch import nn

o = options(lr=0.0023, batch=29, width=31, epochs=3, beta1=0.853, beta2=0.981, eps=2.3e-7, drop=0.107)
torch.manual_seed(o.seed)
x = torch.randn(5 * o.batch, 8)
y = x.sin().sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(8, o.width), nn.GELU(), nn.Dropout(o.drop), nn.Linear(o.width, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps, weight_decay=0.02)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
for _ in range(o.epochs):
    model.train()
    for part in torch.randperm(4 * o.batch).split(o.batch):
        loss = nn.functional.mse_loss(model(x[part]), y[part])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
    model.eval()
    with torch.no_grad():
        nn.functional.mse_loss(model(x[4 * o.batch :]), y[4 * o.batch :]).item()
