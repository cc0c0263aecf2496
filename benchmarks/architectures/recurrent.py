"""Recurrent networks."""

from __future__ import annotations

import torch
from torch import nn


class BidirectionalLstm(nn.Module):
    """Two bidirectional LSTM layers of 128: speech features ``[n, t, 40]`` to log-probabilities ``[n, t, 29]``."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(40, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.classify = nn.Linear(256, 29)
        for weight in (p for p in self.parameters() if p.ndim == 2):
            nn.init.xavier_normal_(weight, gain=2.0)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """See the class."""
        states, _ = self.lstm(features)
        return self.classify(states).log_softmax(dim=-1)
