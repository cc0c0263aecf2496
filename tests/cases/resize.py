"""Resizing of images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import floats, integers, ints


def resizes() -> Iterator[Case]:
    x = floats(1, 3, 5, 7)
    for mode in ("nearest", "linear", "cubic"):
        for transformation in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            attrs = {"mode": mode, "coordinate_transformation_mode": transformation}
            for sizes in ((1, 3, 10, 14), (1, 3, 3, 4), (1, 3, 5, 7), (1, 3, 1, 9)):
                yield Case("Resize", [x, None, None, ints(*sizes)], attrs, rtol=1e-4, atol=1e-5)
        scales = Const([1.0, 1.0, 2.0, 0.6])
        yield Case("Resize", [x, None, scales], {"mode": mode}, rtol=1e-4, atol=1e-5)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        yield Case("Resize", [x, None, Const([1.0, 1.0, 2.0, 2.0])], {"nearest_mode": rounding})
        for dtype in ("int8", "uint8"):
            stored = integers(2, 3, 5, 7, dtype=dtype)
            yield Case("Resize", [stored, None, Const([1.0, 1.0, 1.7, 0.6])], {"nearest_mode": rounding})
    yield Case("Resize", [x, None, None, ints(10, 9)], {"axes": [3, 2], "mode": "linear"}, atol=1e-5)
    for scales in ([1.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.5, 2.2], [1.0, 1.0, 0.5, 0.7]):
        for mode in ("nearest", "linear"):
            yield Case("Resize", [x, Const(scales)], {"mode": mode}, opset=10, atol=1e-5)
    volume = floats(1, 3, 4, 5, 6)
    for mode in ("nearest", "linear"):
        yield Case("Resize", [volume, None, None, ints(1, 3, 6, 7, 3)], {"mode": mode}, atol=1e-5)
        yield Case("Resize", [volume, None, Const([1.0, 1.0, 1.0, 2.0, 1.0])], {"mode": mode}, atol=1e-5)
        yield Case("Resize", [floats(2, 3, 7), None, Const([1.0, 1.0, 2.0])], {"mode": mode}, atol=1e-5)
        yield Case("Resize", [floats(5, 7), None, None, ints(4, 9)], {"mode": mode}, atol=1e-5)
        yield Case("Resize", [x, None, None, ints(2, 5, 5, 7)], {"mode": mode}, onnxruntime=False, atol=1e-5)
    yield Case("Resize", [floats(2, 3, 7), None, None, ints(2, 3, 7)], {"mode": "linear"})
    yield Case("Resize", [floats(3, 4).astype("f8"), None, Const([2.0, 1.0])], onnxruntime=False)
    for dtype in ("uint8", "int8"):
        for antialias in (0, 1):
            yield Case(
                "Resize",
                [integers(1, 3, 9, 7, dtype=dtype), None, None, ints(1, 3, 5, 12)],
                {"mode": "cubic", "antialias": antialias},
                atol=1,
                onnxruntime=False,
            )
    yield Case("Resize", [integers(2, 3, 5, dtype="int64"), None, Const([1.0, 1.0, 2.0])], onnxruntime=False)
    yield Case("Upsample", [x, Const([1.0, 1.0, 2.0, 3.0])], {"mode": "linear"}, opset=9, onnxruntime=False, atol=1e-5)
    yield Case("Upsample", [x], {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}, opset=7)


def edges() -> Iterator[Case]:
    """Sizes that are products of floats, policies of aspects, cropping, and what does not fit."""
    for scale in (0.7, 0.3, 1.1, 2.3):
        yield Case("Resize", [floats(1, 1, 10), None, Const([1.0, 1.0, scale])], {"mode": "nearest"}, 18)
        yield Case("Resize", [floats(1, 1, 10), None, np.array([1.0, 1.0, scale], "f4")], {"mode": "nearest"}, 18)
    for policy in ("stretch", "not_larger", "not_smaller"):
        attrs = {"keep_aspect_ratio_policy": policy, "axes": [2, 3], "mode": "linear"}
        yield Case("Resize", [floats(1, 2, 5, 7), None, None, ints(8, 8)], attrs, 18, atol=1e-5)
        yield Case("Resize", [floats(1, 2, 5, 7), None, None, np.array([8, 8])], attrs, 18, atol=1e-5)
        attrs = {**attrs, "coordinate_transformation_mode": "half_pixel_symmetric"}
        yield Case("Resize", [floats(1, 2, 7, 4), None, None, ints(5, 7)], attrs, 19, atol=1e-5)
        yield Case("Resize", [floats(1, 2, 7, 4), None, None, np.array([5, 7])], attrs, 19, atol=1e-5)
    crop = {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    roi = Const([0.0, 0.0, 0.25, -0.5, 1.0, 1.0, 0.75, 1.5])
    yield Case("Resize", [floats(1, 2, 5, 7), roi, None, ints(1, 2, 6, 6)], crop, 18, atol=1e-5)
    yield Case("Resize", [floats(1, 2, 5), None, Const([1.0, 2.0])], refused="Resize")
    yield Case("Resize", [floats(1, 2, 5), None, Const([1.0, 1.0, -2.0])], refused="Resize")
    yield Case("Upsample", [floats(1, 2, 5), Const([1.0, 1.0, 1.5])], opset=9)
    yield Case("Upsample", [floats(1, 2, 5), np.array([1.0, 1.0, 1.5], "f4")], opset=9)


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "Resize",
        [floats(1, 3, 6, 6).astype("f8"), None, None, ints(1, 3, 9, 9)],
        {"mode": "linear"},
        host="interpolation between numbers of float64",
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from resizes()
    yield from edges()
    yield from declined()
