"""Transformers, built by the ``transformers`` package from a configuration; no weights are downloaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import BertConfig, BertModel

EAGER: dict[str, Any] = {"attn_implementation": "eager"}


class Encoder(nn.Module):
    """A text encoder: token numbers and a mask, both int64 ``[n, tokens]``, to states and the pooled first state."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """States ``[n, tokens, width]`` and pooled ``[n, width]``."""
        out = self.model(input_ids=input_ids, attention_mask=attention_mask)
        return out.last_hidden_state, out.pooler_output


def bert() -> nn.Module:
    """A small BERT encoder: 4 layers, 256 wide, 4 heads."""
    return _bert(layers=4, width=256, heads=4)


def bert_base() -> nn.Module:
    """BERT-base (Devlin et al., 2019): 12 layers, 768 wide, 12 heads."""
    return _bert(layers=12, width=768, heads=12)


def _bert(layers: int, width: int, heads: int) -> nn.Module:
    config = BertConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        **EAGER,
    )
    return Encoder(BertModel(config))
