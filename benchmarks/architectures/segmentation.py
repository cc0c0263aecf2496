"""Networks that give a value per pixel."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.architectures.blocks import conv_norm


class UNet(nn.Module):
    """U-Net (Ronneberger et al., 2015) with 16 to 128 channels: ``[n, 3, h, w]`` to a mask ``[n, 1, h, w]`` in 0..1."""

    WIDTHS = (16, 32, 64, 128)

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(_twice(i, o) for i, o in zip((3, *self.WIDTHS), self.WIDTHS, strict=False))
        upward = list(zip(self.WIDTHS[:0:-1], self.WIDTHS[-2::-1], strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in upward)
        self.up = nn.ModuleList(_twice(2 * o, o) for _, o in upward)
        self.mask = nn.Conv2d(self.WIDTHS[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Height and width must be multiples of 8."""
        skips: list[torch.Tensor] = []
        for level, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for skip, grow, block in zip(skips[-2::-1], self.grow, self.up, strict=True):
            x = block(torch.cat((skip, grow(x)), dim=1))
        return torch.sigmoid(self.mask(x))


def _twice(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(conv_norm(inputs, outputs, 3, act=nn.ReLU), conv_norm(outputs, outputs, 3, act=nn.ReLU))
