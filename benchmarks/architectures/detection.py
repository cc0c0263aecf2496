"""Object detectors: images ``[n, 3, h, w]`` to boxes and class scores."""

from __future__ import annotations

import onnx
import torch
from onnx import TensorProto, helper
from torch import nn

from benchmarks.architectures.blocks import conv_norm

YOLO_SIZE, YOLO_CLASSES, BINS = 320, 80, 16
SSD_SIZE, SSD_CLASSES, SSD_ASPECTS = 320, 20, (0.5, 1.0, 2.0)


def grid(size: int, stride: int) -> torch.Tensor:
    """The centres ``[cells, 2]`` (x, y) in pixels of the cells of a feature map over a square image."""
    along = (torch.arange(size // stride) + 0.5) * stride
    y, x = torch.meshgrid(along, along, indexing="ij")
    return torch.stack((x.flatten(), y.flatten()), dim=1)


class C2f(nn.Module):
    """YOLOv8's cross-stage block: a chain of small residual blocks, all of whose results are concatenated."""

    def __init__(self, inputs: int, outputs: int, depth: int, residual: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.split = conv_norm(inputs, outputs, act=nn.SiLU)
        self.chain = nn.ModuleList(
            nn.Sequential(conv_norm(half, half, 3, act=nn.SiLU), conv_norm(half, half, 3, act=nn.SiLU))
            for _ in range(depth)
        )
        self.join = conv_norm((2 + depth) * half, outputs, act=nn.SiLU)
        self.residual = residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[n, inputs, h, w]`` to ``[n, outputs, h, w]``."""
        parts = list(self.split(x).chunk(2, dim=1))
        for block in self.chain:
            y = block(parts[-1])
            parts.append(parts[-1] + y if self.residual else y)
        return self.join(torch.cat(parts, dim=1))


class PyramidPool(nn.Module):
    """YOLO's SPPF: three chained 5x5 max pools, concatenated with their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce = conv_norm(channels, channels // 2, act=nn.SiLU)
        self.expand = conv_norm(channels * 2, channels, act=nn.SiLU)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Keeps the shape."""
        parts = [self.reduce(x)]
        for _ in range(3):
            parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.expand(torch.cat(parts, dim=1))


class YoloNano(nn.Module):
    """A detector with the plan of YOLOv8n: ``[n, 3, 320, 320]`` to boxes and scores ``[n, 4 + 80, 2100]``.

    Boxes are centre x, centre y, width and height in pixels; scores lie between 0 and 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.shallow = nn.Sequential(
            _down(3, 16), _down(16, 32), C2f(32, 32, 1, True), _down(32, 64), C2f(64, 64, 2, True)
        )
        self.middle = nn.Sequential(_down(64, 128), C2f(128, 128, 2, True))
        self.deep = nn.Sequential(_down(128, 256), C2f(256, 256, 1, True), PyramidPool(256))
        self.up16, self.up8 = C2f(384, 128, 1, False), C2f(192, 64, 1, False)
        self.shrink8, self.down16 = _down(64, 64), C2f(192, 128, 1, False)
        self.shrink16, self.down32 = _down(128, 128), C2f(384, 256, 1, False)
        self.box_heads = nn.ModuleList(_yolo_head(c, 64, 4 * BINS) for c in (64, 128, 256))
        self.class_heads = nn.ModuleList(_yolo_head(c, 80, YOLO_CLASSES) for c in (64, 128, 256))
        self.register_buffer("centres", torch.cat([grid(YOLO_SIZE, s) for s in (8, 16, 32)]).T)
        cells = [torch.full((1, (YOLO_SIZE // s) ** 2), float(s)) for s in (8, 16, 32)]
        self.register_buffer("strides", torch.cat(cells, dim=1))
        self.register_buffer("bins", torch.arange(BINS).float().reshape(1, BINS, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """See the class."""
        levels = self._neck(image)
        boxes = torch.cat([h(x).flatten(2) for h, x in zip(self.box_heads, levels, strict=True)], dim=2)
        scores = torch.cat([h(x).flatten(2) for h, x in zip(self.class_heads, levels, strict=True)], dim=2)
        return torch.cat((self._decode(boxes), torch.sigmoid(scores)), dim=1)

    def _neck(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x8 = self.shallow(image)
        x16 = self.middle(x8)
        x32 = self.deep(x16)
        n16 = self.up16(torch.cat((_double(x32), x16), dim=1))
        n8 = self.up8(torch.cat((_double(n16), x8), dim=1))
        n16 = self.down16(torch.cat((self.shrink8(n8), n16), dim=1))
        return n8, n16, self.down32(torch.cat((self.shrink16(n16), x32), dim=1))

    def _decode(self, x: torch.Tensor) -> torch.Tensor:
        """The expected bin is the distance, in strides, from the centre to each side."""
        weights = x.reshape(-1, 4, BINS, x.shape[2]).transpose(1, 2).softmax(dim=1)
        near, far = (weights * self.bins).sum(dim=1).chunk(2, dim=1)
        low, high = self.centres - near * self.strides, self.centres + far * self.strides
        return torch.cat(((low + high) / 2, high - low), dim=1)


def _down(inputs: int, outputs: int) -> nn.Module:
    return conv_norm(inputs, outputs, 3, 2, act=nn.SiLU)


def _double(x: torch.Tensor) -> torch.Tensor:
    return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


def _yolo_head(inputs: int, width: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(inputs, width, 3, act=nn.SiLU), conv_norm(width, width, 3, act=nn.SiLU), nn.Conv2d(width, outputs, 1)
    )


class Ssd(nn.Module):
    """A single-shot detector (Liu et al., 2016) on a small depthwise backbone, three aspects on three scales.

    ``[n, 3, 320, 320]`` to boxes ``[n, 1575, 4]`` (y1, x1, y2, x2 in 0..1) and scores ``[n, 20, 1575]``; the exported
    model goes on with non-maximum suppression, see ``add_nms``.
    """

    STRIDES, WIDTHS = (16, 32, 64), (128, 256, 128)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm(3, 16, 3, 2, act=nn.ReLU6), _separable(16, 32, 2), _separable(32, 64, 2), _separable(64, 128, 2)
        )
        self.deeper = nn.ModuleList([_separable(128, 256, 2), _separable(256, 128, 2)])
        each = len(SSD_ASPECTS)
        self.offsets = nn.ModuleList(_ssd_head(w, each * 4) for w in self.WIDTHS)
        self.logits = nn.ModuleList(_ssd_head(w, each * (SSD_CLASSES + 1)) for w in self.WIDTHS)
        anchors = torch.cat([_anchors(stride) for stride in self.STRIDES])
        self.register_buffer("centre", anchors[:, :2])
        self.register_buffer("size", anchors[:, 2:])

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See the class."""
        levels = [self.stem(image)]
        for block in self.deeper:
            levels.append(block(levels[-1]))
        offsets = torch.cat([_rows(h(x), 4) for h, x in zip(self.offsets, levels, strict=True)], dim=1)
        logits = torch.cat([_rows(h(x), SSD_CLASSES + 1) for h, x in zip(self.logits, levels, strict=True)], dim=1)
        centre = self.centre + 0.1 * offsets[..., :2] * self.size
        half = 0.5 * self.size * torch.exp(0.2 * offsets[..., 2:])
        scores = (4 * logits).softmax(dim=2)[..., 1:].transpose(1, 2)
        return torch.cat((centre - half, centre + half), dim=2), scores


def _separable(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(
        conv_norm(inputs, inputs, 3, stride, groups=inputs, act=nn.ReLU6), conv_norm(inputs, outputs, act=nn.ReLU6)
    )


def _ssd_head(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(conv_norm(inputs, inputs, 3, groups=inputs, act=nn.ReLU6), nn.Conv2d(inputs, outputs, 1))


def _rows(x: torch.Tensor, columns: int) -> torch.Tensor:
    """``[n, anchors * columns, h, w]`` to ``[n, h * w * anchors, columns]``."""
    return x.permute(0, 2, 3, 1).reshape(x.shape[0], -1, columns)


def _anchors(stride: int) -> torch.Tensor:
    """Anchors ``[cells * aspects, 4]`` as centre y, centre x, height, width in 0..1."""
    centres = grid(SSD_SIZE, stride).flip(1) / SSD_SIZE
    sizes = torch.tensor([[2.5 * stride * a**0.5, 2.5 * stride / a**0.5] for a in SSD_ASPECTS]) / SSD_SIZE
    cells, each = len(centres), len(sizes)
    return torch.cat((centres.repeat_interleave(each, 0), sizes.repeat(cells, 1)), dim=1)


def add_nms(model: onnx.ModelProto) -> None:
    """Replace the outputs ``all_boxes`` and ``all_scores`` by the detections that survive.

    The new outputs, for k detections: ``boxes`` ``[k, 4]``, ``scores`` ``[k]``, and ``selected`` int64 ``[k, 3]`` with
    the image, class and anchor of each.
    """
    graph = model.graph
    limits = {"nms/most": [20], "nms/overlap": [0.5], "nms/score": [0.6], "nms/image_and_anchor": [0, 2]}
    dtypes = [TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64]
    for (name, value), dtype in zip(limits.items(), dtypes, strict=True):
        graph.initializer.append(helper.make_tensor(name, dtype, [len(value)], value))
    nms = ["all_boxes", "all_scores", "nms/most", "nms/overlap", "nms/score"]
    graph.node.extend(
        [
            helper.make_node("NonMaxSuppression", nms, ["selected"], name="nms"),
            helper.make_node("GatherND", ["all_scores", "selected"], ["scores"], name="nms/scores"),
            helper.make_node("Gather", ["selected", "nms/image_and_anchor"], ["nms/where"], name="nms/where", axis=1),
            helper.make_node("GatherND", ["all_boxes", "nms/where"], ["boxes"], name="nms/boxes"),
        ]
    )
    del graph.output[:]
    graph.output.extend(
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["k", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["k"]),
            helper.make_tensor_value_info("selected", TensorProto.INT64, ["k", 3]),
        ]
    )
