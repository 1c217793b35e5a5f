"""The network."""

from torch import nn


class Network(nn.Module):
    """Two layers with batch normalisation between them."""

    def __init__(self, inputs, width=24, dropout=0.1):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(dropout)
        self.second = nn.Linear(width, 1)

    def forward(self, inputs):
        """Predicted values, samples x 1."""
        return self.second(self.dropout(self.norm(self.first(inputs)).tanh()))
