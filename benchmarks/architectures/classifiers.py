"""Convolutional image classifiers: images ``[n, 3, h, w]`` to logits ``[n, 1000]``."""

from __future__ import annotations

import math

from torch import nn

from benchmarks.architectures.blocks import Residual, SqueezeExcite, conv_norm, head


def resnet18() -> nn.Module:
    """ResNet-18 (He et al., "Deep Residual Learning for Image Recognition", 2016)."""
    return _resnet([2, 2, 2, 2], bottleneck=False)


def resnet50() -> nn.Module:
    """ResNet-50 with the stride in the 3x3 convolution, as torchvision has it."""
    return _resnet([3, 4, 6, 3], bottleneck=True)


def _resnet(depths: list[int], bottleneck: bool) -> nn.Module:
    layers = [conv_norm(3, 64, 7, 2, act=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        outputs = width * 4 if bottleneck else width
        for index in range(depth):
            stride = 2 if stage and not index else 1
            body = _bottleneck(channels, width, stride) if bottleneck else _basic(channels, width, stride)
            changes = stride != 1 or channels != outputs
            shortcut = conv_norm(channels, outputs, 1, stride) if changes else None
            layers.append(Residual(body, shortcut, nn.ReLU()))
            channels = outputs
    return nn.Sequential(*layers, *head(channels))


def _basic(inputs: int, width: int, stride: int) -> nn.Module:
    return nn.Sequential(conv_norm(inputs, width, 3, stride, act=nn.ReLU), conv_norm(width, width, 3))


def _bottleneck(inputs: int, width: int, stride: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(inputs, width, act=nn.ReLU),
        conv_norm(width, width, 3, stride, act=nn.ReLU),
        conv_norm(width, width * 4),
    )


def mobilenet_v1() -> nn.Module:
    """MobileNet (Howard et al., 2017): depthwise and pointwise convolutions with ReLU6."""
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    layers, channels = [conv_norm(3, 32, 3, 2, act=nn.ReLU6)], 32
    for outputs, stride in plan:
        layers.append(conv_norm(channels, channels, 3, stride, groups=channels, act=nn.ReLU6))
        layers.append(conv_norm(channels, outputs, act=nn.ReLU6))
        channels = outputs
    return nn.Sequential(*layers, *head(channels))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 (Sandler et al., 2018): inverted residuals with linear bottlenecks."""
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    layers, channels = [conv_norm(3, 32, 3, 2, act=nn.ReLU6)], 32
    for expansion, outputs, repeats, first_stride in plan:
        for index in range(repeats):
            stride = 1 if index else first_stride
            layers.append(_inverted_residual(channels, outputs, expansion, 3, stride, nn.ReLU6))
            channels = outputs
    return nn.Sequential(*layers, conv_norm(channels, 1280, act=nn.ReLU6), *head(1280))


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0 (Tan and Le, 2019): inverted residuals with squeeze-and-excitation and SiLU."""
    plan = [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]
    layers, channels = [conv_norm(3, 32, 3, 2, act=nn.SiLU)], 32
    for expansion, outputs, repeats, first_stride, kernel in plan:
        for index in range(repeats):
            stride = 1 if index else first_stride
            squeezed = math.ceil(channels / 4)
            layers.append(_inverted_residual(channels, outputs, expansion, kernel, stride, nn.SiLU, squeezed))
            channels = outputs
    return nn.Sequential(*layers, conv_norm(channels, 1280, act=nn.SiLU), *head(1280))


def _inverted_residual(
    inputs: int, outputs: int, expansion: int, kernel: int, stride: int, act: type[nn.Module], squeezed: int = 0
) -> nn.Module:
    wide = inputs * expansion
    layers = [conv_norm(inputs, wide, act=act)] if expansion != 1 else []
    layers.append(conv_norm(wide, wide, kernel, stride, groups=wide, act=act))
    layers += [SqueezeExcite(wide, squeezed, act)] if squeezed else []
    body = nn.Sequential(*layers, conv_norm(wide, outputs))
    return Residual(body) if stride == 1 and inputs == outputs else body
