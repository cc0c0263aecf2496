"""Layers that several convolutional networks share."""

from __future__ import annotations

import torch
from torch import nn


def conv_norm(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = None
) -> nn.Sequential:
    """A convolution that keeps the size (before its stride), a batch normalisation and perhaps an activation."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([act()] if act else []))


class Residual(nn.Module):
    """``after(body(x) + shortcut(x))``."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.body, self.shortcut, self.after = body, shortcut, after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Any shape that the body keeps or that the shortcut follows."""
        y = self.body(x) + (self.shortcut(x) if self.shortcut is not None else x)
        return self.after(y) if self.after is not None else y


class SqueezeExcite(nn.Module):
    """Channel attention (Hu et al., "Squeeze-and-Excitation Networks", 2018)."""

    def __init__(self, channels: int, squeezed: int, act: type[nn.Module]) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.act = nn.Conv2d(channels, squeezed, 1), act()
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale each channel of ``[n, channels, h, w]`` by a gate between 0 and 1."""
        return x * torch.sigmoid(self.expand(self.act(self.reduce(self.pool(x)))))


def head(channels: int, classes: int = 1000) -> list[nn.Module]:
    """Global average pool and a dense layer."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
