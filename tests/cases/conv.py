"""Convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import floats, integers

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
    ((1, 6, 5, 5), (4, 6, 1, 1), {"pads": [1, 0, 0, 2]}),
    ((2, 6, 5, 5), (4, 3, 1, 1), {"group": 2}),
    ((1, 3, 11, 11), (2, 3, 2, 2), {"strides": [3, 4]}),
    ((2, 6, 7, 7), (9, 2, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    ((2, 3, 4, 4), (5, 3, 4, 4), {"kernel_shape": [4, 4]}),
    ((0, 3, 8, 9), (4, 3, 1, 1), {}),
]


def convolutions() -> Iterator[Case]:
    for x, w, attrs in CONVS:
        yield Case("Conv", [floats(*x), Const(floats(*w, seed=1))], attrs, of_largest=1e-5)
        yield Case("Conv", [floats(*x), Const(floats(*w, seed=1)), Const(floats(w[0], seed=2))], attrs, of_largest=1e-5)


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
    ((1, 3, 4, 5), (3, 2, 2, 2), {"strides": [3, 4]}),
    ((1, 3, 4, 5), (3, 2, 3, 3), {"strides": [2, 2], "output_shape": [8, 10]}),
    ((1, 3, 4, 5), (3, 2, 4, 4), {"strides": [2, 2], "output_shape": [7, 9], "auto_pad": "SAME_UPPER"}),
    ((2, 4, 6), (4, 3, 5), {"group": 2, "strides": [3], "pads": [2, 1]}),
    ((2, 4, 2, 3), (4, 3, 5, 4), {"group": 2, "strides": [3, 2], "dilations": [2, 3]}),
    ((1, 2, 3, 4, 3), (2, 3, 2, 3, 2), {"strides": [1, 2, 2], "pads": [0, 1, 0, 1, 0, 0]}),
    ((0, 3, 4, 5), (3, 4, 3, 3), {}),
]


def transposed_convolutions() -> Iterator[Case]:
    for x, w, attrs in DECONVS:
        bias = Const(floats(w[1] * attrs.get("group", 1), seed=2))
        yield Case("ConvTranspose", [floats(*x), Const(floats(*w, seed=1))], attrs, of_largest=1e-5)
        yield Case("ConvTranspose", [floats(*x), Const(floats(*w, seed=1)), bias], attrs, of_largest=1e-5)


def edges() -> Iterator[Case]:
    """Paddings that follow from sizes, weights from the run, products of integers, and what does not fit."""
    x, w = floats(1, 4, 7, 8), floats(6, 4, 3, 3, seed=1)
    for pad in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"):
        for strides in ([1, 1], [2, 3]):
            yield Case("Conv", [x, Const(w)], {"auto_pad": pad, "strides": strides}, of_largest=1e-5)
            attrs = {"auto_pad": pad, "strides": strides}
            yield Case("ConvTranspose", [x, Const(floats(4, 2, 3, 3))], attrs, of_largest=1e-5)
            yield Case("ConvInteger", [integers(1, 4, 7, 8, dtype="uint8", low=0), integers(6, 4, 3, 3, dtype="int8")],
                       attrs, 10, onnxruntime=False)  # fmt: skip
    yield Case("Conv", [x, Const(w[:, :2])], {"group": 2}, of_largest=1e-5)
    yield Case("Conv", [x, Const(w)], {"group": 3}, refused="Conv")
    yield Case("Conv", [x, Const(w[:, :3])], refused="Conv")
    yield Case("Conv", [x, Const(w), Const(floats(5))], refused="Conv")
    yield Case("Conv", [x, w], {"dilations": [4, 4]}, refused="Conv")
    yield Case("Conv", [x, Const(w)], {"dilations": [4, 4]}, refused="Conv")
    one, three = floats(1, 1, 3, 3), Const(floats(1, 1, 3, 3, seed=1))
    attrs = {"strides": [2, 2], "auto_pad": "SAME_UPPER", "output_padding": [1, 1]}
    yield Case("ConvTranspose", [one, three], attrs, 14, of_largest=1e-5)
    attrs = {"output_shape": [10, 1], "strides": [3, 2]}
    yield Case("ConvTranspose", [floats(1, 1, 3, 2), Const(floats(1, 2, 3, 3))], attrs, of_largest=1e-5)
    for shape in ((1, 6, 4), (6, 4), (2, 6, 4)):
        attrs = {"image_shape": [3, 4], "block_shape": [2, 3] if shape[-1] == 4 else [1, 1]}
        columns = Case("Col2Im", [floats(*shape), Const(np.array([3, 4])), Const(np.array([2, 3]))], {}, 18)
        if len(shape) == 3:
            yield columns
    window = {"strides": [1, 2], "pads": [0, 0, 0, 1]}
    yield Case("Col2Im", [floats(2, 6, 9), Const(np.array([4, 4])), Const(np.array([2, 1]))], window, 18)
    offsets = [floats(1, 18, 5, 6, low=-0.5, high=0.5), floats(6, seed=2), floats(1, 9, 5, 6, low=0.0, high=1.0)]
    yield Case("DeformConv", [x, Const(w), *offsets], {"kernel_shape": [3, 3]}, 19, of_largest=1e-4, onnxruntime=False)
    yield Case("DeformConv", [x, w, offsets[0]], {}, 19, of_largest=1e-4, onnxruntime=False)


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "Conv",
        [floats(1, 3, 6, 6), Const(floats(4, 3, 3, 3, seed=1)), floats(4)],
        of_largest=1e-05,
        host='operand 2 ("x2") is not a constant',
    )
    yield Case(
        "Conv",
        [floats(1, 3, 6, 6).astype("f8"), Const(floats(4, 3, 3, 3, seed=1).astype("f8"))],
        host="is float64[1, 3, 6, 6], not float32",
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from convolutions()
    yield from transposed_convolutions()
    yield from edges()
    yield from declined()
