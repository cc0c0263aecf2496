"""Transformers, built by the ``transformers`` package from a configuration; no weights are downloaded."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    ConvNextConfig,
    ConvNextForImageClassification,
    GPT2Config,
    GPT2LMHeadModel,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
)
from transformers.models.whisper.modeling_whisper import WhisperEncoder

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


class Only(nn.Module):
    """A model of one input, reduced to one named output."""

    def __init__(self, model: nn.Module, output: str = "logits", **fixed: Any) -> None:
        super().__init__()
        self.model, self.output, self.fixed = model, output, fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Whatever the model makes of its first argument."""
        return getattr(self.model(x, **self.fixed), self.output)


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


def vit_tiny() -> nn.Module:
    """ViT-Ti/16 (Touvron et al., 2021): images ``[n, 3, 224, 224]`` to logits ``[n, 1000]``."""
    config = ViTConfig(
        hidden_size=192,
        num_hidden_layers=12,
        num_attention_heads=3,
        intermediate_size=768,
        num_labels=1000,
        **EAGER,
    )
    return Only(ViTForImageClassification(config))


def gpt2_small() -> nn.Module:
    """GPT-2 small (Radford et al., 2019): token numbers ``[n, tokens]`` to logits ``[n, tokens, 50257]``, no cache."""
    return Only(GPT2LMHeadModel(GPT2Config(**EAGER)), use_cache=False)


def whisper_encoder() -> nn.Module:
    """Whisper's encoder with 4 layers, 256 wide: mel frames ``[n, 80, 3000]`` to states ``[n, 1500, 256]``."""
    config = WhisperConfig(
        d_model=256, encoder_layers=4, encoder_attention_heads=4, encoder_ffn_dim=1024, num_mel_bins=80, **EAGER
    )
    return Only(WhisperEncoder(config), "last_hidden_state")


def convnext_tiny() -> nn.Module:
    """ConvNeXt-T (Liu et al., 2022): images ``[n, 3, 224, 224]`` to logits ``[n, 1000]``."""
    return Only(ConvNextForImageClassification(ConvNextConfig(num_labels=1000)))


def segformer_b0() -> nn.Module:
    """SegFormer-B0 (Xie et al., 2021): images ``[n, 3, 512, 512]`` to logits ``[n, 150, 128, 128]``."""
    return Only(SegformerForSemanticSegmentation(SegformerConfig(num_labels=150)))
