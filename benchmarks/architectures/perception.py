"""Vision and speech transformers, built by the ``transformers`` package from small configurations."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import (
    CLIPConfig,
    CLIPModel,
    DeiTConfig,
    DeiTForImageClassification,
    SwinConfig,
    SwinForImageClassification,
    Wav2Vec2Config,
    Wav2Vec2ForCTC,
)

EAGER: dict[str, Any] = {"attn_implementation": "eager"}


class Logits(nn.Module):
    """A model of one input, reduced to its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Whatever the model makes of its first argument."""
        return self.model(x).logits


class Towers(nn.Module):
    """CLIP's two networks: an image and a text each become a point on one sphere."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, image: torch.Tensor, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The embeddings of images and of texts, ``[n, 128]`` each."""
        out = self.model(pixel_values=image, input_ids=input_ids, attention_mask=attention_mask)
        return out.image_embeds, out.text_embeds


def swin() -> nn.Module:
    """Swin (Liu et al., 2021) with Swin-T's widths halved: attention in shifted windows, images of 224."""
    return Logits(SwinForImageClassification(SwinConfig(embed_dim=48, depths=[2, 2, 4, 2], num_labels=1000, **EAGER)))


def deit_tiny() -> nn.Module:
    """DeiT-Ti/16 (Touvron et al., 2021), 6 of its layers."""
    config = DeiTConfig(
        hidden_size=192,
        num_hidden_layers=6,
        num_attention_heads=3,
        intermediate_size=768,
        num_labels=1000,
        **EAGER,
    )
    return Logits(DeiTForImageClassification(config))


def clip() -> nn.Module:
    """CLIP (Radford et al., 2021) with small towers: 3 layers, 192 wide, images of 224 in patches of 32."""
    tower = {"hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 3, "num_attention_heads": 3}
    text = {**tower, "vocab_size": 8000, "bos_token_id": 1, "eos_token_id": 2}
    vision = {**tower, "image_size": 224, "patch_size": 32}
    return Towers(CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=128, **EAGER)))


def wav2vec2() -> nn.Module:
    """wav2vec 2.0 (Baevski et al., 2020), 2 layers, 256 wide: waveforms ``[n, 16000]`` to logits ``[n, 49, 32]``."""
    config = Wav2Vec2Config(
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=1024,
        conv_dim=(128,) * 7,
        num_conv_pos_embeddings=64,
        **EAGER,
    )
    return Logits(Wav2Vec2ForCTC(config))
