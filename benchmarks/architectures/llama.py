"""A decoder with the plan of LLaMA (Touvron et al., 2023), small: one step of generation with a cache."""

from __future__ import annotations

import torch
from torch import nn

WIDTH, LAYERS, HEADS, SHARED, HIDDEN, WORDS = 256, 4, 8, 2, 688, 8000
"""``SHARED`` heads hold keys and values, each for ``HEADS / SHARED`` heads of queries (grouped-query attention)."""
EACH = WIDTH // HEADS


class LlamaStep(nn.Module):
    """New tokens ``[n, t]`` and the keys and values of p earlier ones to logits, and to the keys and values of all.

    The caches hold ``[n, layers, heads, p, width of a head]``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.classify = RmsNorm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(
        self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits ``[n, t, words]``, and caches with ``p + t`` tokens."""
        past, new = keys.shape[3], tokens.shape[1]
        positions = torch.arange(past, past + new)
        mask = torch.where(torch.arange(past + new) <= positions[:, None], 0.0, torch.finfo(torch.float32).min)
        turns = rotary(positions)
        x, new_keys, new_values = self.embed(tokens), [], []
        for layer, block in enumerate(self.blocks):
            x, k, v = block(x, keys[:, layer], values[:, layer], mask, turns)
            new_keys.append(k)
            new_values.append(v)
        return self.classify(self.norm(x)), torch.stack(new_keys, dim=1), torch.stack(new_values, dim=1)


def rotary(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines ``[t, width of a head]`` of rotary position embedding (Su et al., 2021)."""
    frequencies = 10000.0 ** (-torch.arange(0, EACH, 2) / EACH)
    angles = (positions[:, None] * frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def _turn(x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * turns[0] + torch.cat((-high, low), dim=-1) * turns[1]


class RmsNorm(nn.Module):
    """Root-mean-square normalisation (Zhang and Sennrich, 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps the shape."""
        return self.gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Block(nn.Module):
    """Attention and a gated dense layer (SwiGLU), each with its normalisation before it."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_dense = RmsNorm(), RmsNorm()
        self.query, self.out = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, SHARED * EACH, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        mask: torch.Tensor,
        turns: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """New states, keys and values."""
        y = self.before_attention(x)
        keys = torch.cat((keys, _turn(_heads(self.key(y)), turns)), dim=2)
        values = torch.cat((values, _heads(self.value(y))), dim=2)
        scores = _turn(_heads(self.query(y)), turns) @ _repeat(keys).transpose(2, 3) * EACH**-0.5 + mask
        mixed = scores.softmax(dim=-1) @ _repeat(values)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.before_dense(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y)), keys, values


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[1], -1, EACH).transpose(1, 2)


def _repeat(x: torch.Tensor) -> torch.Tensor:
    n, heads, tokens, each = x.shape
    return x[:, :, None].expand(n, heads, HEADS // SHARED, tokens, each).reshape(n, HEADS, tokens, each)
