"""Pools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case
from tests.cases.values import ALONE, floats, integers, ints

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
    ((1, 3, 11, 11), {"kernel_shape": [2, 2], "strides": [3, 4]}),
    ((1, 3, 8, 9), {"kernel_shape": [3, 2], "auto_pad": "VALID"}),
    ((1, 3, 8, 8), {"kernel_shape": [3, 3], "strides": [3, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]}),
    ((1, 1, 2, 2), {"kernel_shape": [1, 1], "strides": [3, 3], "ceil_mode": 1}),
    ((1, 7, 18, 1), {"kernel_shape": [1, 1], "strides": [3, 2], "ceil_mode": 1}),
    ((2, 3, 10), {"kernel_shape": [3], "strides": [4], "ceil_mode": 1, "pads": [2, 0]}),
    ((1, 3, 9, 9), {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 1, 1]}),
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
    yield Case("MaxPool", [with_nan], {"kernel_shape": [2, 2]}, **ALONE)
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
        yield Case("LRN", [floats(*shape)], attrs, onnxruntime=len(shape) == 4, reference=False)


def edges() -> Iterator[Case]:
    """Windows that overhang, paddings that follow from sizes, powers, and what does not fit."""
    rising = np.arange(-25, 0, dtype=np.float32).reshape(1, 1, 5, 5)
    overhang = {"kernel_shape": [2, 2], "strides": [3, 3], "pads": [0, 0, 1, 1], "ceil_mode": 1}
    for op in ("MaxPool", "AveragePool"):
        yield Case(op, [rising], overhang, 12 if op == "MaxPool" else 19)
        yield Case(op, [rising], {"kernel_shape": [6, 6]}, refused=op)
        yield Case(op, [rising], {"kernel_shape": [2]}, refused=op)
    for storage in (0, 1):
        attrs = {"kernel_shape": [2, 3], "strides": [2, 1], "storage_order": storage, "pads": [1, 1, 0, 1]}
        yield Case("MaxPool", [floats(2, 3, 7, 6)], attrs, outputs=2)
        yield Case("MaxPool", [floats(2, 3, 7, 6)], attrs, outputs=2, left_out=[0])
    for shape, attrs in POOLS:
        if not {"ceil_mode", "dilations"} & attrs.keys():
            for p in (1, 2, 3):
                yield Case("LpPool", [floats(*shape)], {**attrs, "p": p}, 18, rtol=1e-4, onnxruntime=0 not in shape)
    for p in (1, 2, 3):
        for shape in ((1, 3, 7, 5), (2, 3, 9), (2, 1, 1, 1)):
            yield Case("GlobalLpPool", [floats(*shape)], {"p": p}, rtol=1e-4)
    x = floats(1, 1, 4, 4)
    places = np.array([[[[5, 7], [13, 15]]]])
    yield Case("MaxUnpool", [x[:, :, :2, :2], places], {"kernel_shape": [2, 2], "strides": [2, 2]})
    yield Case("MaxUnpool", [x[:, :, :2, :2], places, ints(1, 1, 5, 5)], {"kernel_shape": [2, 2], "strides": [2, 2]},
               onnxruntime=False)  # fmt: skip


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "MaxPool",
        [integers(1, 1, 4, 4, 4, dtype="int8")],
        {"kernel_shape": [2, 2, 2]},
        host="operand 0 has rank 5, not 3 or 4",
    )
    yield Case("GlobalAveragePool", [floats(1, 2, 3, 4, 5)[..., None]], host="operand 0 has rank 6, not 3 or 4 or 5")
    yield Case("LRN", [floats(1, 3, 6, 6)], {"size": 3, "bias": 0.0}, host="may make the sum negative")


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from pools()
    yield from edges()
    yield from declined()
