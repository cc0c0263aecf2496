"""Convolutional, recurrent and mixing networks on sequences."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class GruTagger(nn.Module):
    """An embedding and two bidirectional GRU layers of 96: token numbers ``[n, t]`` to tag logits ``[n, t, 17]``."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(2000, 64)
        self.gru = nn.GRU(64, 96, num_layers=2, bidirectional=True, batch_first=True)
        self.classify = nn.Linear(2 * 96, 17)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """See the class."""
        states, _ = self.gru(self.embed(tokens))
        return self.classify(states)


class TemporalConv(nn.Module):
    """A temporal convolutional network (Bai et al., 2018): features ``[n, 32, t]`` to logits ``[n, 12]``.

    Each of its levels doubles the dilation; causal padding is added in front.
    """

    def __init__(self) -> None:
        super().__init__()
        widths = (32, 64, 64, 96, 96)
        self.levels = nn.ModuleList(
            CausalBlock(i, o, 2**level) for level, (i, o) in enumerate(itertools.pairwise(widths))
        )
        self.classify = nn.Linear(widths[-1], 12)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """See the class."""
        for level in self.levels:
            features = level(features)
        return self.classify(features[:, :, -1])


class CausalBlock(nn.Module):
    """Two dilated convolutions that see only the past, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, dilation: int) -> None:
        super().__init__()
        self.past = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.first = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.second = nn.Conv1d(outputs, outputs, 3, dilation=dilation)
        self.shortcut = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[n, inputs, t]`` to ``[n, outputs, t]``."""
        y = self.first(self.past(x)).relu()
        y = self.second(self.past(y)).relu()
        return (y + self.shortcut(x)).relu()


class Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al., 2021), 6 layers, 256 wide: images ``[n, 3, 224, 224]`` to logits ``[n, 1000]``."""

    def __init__(self) -> None:
        super().__init__()
        width, tokens = 256, 14 * 14
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.layers = nn.Sequential(*(MixerLayer(width, tokens) for _ in range(6)))
        self.norm, self.classify = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """See the class."""
        x = self.patches(image).flatten(2).transpose(1, 2)
        return self.classify(self.norm(self.layers(x)).mean(dim=1))


class MixerLayer(nn.Module):
    """A dense network along the tokens, another one along the channels."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.before_tokens, self.before_channels = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens, self.channels = _dense(tokens, width // 2), _dense(width, width * 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps ``[n, tokens, width]``."""
        x = x + self.tokens(self.before_tokens(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.before_channels(x))


def _dense(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
