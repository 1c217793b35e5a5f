"""train.py with one line too many: the head is replaced after the optimizer was built, so nothing ever trains it."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

EPOCHS = 2


class Net(nn.Module):
    """Two convolutions and two linear layers for 8 x 8 grey images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(batch, 1, 8, 8) -> logits (batch, 10)."""
        hidden = torch.relu(self.conv1(images))
        hidden = nn.functional.max_pool2d(torch.relu(self.conv2(hidden)), 2)
        return self.fc2(torch.relu(self.fc1(hidden.flatten(1))))


def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    with torch.no_grad():
        hits = sum((model(images).argmax(1) == labels).sum().item() for images, labels in loader)
    model.train()
    return hits / len(loader.dataset)


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    train_set, test_set = random_split(TensorDataset(images, torch.tensor(digits.target)), [1437, 360])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=180)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.fc2 = nn.Linear(64, 10)  # "a fresh head for the new task": the optimizer still holds the old one

    for epoch in range(EPOCHS):
        total = 0.0
        for batch, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(train_loader):.3f}, accuracy {accuracy(model, test_loader):.3f}")


if __name__ == "__main__":
    main()
