"""Image classifiers whose blocks branch: images ``[n, 3, h, w]`` to logits ``[n, 1000]``."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.architectures.blocks import Residual, SqueezeExcite, conv_norm, head


class Branches(nn.Module):
    """The results of several branches on one input, joined along the channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[n, c, h, w]`` to the sum of the branches' channels."""
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def densenet121() -> nn.Module:
    """DenseNet-121 (Huang et al., 2017): normalisation and activation before each convolution."""
    layers: list[nn.Module] = [conv_norm(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels, growth, depths = 64, 32, (6, 12, 24, 16)
    for stage, depth in enumerate(depths):
        for _ in range(depth):
            layers.append(Branches(nn.Identity(), _dense_layer(channels, growth)))
            channels += growth
        if stage + 1 < len(depths):
            layers += [_norm_conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), *head(channels))


def _dense_layer(channels: int, growth: int) -> nn.Module:
    return nn.Sequential(_norm_conv(channels, 4 * growth, 1), _norm_conv(4 * growth, growth, 3))


def _norm_conv(inputs: int, outputs: int, kernel: int) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), conv)


class Shuffle(nn.Module):
    """Interleaves the channels of two groups (Zhang et al., "ShuffleNet", 2018)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps the shape of ``[n, c, h, w]``, c even."""
        n, c, h, w = x.shape
        return x.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


class ShuffleUnit(nn.Module):
    """ShuffleNetV2's basic unit: one half of the channels passes by the other half's convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch, self.shuffle = _shuffle_branch(channels // 2, channels // 2, 1), Shuffle()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps the shape."""
        kept, changed = x.chunk(2, dim=1)
        return self.shuffle(torch.cat((kept, self.branch(changed)), dim=1))


def shufflenet_v2() -> nn.Module:
    """ShuffleNetV2 1.0x (Ma et al., 2018)."""
    layers: list[nn.Module] = [conv_norm(3, 24, 3, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels = 24
    for outputs, repeats in ((116, 4), (232, 8), (464, 4)):
        beside = nn.Sequential(conv_norm(channels, channels, 3, 2, groups=channels), _pointwise(channels, outputs // 2))
        layers += [Branches(beside, _shuffle_branch(channels, outputs // 2, 2)), Shuffle()]
        layers += [ShuffleUnit(outputs) for _ in range(repeats - 1)]
        channels = outputs
    return nn.Sequential(*layers, conv_norm(channels, 1024, act=nn.ReLU), *head(1024))


def _shuffle_branch(inputs: int, outputs: int, stride: int) -> nn.Module:
    depthwise = conv_norm(outputs, outputs, 3, stride, groups=outputs)
    return nn.Sequential(_pointwise(inputs, outputs), depthwise, _pointwise(outputs, outputs))


def _pointwise(inputs: int, outputs: int) -> nn.Module:
    return conv_norm(inputs, outputs, act=nn.ReLU)


def inception() -> nn.Module:
    """GoogLeNet's plan (Szegedy et al., 2015) with batch normalisation, without its auxiliary heads."""
    stem: list[nn.Module] = [conv_norm(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, ceil_mode=True)]
    stem += [_pointwise(64, 64), conv_norm(64, 192, 3, act=nn.ReLU), nn.MaxPool2d(3, 2, ceil_mode=True)]
    stages = [
        [(64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)],
        [(192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64), (112, 144, 288, 32, 64, 64),
         (256, 160, 320, 32, 128, 128)],
        [(256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)],
    ]  # fmt: skip
    layers, channels = stem, 192
    for position, stage in enumerate(stages):
        layers += [nn.MaxPool2d(3, 2, ceil_mode=True)] if position else []
        for widths in stage:
            layers.append(_inception_block(channels, *widths))
            channels = widths[0] + widths[2] + widths[4] + widths[5]
    return nn.Sequential(*layers, *head(channels))


def _inception_block(
    inputs: int, one: int, shrunk3: int, three: int, shrunk5: int, five: int, pooled: int
) -> nn.Module:
    return Branches(
        _pointwise(inputs, one),
        nn.Sequential(_pointwise(inputs, shrunk3), conv_norm(shrunk3, three, 3, act=nn.ReLU)),
        nn.Sequential(_pointwise(inputs, shrunk5), conv_norm(shrunk5, five, 5, act=nn.ReLU)),
        nn.Sequential(nn.MaxPool2d(3, 1, 1), _pointwise(inputs, pooled)),
    )


def regnet_y_400mf() -> nn.Module:
    """RegNetY-400MF (Radosavovic et al., 2020): grouped 3x3 convolutions with squeeze-and-excitation."""
    layers, channels = [conv_norm(3, 32, 3, 2, act=nn.ReLU)], 32
    for outputs, depth in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for index in range(depth):
            layers.append(_regnet_block(channels, outputs, 1 if index else 2))
            channels = outputs
    return nn.Sequential(*layers, *head(channels))


def _regnet_block(inputs: int, outputs: int, stride: int) -> nn.Module:
    body = nn.Sequential(
        conv_norm(inputs, outputs, act=nn.ReLU),
        conv_norm(outputs, outputs, 3, stride, groups=outputs // 8, act=nn.ReLU),
        SqueezeExcite(outputs, inputs // 4, nn.ReLU),
        conv_norm(outputs, outputs),
    )
    shortcut = conv_norm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None
    return Residual(body, shortcut, nn.ReLU())
