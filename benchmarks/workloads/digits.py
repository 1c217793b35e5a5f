"""A small CNN on scikit-learn's digits, batch 64. argv: OUT.json STEPS"""

import sys

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from timing import Steps
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    steps = Steps(sys.argv[1])
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=64, shuffle=True, drop_last=True)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
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
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    done, wanted = 0, int(sys.argv[2])
    while done < wanted:
        for x, y in loader:
            with steps:
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
            done += 1
            if done == wanted:
                break
    steps.write()
