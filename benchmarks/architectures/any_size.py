"""Networks whose inputs may have any size, for exporters to write symbolic dimensions for."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.architectures.blocks import conv_norm

CLASSES, ASPECTS = 20, 3


class Detector(nn.Module):
    """A single-shot detector (Liu et al., 2016) whose anchors follow the size of the image.

    ``[n, 3, h, w]`` to boxes ``[n, anchors, 4]`` (y1, x1, y2, x2 in pixels) and scores ``[n, 20, anchors]``; the
    exported model goes on with ``detection.add_nms``.
    """

    STRIDES, WIDTHS = (16, 32, 64), (128, 256, 128)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 16, 3, 2, act=nn.ReLU6), _separable(16, 32), _separable(32, 64), _separable(64, 128)
        )
        self.deeper = nn.ModuleList([_separable(128, 256), _separable(256, 128)])
        self.offsets = nn.ModuleList(nn.Conv2d(w, ASPECTS * 4, 3, padding=1) for w in self.WIDTHS)
        self.logits = nn.ModuleList(nn.Conv2d(w, ASPECTS * (CLASSES + 1), 3, padding=1) for w in self.WIDTHS)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See the class."""
        levels = [self.stem(image)]
        for block in self.deeper:
            levels.append(block(levels[-1]))
        offsets = torch.cat([_rows(h(x), 4) for h, x in zip(self.offsets, levels, strict=True)], dim=1)
        logits = torch.cat([_rows(h(x), CLASSES + 1) for h, x in zip(self.logits, levels, strict=True)], dim=1)
        anchors = torch.cat([_anchors(x, s) for x, s in zip(levels, self.STRIDES, strict=True)])
        centre = anchors[:, :2] + 0.1 * offsets[..., :2] * anchors[:, 2:]
        half = 0.5 * anchors[:, 2:] * torch.exp(0.2 * offsets[..., 2:])
        scores = (4 * logits).softmax(dim=2)[..., 1:].transpose(1, 2)
        return torch.cat((centre - half, centre + half), dim=2), scores


def _separable(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(inputs, inputs, 3, 2, groups=inputs, act=nn.ReLU6), conv_norm(inputs, outputs, act=nn.ReLU6)
    )


def _rows(x: torch.Tensor, columns: int) -> torch.Tensor:
    """``[n, anchors * columns, h, w]`` to ``[n, h * w * anchors, columns]``."""
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, columns)


def _anchors(features: torch.Tensor, stride: int) -> torch.Tensor:
    """Anchors ``[cells * aspects, 4]`` as centre y, centre x, height, width in pixels, of a map of any size."""
    y, x = (((torch.arange(n) + 0.5) * stride) for n in features.shape[2:])
    y, x = torch.meshgrid(y, x, indexing="ij")
    centres = torch.stack((y.flatten(), x.flatten()), dim=1).unsqueeze(1).expand(-1, ASPECTS, -1)
    sizes = 2.5 * stride * torch.tensor([[0.7, 1.4], [1.0, 1.0], [1.4, 0.7]])
    return torch.cat((centres, sizes.expand(centres.shape[0], -1, -1)), dim=2).reshape(-1, 4)
