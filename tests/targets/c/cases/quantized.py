"""Convolutions and products of 8-bit integers whose weights are constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.targets.c.harness import Case, Const


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
    yield "MatMulInteger", [stored("int8", 3, 20), *constants(stored("int8", 20, 9))]
    rows = [stored("uint8", 3, 20), *constants(stored("uint8", 20, 9), np.uint8(40), stored("uint8", 9))]
    yield "MatMulInteger", rows
