"""Gathering, quantisation, conversion, resizing, transposed convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import helper

from tests.targets.c.cases.values import MOVABLE, NARROW, SPECIAL, floats, integers, ints, of_dtype
from tests.targets.c.harness import Case, Const


def gathers() -> Iterator[Case]:
    for dtype in MOVABLE:
        yield Case("Gather", [of_dtype(floats(5, 3), dtype), np.array([[0, 4], [-1, -5]])])
    x = floats(2, 3, 4, 5)
    for axis in (0, 1, 2, 3, -1, -4):
        yield Case("Gather", [x, np.array([1, 0, -1, 1], np.int32)], {"axis": axis})
        yield Case("Gather", [x, ints(0, 1)], {"axis": axis})
    yield Case("Gather", [floats(7), np.array(-2)])
    yield Case("Gather", [floats(7, 2), np.empty((0, 3), np.int64)])
    yield Case("Gather", [floats(3, 0), np.array([1, 2])])
    yield Case("Gather", [Const(floats(9, 4)), np.array([[8, 0, 3]])])


QUANTISED = ("int8", "uint8", "int16", "uint16")
HALVES = np.concatenate([np.arange(-40, 40) * 0.25, [1e9, -1e9, np.inf, -np.inf, 0.1, -0.1]]).astype(np.float32)


def quantisations() -> Iterator[Case]:
    for dtype in QUANTISED:
        low, high = (0, 200) if dtype.startswith("u") else (-100, 100)
        for zero in (0, 7):
            point = Const(np.array(zero, dtype))
            yield Case("QuantizeLinear", [HALVES, Const(0.5), point])
            stored = integers(2, 3, 4, 5, dtype=dtype, low=low, high=high)
            yield Case("DequantizeLinear", [stored, Const(0.5), point])
        for axis in (0, 1, 2, 3, -1):
            size = (2, 3, 4, 5)[axis]
            scale = Const(floats(size, low=0.01, high=0.1))
            points = Const(integers(size, dtype=dtype, low=0, high=9))
            yield Case("QuantizeLinear", [floats(2, 3, 4, 5), scale, points], {"axis": axis})
            yield Case("DequantizeLinear", [stored, scale, points], {"axis": axis})
    yield Case("QuantizeLinear", [HALVES, Const(0.25)])
    yield Case("DequantizeLinear", [integers(3, 4, dtype="int32", low=-9999, high=9999), Const(0.25)])
    yield Case("DequantizeLinear", [integers(3, 4, dtype="int8"), Const(0.25)], opset=10)
    yield Case("QuantizeLinear", [floats(0, 4), Const(0.25), Const(np.array(3, np.uint8))])
    yield Case("QuantizeLinear", [floats(1), Const([0.25]), Const(np.array([3], np.uint8))], opset=13)


CASTABLE = (
    "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "bool",
)  # fmt: skip


def casts() -> Iterator[Case]:
    for source in CASTABLE:
        for result in CASTABLE:
            if source == result:
                continue
            kind = helper.np_dtype_to_tensor_dtype(of_dtype(np.zeros(1), result).dtype)
            values = of_dtype(floats(2, 3, 4, 5, low=0.0 if "uint" in source else -3.0), source)
            yield Case("Cast", [values], {"to": kind})
    for result in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
        for source in ("float32", "float64"):
            beyond = np.concatenate([SPECIAL, np.array([-5.5, 300, -300, 7e4, 5e9, -5e9, 1e19, 2e19])])
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(result))
            yield Case("Cast", [beyond.astype(source)], {"to": kind}, onnxruntime=False)
    yield from _narrow_casts()
    yield Case("Cast", [SPECIAL], {"to": 10})
    yield Case("Cast", [SPECIAL], {"to": 9})
    yield Case("CastLike", [floats(2, 3), Const(np.array([1], np.int64))])


def _narrow_casts() -> Iterator[Case]:
    """The bits of every conversion are the business of tests of the kernel; here it is which of them are asked for."""
    for dtype in NARROW:
        code = helper.np_dtype_to_tensor_dtype(of_dtype(np.zeros(1), dtype).dtype)
        stored = of_dtype(floats(3, 50, low=-9.0), dtype)
        for other in ("float32", "float16", "bfloat16"):
            yield Case("Cast", [of_dtype(floats(3, 50, low=-9.0), other)], {"to": code}, opset=23, onnxruntime=False)
            yield Case("CastLike", [stored, Const(of_dtype(np.zeros(1), other))], opset=23)
    for dtype in NARROW[2:-1]:
        for saturate in (0, 1):
            like = Const(of_dtype(np.zeros(1), dtype))
            yield Case("CastLike", [SPECIAL, like], {"saturate": saturate}, opset=23, onnxruntime=False)
        yield Case("IsNaN", [of_dtype(SPECIAL, dtype)], opset=20)
        yield Case("IsInf", [of_dtype(SPECIAL, dtype)], opset=20)
    scale = Const(of_dtype(np.zeros(1), "float8_e8m0fnu"))
    for mode in ("up", "down", "nearest"):
        yield Case("CastLike", [np.abs(floats(3, 50)), scale], {"round_mode": mode}, opset=24, onnxruntime=False)
    yield Case("Cast", [of_dtype(np.arange(1, 9), "float8_e8m0fnu")], {"to": 1}, opset=24)


def bit_casts() -> Iterator[Case]:
    pairs = (
        ("float32", "int32"), ("int64", "float64"), ("bool", "uint8"), ("int16", "bfloat16"), ("float16", "uint16"),
        ("float8_e4m3fn", "int8"),
    )  # fmt: skip
    for source, result in pairs:
        kind = helper.np_dtype_to_tensor_dtype(of_dtype(np.zeros(1), result).dtype)
        for shape in ((2, 3, 4, 5), ()):
            yield Case("BitCast", [of_dtype(floats(*shape), source)], {"to": kind}, opset=26, onnxruntime=False)


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
    yield Case("Resize", [x, Const([1.0, 1.0, 2.0, 3.0])], {"mode": "nearest"}, opset=10)
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


DECONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 5, 6), (3, 4, 3, 3), {}),
    ((2, 3, 5, 6), (3, 4, 2, 2), {"strides": [2, 2]}),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ((1, 3, 5, 6), (3, 4, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((1, 3, 4, 4), (3, 2, 3, 2), {"dilations": [2, 3]}),
    ((1, 5, 4, 4), (5, 1, 3, 3), {"group": 5}),
    ((2, 5, 6, 7), (5, 1, 4, 4), {"group": 5, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 4, 5, 6), (4, 1, 3, 5), {"group": 4, "strides": [2, 3], "pads": [0, 1, 2, 0]}),
    ((1, 4, 5, 5), (4, 1, 3, 3), {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((1, 3, 4, 4), (3, 1, 2, 2), {"group": 3, "strides": [3, 3]}),
    ((2, 3, 9), (3, 1, 8), {"group": 3, "strides": [4], "pads": [2, 2]}),
    ((2, 3, 7), (3, 4, 3), {"strides": [2], "pads": [1, 0]}),
    ((2, 8, 9), (8, 4, 8), {"strides": [4], "pads": [2, 2]}),
    ((2, 3, 7), (3, 2, 8), {"strides": [4], "pads": [1, 3]}),
    ((1, 3, 7), (3, 1, 12), {"strides": [4]}),
    ((1, 3, 7), (3, 2, 9), {"strides": [4], "pads": [1, 1], "output_padding": [1]}),
    ((1, 3, 2, 9), (3, 2, 1, 11), {"strides": [1, 5], "pads": [0, 3, 0, 3]}),
    ((1, 3, 2, 9), (3, 2, 1, 11), {"strides": [1, 5], "pads": [0, 3, 0, 2]}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
]


def transposed_convolutions() -> Iterator[Case]:
    for x, w, attrs in DECONVS:
        bias = Const(floats(w[1] * attrs.get("group", 1), seed=2))
        yield Case("ConvTranspose", [floats(*x), Const(floats(*w, seed=1))], attrs, of_largest=1e-5)
        yield Case("ConvTranspose", [floats(*x), Const(floats(*w, seed=1)), bias], attrs, of_largest=1e-5)
