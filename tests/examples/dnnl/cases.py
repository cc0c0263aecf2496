"""The table of operators: shapes, attributes and versions that matter to the library."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.examples.dnnl.harness import floats
from tests.targets.c.harness import Case, Const

IMAGE = (2, 17, 9, 7)
"""A number of channels that fills no block."""


def ints(*values: int) -> Const:
    return Const(np.array(values, np.int64))


def weights(*shape: int) -> Const:
    return Const(floats(*shape, seed=1))


def convolutions() -> Iterator[Case]:
    x, bias = floats(*IMAGE), weights(6)
    yield Case("Conv", [x, weights(6, 17, 3, 3)])
    yield Case("Conv", [x, weights(6, 17, 3, 3), bias], {"pads": [1, 1, 1, 1]})
    yield Case("Conv", [x, weights(6, 17, 3, 2), bias], {"pads": [0, 1, 2, 0], "strides": [2, 3]})
    yield Case("Conv", [x, weights(6, 17, 3, 3), bias], {"dilations": [2, 3], "pads": [2, 1, 0, 3]})
    yield Case("Conv", [x, weights(6, 17, 3, 3), bias], {"auto_pad": "SAME_UPPER", "strides": [2, 2]})
    yield Case("Conv", [x, weights(6, 17, 3, 3), bias], {"auto_pad": "SAME_LOWER", "strides": [2, 2]})
    yield Case("Conv", [x, weights(6, 17, 1, 1)], {"auto_pad": "VALID", "strides": [2, 2]})
    yield Case("Conv", [x, weights(17, 1, 3, 3), weights(17)], {"group": 17, "pads": [1, 1, 1, 1]})
    yield Case("Conv", [x, weights(34, 1, 5, 3), weights(34)], {"group": 17, "strides": [2, 1], "pads": [2, 1, 2, 1]})
    yield Case("Conv", [floats(1, 32, 8, 8), weights(48, 8, 3, 3), weights(48)], {"group": 4, "pads": [1, 1, 1, 1]})
    yield Case("Conv", [floats(1, 3, 33, 31), weights(16, 3, 7, 7)], {"strides": [2, 2], "pads": [3, 3, 3, 3]})
    yield Case("Conv", [floats(2, 5, 11), weights(4, 5, 3), weights(4)], {"pads": [2, 0], "dilations": [2]})
    yield Case("Conv", [floats(1, 3, 5, 6, 7), weights(4, 3, 2, 3, 2), weights(4)], {"strides": [1, 2, 1]})


def products() -> Iterator[Case]:
    a, b = floats(5, 7), weights(7, 6)
    yield Case("Gemm", [a, b])
    yield Case("Gemm", [a, b, weights(6)], {"alpha": 0.5, "beta": 2.0})
    yield Case("Gemm", [a, weights(6, 7), weights(1, 6)], {"transB": 1})
    yield Case("Gemm", [floats(7, 5), floats(6, 7, seed=2), Const(floats(1))], {"transA": 1, "transB": 1})
    yield Case("Gemm", [a, b, floats(5, 6, seed=2)], {"beta": 0.25})
    yield Case("Gemm", [a, b, weights(5, 6)], {"alpha": -1.0})
    yield Case("Gemm", [floats(1, 2048), weights(2048, 10), weights(10)])
    for left, right in [
        ((5, 7), (7, 6)), ((3, 5, 7), (7, 6)), ((2, 3, 5, 7), (7, 6)), ((2, 3, 5, 7), (2, 3, 7, 6)), ((7,), (7, 6)),
        ((3, 5, 7), (3, 7, 6)), ((2, 1, 5, 7), (1, 3, 7, 6)), ((5, 7), (3, 7, 6)), ((5, 7), (7,)), ((7,), (7,)),
        ((3, 5, 7), (7,)), ((7,), (3, 7, 6)), ((1, 4, 1, 7), (7, 1)),
    ]:  # fmt: skip
        yield Case("MatMul", [floats(*left), floats(*right, seed=1)])
        yield Case("MatMul", [floats(*left), weights(*right)])


def pools() -> Iterator[Case]:
    x = floats(*IMAGE)
    for op in ("MaxPool", "AveragePool"):
        yield Case(op, [x], {"kernel_shape": [3, 2]})
        yield Case(op, [x], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]})
        yield Case(op, [x], {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [0, 1, 2, 0]})
        yield Case(op, [x], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1})
        yield Case(op, [floats(1, 7, 18, 1)], {"kernel_shape": [1, 1], "strides": [3, 2], "ceil_mode": 1})
        yield Case(op, [x], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1})
        yield Case(op, [x], {"kernel_shape": [3, 3], "strides": [3, 3], "auto_pad": "SAME_LOWER"})
        yield Case(op, [x], {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [0, 1, 0, 1], "ceil_mode": 1})
        yield Case(op, [x], {"kernel_shape": [2, 3], "dilations": [3, 2]})
        yield Case(op, [floats(2, 3, 11)], {"kernel_shape": [4], "strides": [3], "pads": [1, 2]})
        yield Case(op, [floats(1, 2, 5, 6, 7)], {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]})
    yield Case("AveragePool", [x], {"kernel_shape": [3, 3], "pads": [1, 2, 0, 1], "count_include_pad": 1})
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield from (Case(op, [floats(*shape)]) for shape in [IMAGE, (2, 3, 11), (1, 4, 3, 5, 2)])
    yield Case("ReduceMean", [x, ints(2, 3)])
    yield Case("ReduceMean", [x, ints(-1, 2)], {"keepdims": 0})
    yield Case("ReduceMean", [x], {"axes": [2, 3], "keepdims": 0}, opset=13)


def unary() -> Iterator[Case]:
    for op in ("Abs", "Elu", "Exp", "Mish", "Softplus", "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish"):
        for shape in [(), (5,), (3, 4), (2, 3, 5), IMAGE, (1, 2, 3, 2, 3), (1, 2, 1, 3, 2, 3)]:
            yield Case(op, [floats(*shape)])
    for op in ("Log", "Sqrt"):
        yield Case(op, [floats(*IMAGE, low=0.1)])
    x = floats(*IMAGE)
    yield Case("Elu", [x], {"alpha": 0.5})
    yield Case("LeakyRelu", [x], {"alpha": 0.3})
    yield Case("HardSigmoid", [x])
    yield Case("HardSigmoid", [x], {"alpha": 1 / 6, "beta": 0.5})
    yield Case("Gelu", [x], {"approximate": "none"})
    yield Case("Gelu", [x], {"approximate": "tanh"})
    yield Case("Clip", [x, Const(-1.0), Const(0.5)])
    yield Case("Clip", [x, None, Const(0.5)])
    yield Case("Clip", [x], {"min": -0.5}, opset=10)


def binary() -> Iterator[Case]:
    pairs = [
        (IMAGE, IMAGE), (IMAGE, (1, 17, 1, 1)), (IMAGE, (17, 1, 1)), (IMAGE, ()), (IMAGE, (2, 17, 1, 1)),
        (IMAGE, (7,)), ((2, 3), (3,)), ((2, 3), (2, 1)), ((5,), (1,)), ((2, 1, 3, 1, 2), (1, 1, 3, 1, 2)), ((), ()),
    ]  # fmt: skip
    for op in ("Add", "Sub", "Mul", "Div"):
        for left, right in pairs:
            yield Case(op, [floats(*left), floats(*right, seed=1, low=0.5)])
            yield Case(op, [floats(*left), Const(floats(*right, seed=1, low=0.5))])
    for op in ("Add", "Mul", "Max", "Min"):
        yield Case(op, [floats(1, 17, 1, 1), floats(*IMAGE, seed=1)])
    yield Case("Sub", [Const(floats(*IMAGE)), floats(*IMAGE, seed=1)])


def rest() -> Iterator[Case]:
    x = floats(*IMAGE)
    for op in ("Softmax", "LogSoftmax"):
        for axis in (0, 1, 3, -1):
            yield Case(op, [x], {"axis": axis})
        yield Case(op, [floats(3, 1000)])
        yield Case(op, [x], {"axis": 2}, opset=11)
        yield Case(op, [x], opset=11)
    yield Case("Concat", [x, floats(2, 5, 9, 7)], {"axis": 1})
    yield Case("Concat", [x, x, Const(floats(2, 17, 9, 2))], {"axis": -1})
    yield Case("Concat", [floats(3), floats(4)], {"axis": 0})


ALL = [*convolutions(), *products(), *pools(), *unary(), *binary(), *rest()]


def is_image(case: Case) -> bool:
    """Whether a case has an operand that a convolution may give."""
    return case.opset >= 11 and any(x.ndim == 4 for x in case.feeds.values() if isinstance(x, np.ndarray))
