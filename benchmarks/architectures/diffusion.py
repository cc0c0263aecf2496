"""A denoising U-Net as latent diffusion uses it (Rombach et al., 2022), small."""

from __future__ import annotations

import math

import torch
from torch import nn

WIDTHS, CONTEXT, HEADS = (64, 128), 96, 4


class Denoiser(nn.Module):
    """Latents ``[n, 4, 32, 32]``, time steps ``[n]`` and a text's states ``[n, 16, 96]`` to the latents' noise."""

    def __init__(self) -> None:
        super().__init__()
        narrow, wide = WIDTHS
        self.time = nn.Sequential(nn.Linear(narrow, 4 * narrow), nn.SiLU(), nn.Linear(4 * narrow, 4 * narrow))
        self.enter = nn.Conv2d(4, narrow, 3, padding=1)
        self.fine, self.shrink = TimedBlock(narrow, narrow), nn.Conv2d(narrow, narrow, 3, 2, 1)
        self.coarse, self.attend = TimedBlock(narrow, wide), Attention2d(wide)
        self.middle = TimedBlock(wide, wide)
        self.grow = nn.Conv2d(wide, wide, 3, padding=1)
        self.join = TimedBlock(wide + narrow, narrow)
        self.leave = nn.Sequential(nn.GroupNorm(16, narrow), nn.SiLU(), nn.Conv2d(narrow, 4, 3, padding=1))

    def forward(self, latents: torch.Tensor, steps: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """See the class."""
        time = self.time(sinusoids(steps, WIDTHS[0]))
        skip = self.fine(self.enter(latents), time)
        x = self.attend(self.coarse(self.shrink(skip), time), context)
        x = nn.functional.interpolate(self.middle(x, time), scale_factor=2.0, mode="nearest")
        return self.leave(self.join(torch.cat((self.grow(x), skip), dim=1), time))


def sinusoids(steps: torch.Tensor, width: int) -> torch.Tensor:
    """Sines and cosines ``[n, width]`` of time steps ``[n]`` at geometrically spaced frequencies."""
    frequencies = torch.exp(torch.arange(width // 2) * (-math.log(10000.0) / (width // 2)))
    angles = 50 * steps[:, None] * frequencies[None]
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class TimedBlock(nn.Module):
    """A residual block with group normalisation, shifted by what the time step says."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(16, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.shift = nn.Linear(4 * WIDTHS[0], outputs)
        self.second = nn.Sequential(nn.GroupNorm(16, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """``[n, inputs, h, w]`` to ``[n, outputs, h, w]``."""
        shift = self.shift(nn.functional.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.second(self.first(x) + shift)


class Attention2d(nn.Module):
    """Self-attention over the pixels, cross-attention to the text, and a gated dense layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.enter, self.leave = (
            nn.GroupNorm(16, width),
            nn.Conv2d(width, width, 1),
            nn.Conv2d(width, width, 1),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.cross = Attend(width, width), Attend(width, CONTEXT)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, image: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Keeps ``[n, width, h, w]``."""
        n, c, h, w = image.shape
        x = self.enter(self.norm(image)).reshape(n, c, h * w).transpose(1, 2)
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.cross(self.norms[1](x), context)
        value, gate = self.widen(self.norms[2](x)).chunk(2, dim=-1)
        x = x + self.narrow(value * nn.functional.gelu(gate))
        return image + self.leave(x.transpose(1, 2).reshape(n, c, h, w))


class Attend(nn.Module):
    """Multi-head attention of ``[n, q, width]`` to ``[n, k, source]``."""

    def __init__(self, width: int, source: int) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.key, self.value = nn.Linear(source, width, bias=False), nn.Linear(source, width, bias=False)

    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Keeps the shape of ``x``."""
        q, k, v = _heads(self.query(x)), _heads(self.key(source)), _heads(self.value(source))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)
