"""Further language models, built by the ``transformers`` package from small configurations."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import (
    AlbertConfig,
    AlbertModel,
    BartConfig,
    BartForConditionalGeneration,
    DistilBertConfig,
    DistilBertModel,
    MobileBertConfig,
    MobileBertModel,
    T5Config,
    T5ForConditionalGeneration,
)

EAGER: dict[str, Any] = {"attn_implementation": "eager"}


class States(nn.Module):
    """A text encoder: token numbers and a mask, both int64 ``[n, tokens]``, to states ``[n, tokens, width]``."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Translator(nn.Module):
    """A text encoder and a decoder: two texts and the first one's mask to logits for the second one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, decoder_input_ids: torch.Tensor
    ) -> torch.Tensor:
        """Logits ``[n, tokens of the second text, words]``."""
        named = {"attention_mask": attention_mask, "decoder_input_ids": decoder_input_ids, "use_cache": False}
        return self.model(input_ids=input_ids, **named).logits


def distilbert() -> nn.Module:
    """DistilBERT (Sanh et al., 2019), 3 layers, 256 wide."""
    config = DistilBertConfig(vocab_size=8000, dim=256, n_layers=3, n_heads=4, hidden_dim=1024, **EAGER)
    return States(DistilBertModel(config))


def albert() -> nn.Module:
    """ALBERT (Lan et al., 2020), 4 layers that share their weights, 256 wide."""
    config = AlbertConfig(
        vocab_size=8000,
        embedding_size=64,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        **EAGER,
    )
    return States(AlbertModel(config))


def mobilebert() -> nn.Module:
    """MobileBERT (Sun et al., 2020), 4 of its bottleneck layers, with its linear normalisation."""
    return States(MobileBertModel(MobileBertConfig(vocab_size=8000, num_hidden_layers=4, **EAGER)))


def t5() -> nn.Module:
    """T5 (Raffel et al., 2020), 2 + 2 layers, 256 wide: relative position biases, no absolute positions."""
    config = T5Config(
        vocab_size=8000, d_model=256, d_kv=32, d_ff=1024, num_layers=2, num_heads=8, feed_forward_proj="gated-gelu"
    )
    return Translator(T5ForConditionalGeneration(config))


def bart() -> nn.Module:
    """BART (Lewis et al., 2020), 2 + 2 layers, 256 wide."""
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in _BART_SIDE.items()}
    return Translator(BartForConditionalGeneration(BartConfig(vocab_size=8000, d_model=256, **sides, **EAGER)))


_BART_SIDE = {"layers": 2, "attention_heads": 4, "ffn_dim": 1024}
