"""Convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.targets.c.cases.values import floats
from tests.targets.c.harness import Case, Const

CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 8), (4, 3, 3, 3), {}),
    ((2, 3, 7, 9), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 7, 9), (5, 3, 3, 3), {"pads": [0, 1, 2, 3], "strides": [2, 1]}),
    ((1, 16, 12, 13), (16, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 32, 20, 20), (32, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 9, 9), (4, 3, 3, 3), {"dilations": [2, 3]}),
    ((1, 4, 9, 9), (6, 2, 3, 3), {"group": 2}),
    ((1, 6, 9, 9), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((2, 5, 9, 7), (5, 1, 5, 3), {"group": 5, "strides": [2, 2], "dilations": [1, 2]}),
    ((1, 3, 9, 9), (6, 1, 3, 3), {"group": 3}),
    ((1, 8, 5, 5), (7, 8, 1, 1), {}),
    ((1, 8, 5, 5), (7, 8, 1, 1), {"strides": [2, 2]}),
    ((1, 1, 5, 5), (1, 1, 5, 5), {}),
    ((1, 2, 6, 6), (3, 2, 4, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 2, 6, 6), (3, 2, 4, 4), {"auto_pad": "SAME_LOWER"}),
    ((1, 2, 6, 6), (3, 2, 3, 3), {"auto_pad": "VALID"}),
    ((1, 2, 11), (3, 2, 3), {"pads": [1, 2]}),
    ((2, 4, 11), (4, 1, 3), {"group": 4, "strides": [2]}),
    ((1, 6, 9, 40), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((2, 5, 30, 21), (5, 1, 5, 4), {"group": 5, "strides": [2, 1], "dilations": [1, 3], "pads": [2, 4, 1, 3]}),
    ((2, 4, 5000), (4, 1, 31), {"group": 4, "pads": [15, 15]}),
    ((2, 1, 6000), (16, 1, 10), {"strides": [5], "dilations": [2]}),
    ((2, 4, 2100), (30, 4, 3), {"pads": [1, 2], "strides": [2]}),
    ((2, 3, 40, 90), (40, 3, 2, 4), {"pads": [1, 0, 2, 3], "strides": [1, 3], "dilations": [2, 1]}),
    ((1, 2, 2, 2), (40, 2, 4, 2), {"pads": [33, 34, 33, 34]}),
    ((1, 8, 40, 40), (7, 8, 1, 1), {}),
    ((0, 3, 8, 8), (4, 3, 3, 3), {}),
    ((1, 3, 2, 2), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), {}),
    ((2, 3, 5, 6, 7), (4, 3, 3, 3, 3), {"pads": [1] * 6}),
    ((2, 3, 1, 6, 7), (4, 3, 3, 3, 3), {"pads": [1] * 6}),
    ((2, 4, 6, 5, 7), (6, 2, 2, 3, 1), {"group": 2, "strides": [2, 1, 3], "pads": [1, 0, 2, 0, 1, 1]}),
    ((1, 16, 6, 9, 8), (20, 16, 3, 3, 3), {"pads": [1] * 6}),
    ((1, 5, 7, 8, 6), (5, 1, 3, 3, 3), {"group": 5, "dilations": [2, 1, 2], "pads": [2, 1, 0, 2, 1, 4]}),
    ((2, 8, 3, 4, 5), (7, 8, 1, 1, 1), {}),
    ((1, 2, 2, 4, 4), (3, 2, 2, 2, 2), {"pads": [3, 1, 0, 4, 0, 1]}),
    ((1, 2, 5, 6, 6), (3, 2, 4, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
    ((0, 3, 4, 8, 8), (4, 3, 3, 3, 3), {}),
]


def convolutions() -> Iterator[Case]:
    for x, w, attrs in CONVS:
        yield Case("Conv", [floats(*x), Const(floats(*w, seed=1))], attrs, of_largest=1e-5)
        yield Case("Conv", [floats(*x), Const(floats(*w, seed=1)), Const(floats(w[0], seed=2))], attrs, of_largest=1e-5)


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((2, 3, 7, 9), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 1, 7, 9), {"kernel_shape": [3, 2], "pads": [0, 1, 2, 0]}),
    ((1, 3, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ((1, 3, 6, 6), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]}),
    ((1, 3, 9, 9), {"kernel_shape": [3, 3], "dilations": [2, 2]}),
    ((1, 5, 6, 7), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 5, 6, 7), {"kernel_shape": [2, 4], "auto_pad": "SAME_LOWER"}),
    ((2, 3, 11), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
    ((2, 3, 26, 40), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 3, 35, 33), {"kernel_shape": [2, 4], "strides": [1, 3], "pads": [0, 2, 1, 1], "ceil_mode": 1}),
    ((2, 3, 1050), {"kernel_shape": [5], "dilations": [2], "pads": [3, 4]}),
    ((1, 2, 5, 7, 35), {"kernel_shape": [3, 2, 2], "strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 1]}),
    ((0, 3, 8, 8), {"kernel_shape": [2, 2]}),
    ((2, 3, 6, 7, 9), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 3], "pads": [1, 1, 0, 0, 1, 1]}),
    ((1, 2, 5, 6, 7), {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "ceil_mode": 1, "pads": [1] * 6}),
    ((1, 3, 7, 6, 5), {"kernel_shape": [2, 2, 2], "dilations": [3, 2, 2]}),
    ((1, 5, 4, 6, 7), {"kernel_shape": [3, 2, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
]


def pools() -> Iterator[Case]:
    for shape, attrs in POOLS:
        yield Case("MaxPool", [floats(*shape)], attrs)
        yield Case("AveragePool", [floats(*shape)], attrs)
        yield Case("AveragePool", [floats(*shape)], {**attrs, "count_include_pad": 1})
        if not {"ceil_mode", "dilations"} & attrs.keys():
            yield Case("MaxPool", [floats(*shape)], attrs, opset=7)
            yield Case("AveragePool", [floats(*shape)], attrs, opset=7)
    with_nan = floats(1, 2, 6, 6)
    with_nan[0, 0, 2, 2], with_nan[0, 1, 3, 3] = np.nan, -np.inf
    yield Case("MaxPool", [with_nan], {"kernel_shape": [2, 2]}, onnxruntime=False)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        for shape in ((1, 3, 7, 5), (2, 1, 1, 1), (2, 3, 9), (1, 16, 40, 40), (0, 3, 4, 4), (2, 3, 4, 5, 6)):
            yield Case(op, [floats(*shape)])
    for shape, attrs in (
        ((1, 5, 4, 3), {"size": 3}),
        ((2, 7, 3, 3), {"size": 5, "alpha": 0.01, "beta": 0.5, "bias": 2.0}),
        ((1, 2, 3, 3), {"size": 7}),
        ((1, 6, 2, 2), {"size": 4, "alpha": 1.0}),
        ((1, 6, 5), {"size": 3, "alpha": 1.0}),
        ((1, 6, 2, 3, 4), {"size": 3, "alpha": 1.0}),
    ):
        yield Case("LRN", [floats(*shape)], attrs, onnxruntime=len(shape) == 4)
