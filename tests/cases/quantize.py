"""Quantised numbers, and products of them whose weights are constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import floats, integers

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
    yield Case("QuantizeLinear", [floats(), Const(0.25), Const(np.array(1, np.int8))])
    yield Case("DequantizeLinear", [integers(dtype="int8"), Const(0.25), Const(np.array(1, np.int8))])
    yield Case("DequantizeLinear", [integers(3, 4, dtype="int32", low=-9999, high=9999), Const(0.25)])
    yield Case("DequantizeLinear", [integers(3, 4, dtype="int8"), Const(0.25)], opset=10)
    yield Case("QuantizeLinear", [floats(0, 4), Const(0.25), Const(np.array(3, np.uint8))])
    yield Case("QuantizeLinear", [floats(1), Const([0.25]), Const(np.array([3], np.uint8))], opset=13)


def stored(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(len(shape)).integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def constants(*arrays: Any) -> list[Const]:
    return [Const(np.asarray(array)) for array in arrays]


def qlinear(op: str, x: np.ndarray, w: np.ndarray, channels: int, *rest: np.ndarray, **attrs: Any) -> Case:
    scales = np.linspace(0.01, 0.03, channels, dtype=np.float32)
    points = np.zeros(channels, w.dtype) if w.dtype == np.int8 else np.full(channels, 120, np.uint8)
    before = constants(np.float32(0.04), np.array(11, x.dtype), w, scales, points)
    after = constants(np.float32(1.7), np.array(-3 if x.dtype == np.int8 else 99, x.dtype), *rest)
    return Case(op, [x, *before, *after], attrs, onnxruntime=False)


IMAGE = (2, 8, 7, 6)


def integer_operators() -> Iterator[Case]:
    """onnxruntime is no witness: it adds products in 16 bits where there is no VNNI."""
    bias = stored("int16", 12).astype(np.int32)
    yield qlinear("QLinearConv", stored("uint8", *IMAGE), stored("int8", 12, 8, 3, 3), 12, bias)
    yield qlinear("QLinearConv", stored("int8", *IMAGE), stored("uint8", 8, 1, 3, 2), 8, group=8, pads=[1, 0, 1, 1])
    yield qlinear("QLinearMatMul", stored("uint8", 3, 20), stored("int8", 20, 9), 9)
    yield qlinear("QLinearMatMul", stored("int8", 2, 3, 20), stored("uint8", 20, 9), 9)
    yield from (Case(*case, onnxruntime=False) for case in _integer())


def _integer() -> Iterator[tuple[Any, ...]]:
    image, signed = stored("uint8", *IMAGE), stored("int8", *IMAGE)
    grouped = [image, *constants(stored("int8", 12, 4, 3, 3), np.uint8(7))]
    yield "ConvInteger", grouped, {"group": 2, "pads": [1, 1, 1, 1]}
    yield "ConvInteger", [signed, *constants(stored("uint8", 5, 8, 1, 1), np.int8(-9), np.uint8(200))]
    every = {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}
    fed = [np.array(77, np.uint8), stored("uint8", 12)]
    yield "ConvInteger", [image, Const(stored("uint8", 12, 4, 3, 2)), *fed], {"group": 2, **every}
    yield "ConvInteger", [image, Const(stored("uint8", 12, 8, 3, 2)), Const(fed[0]), fed[1]], every
    point = np.array([-7], np.int8)
    yield "ConvInteger", [signed, Const(stored("int8", 8, 1, 3, 3)), point], {"group": 8, "pads": [1] * 4}
    line = [stored("int8", 2, 6, 17), Const(stored("uint8", 4, 6, 4)), point, *constants(np.uint8(30))]
    for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        yield "ConvInteger", line, {"auto_pad": auto_pad, "strides": [3]}
    yield "MatMulInteger", [stored("int8", 3, 20), *constants(stored("int8", 20, 9))]
    rows = [stored("uint8", 3, 20), *constants(stored("uint8", 20, 9), np.uint8(40), stored("uint8", 9))]
    yield "MatMulInteger", rows


def run_time_convolutions() -> Iterator[Case]:
    """Convolutions whose weights come in at run time are computed by their definition."""
    own = qlinear("QLinearConv", stored("uint8", *IMAGE), stored("int8", 6, 4, 3, 3), 6, group=2, auto_pad="SAME_UPPER")
    yield replace(own, operands=[own.operands[0], *(x.array for x in own.operands[1:])])
    deep = [stored("uint8", 1, 2 * 40, 5, 6), stored("int8", 4, 40, 3, 3), np.array(200, np.uint8), stored("int8", 4)]
    attrs = {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]}
    yield Case("ConvInteger", deep, attrs, onnxruntime=False)


def edges() -> Iterator[Case]:
    """What is quantised by what a run shows, and scales that do not fit."""
    for shape in ((), (5,), (2, 3, 4), (0, 3)):
        yield Case("DynamicQuantizeLinear", [floats(*shape)], outputs=3, onnxruntime=0 not in shape)
    for sign in (-1, 0, 1):
        yield Case("DynamicQuantizeLinear", [sign * np.arange(1, 4, dtype=np.float32)], outputs=3)
    x = floats(2, 3, 4)
    yield Case(
        "QuantizeLinear",
        [x, Const([0.5, 0.25]), Const(np.zeros(2, np.uint8))],
        {"axis": 1},
        refused="QuantizeLinear|x0.* does not fit",
    )
    yield Case("DequantizeLinear", [integers(2, 3, dtype="int8"), Const([0.5, 0.25])], {"axis": 1},
               refused="DequantizeLinear|x0.* does not fit")  # fmt: skip
    blocks = [integers(2, 8, dtype="int8"), Const(floats(2, 2, low=0.1))]
    yield Case("DequantizeLinear", blocks, {"block_size": 4, "axis": 1})
    yield Case("DequantizeLinear", blocks, {"block_size": 3, "axis": 1}, refused="DequantizeLinear")
    for run_time in (False, True):
        own = np.asarray if run_time else Const
        factors = [
            (stored("uint8", 3, 20), 0.04, np.array(11, np.uint8)), (stored("int8", 20, 9), 0.02, np.array(0, np.int8)),
        ]  # fmt: skip
        (a, *left), (b, *right) = ((q, np.array(scale, "f4"), zero) for q, scale, zero in factors)
        result = (np.array(1.7, "f4"), np.array(99, np.uint8))
        operands = [a, *map(own, (*left, b, *right, *result))]
        yield Case("QLinearMatMul", operands, onnxruntime=False)
        yield Case("MatMulInteger", [stored("uint8", 3, 20), own(stored("int8", 20, 9))], onnxruntime=False)
        for some in ((2, 3, 20), (0, 20)):
            right_ones = stored("int8", *([2] if some[0] else []), 20, 9)
            yield Case("MatMulInteger", [stored("uint8", *some), own(right_ones)], onnxruntime=False)
    yield Case("MatMulInteger", [stored("uint8", 3, 20), Const(stored("int8", 19, 9))], refused="MatMulInteger")


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "QuantizeLinear",
        [floats(4), Const(0.5)],
        {"precision": 11},
        opset=25,
        onnxruntime=False,
        host="the quotient is rounded to float64",
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from quantisations()
    yield from integer_operators()
    yield from run_time_convolutions()
    yield from edges()
    yield from declined()
