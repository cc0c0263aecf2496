"""Boxes and regions of interest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import ALONE, floats

ROIS = np.array([[0, 0, 4, 4], [1, 2, 6.5, 5], [3, 3, 3, 3], [-1, -2, 9, 9]], np.float32)
BATCH = np.array([0, 1, 1, 0])


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    x, wide = floats(2, 3, 7, 8), floats(2, 21, 8, 9)
    for mode in ("avg", "max"):
        for ratio in (0, 2, 3):
            for transformation in ("half_pixel", "output_half_pixel"):
                attrs = {"mode": mode, "output_height": 3, "output_width": 5, "sampling_ratio": ratio,
                         "spatial_scale": 0.5, "coordinate_transformation_mode": transformation}  # fmt: skip
                image = wide if ratio == 3 else x
                yield Case("RoiAlign", [image, ROIS, BATCH], attrs, 16, onnxruntime=mode == "avg", atol=1e-5)
    yield Case("RoiAlign", [x, ROIS, BATCH], {"output_height": 2, "output_width": 2, "sampling_ratio": 2}, 13)
    yield Case("RoiAlign", [x, ROIS[:0], BATCH[:0]], {"output_height": 3, "output_width": 2}, 16)
    yield Case("RoiAlign", [x, ROIS, BATCH[:2]], opset=16, refused="RoiAlign")
    yield Case("RoiAlign", [x, ROIS, np.array([0, 1, 2, 0])], opset=16, refused="batch index out of bounds")
    rois = np.concatenate([BATCH[:, None].astype("f4"), np.abs(ROIS)], 1)
    for some in (rois, rois[:0]):
        yield Case("MaxRoiPool", [x, some], {"pooled_shape": [2, 3], "spatial_scale": 0.5}, host="no rule for")
    boxes = np.sort(floats(1, 9, 2, 2, low=0.0, high=9.0), axis=2).reshape(1, 9, 4)
    scores = floats(1, 2, 9, seed=1, low=0.0, high=1.0)
    limits = [np.array([3]), np.array([0.5], "f"), np.array([0.2], "f")]
    for center in (0, 1):
        yield Case("NonMaxSuppression", [boxes, scores, *limits], {"center_point_box": center})
        yield Case("NonMaxSuppression", [boxes, scores, *map(Const, limits)], {"center_point_box": center})
    yield Case("NonMaxSuppression", [boxes, scores])
    yield Case("NonMaxSuppression", [boxes, scores[..., :5], *limits], refused="NonMaxSuppression")
    yield Case(
        "NonMaxSuppression",
        [boxes, scores, limits[0], np.array([1.5], "f")],
        refused="iou_threshold is not between 0 and 1",
    )
    yield from _samples(x)
    grids = floats(2, 4, 5, 2, high=1.2, low=-1.2)
    yield Case("GridSample", [x, grids[:1]], opset=20, refused="GridSample")


def _samples(x: np.ndarray) -> Iterator[Case]:
    """GridSample of images and a volume at places of which a part lies outside, or is no number."""
    close: dict[str, Any] = {"opset": 20, "rtol": 1e-4, "atol": 1e-4}
    grids = floats(2, 4, 5, 2, high=1.2, low=-1.2)
    wide = [floats(1, 19, 6, 4), floats(1, 3, 40, 2, high=1.25, low=-1.25)]
    volume = [floats(1, 5, 3, 4, 5), floats(1, 2, 3, 6, 3, high=1.5, low=-1.5)]
    strange = np.array([[[[np.nan, 0], [np.inf, 0], [-np.inf, 0], [1e30, -1e30]]]], np.float32)
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (0, 1):
                attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
                yield Case("GridSample", [x, grids], attrs, **close)
                yield Case("GridSample", wide, attrs, **close)
                if mode != "cubic":  # which ONNX defines for images only
                    yield Case("GridSample", volume, attrs, **close)
                    yield Case("GridSample", [x[:1], strange], attrs, **close, **ALONE)
    yield Case("GridSample", [x, grids[:, :0]], **close, **ALONE)
