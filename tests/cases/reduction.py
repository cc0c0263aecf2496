"""Reductions and softmax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import ALONE, floats, integers, ints, of_dtype

REDUCTIONS = [
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
]  # fmt: skip


AXES = {
    (2, 3, 4, 5): [[0], [1], [-1], [2, 3], [1, 2], [0, 3], [0, 2], [0, 1, 3], [0, 1, 2, 3], [-2, 1]],
    (3, 1, 7): [[0], [1], [2], [0, 2]],
    (9,): [[0]],
    (2, 3, 2, 3, 2): [[0, 1, 3, 4], [2]],
    (1, 1): [[1]],
}


WHOLE = ("int32", "int64", "uint32", "uint64")


SMALL = ("int8", "uint8", "bool")


def typed_reductions() -> Iterator[Case]:
    """Reductions of what is not float32, where ONNX allows them."""
    shape = (2, 3, 4, 70)
    for op in REDUCTIONS:
        for dtype in (*WHOLE, "float64", *(SMALL if op in ("ReduceMax", "ReduceMin") else ())):
            positive = dtype.startswith("u") or op == "ReduceLogSum"
            x = of_dtype(floats(*shape, low=1.0 if positive else -9.0, high=9.0), dtype)
            if op == "ReduceProd" and dtype == "float64":
                x /= 5.0
            wrong = dtype != "float64" and op in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
            for axes in ([-1], [1], [0, 3], [0, 1, 2, 3]):
                yield Case(op, [x, ints(*axes)], {"keepdims": 0}, opset=20, onnxruntime=not wrong, reference=False)
            yield Case(op, [x[..., :0], ints(-1)], {"keepdims": 1}, opset=20, **ALONE)
            yield Case(op, [x[..., :2], ints(-1)], {"keepdims": 1}, opset=20, onnxruntime=not wrong, reference=False)


def reductions() -> Iterator[Case]:
    yield from typed_reductions()
    for dtype in WHOLE:  # logarithms that are no numbers, or not finite
        yield Case("ReduceLogSum", [of_dtype(np.array([[1, 2], [-3, 1], [-1, 1]]), dtype), ints(-1)], opset=20, **ALONE)
    for op in REDUCTIONS:
        low = 0.5 if op in ("ReduceLogSum", "ReduceProd") else -2.0
        old = 12 if op == "ReduceSum" else 17
        for shape, choices in AXES.items():
            x = floats(*shape, low=low, high=2.0)
            for axes in choices:
                for keep in (0, 1):
                    yield Case(op, [x, ints(*axes)], {"keepdims": keep}, rtol=1e-4, atol=1e-5)
            yield Case(op, [x], {"axes": choices[0]}, opset=old, rtol=1e-4, atol=1e-5)
        yield Case(op, [x], {"keepdims": 0})
        yield Case(op, [floats(2, 3, low=low)], {"noop_with_empty_axes": 1}, rtol=1e-5)
        yield Case(op, [floats(2, 3, low=low), ints()], {"noop_with_empty_axes": 1}, rtol=1e-5)
        yield Case(op, [floats(2, 3, low=low), ints()], {"noop_with_empty_axes": 0}, rtol=1e-4)
        yield Case(op, [floats(low=low)], rtol=1e-5)
        yield Case(op, [floats(2, 0, 3), ints(0)], onnxruntime=False)
        if op not in ("ReduceMax", "ReduceMin"):
            yield Case(op, [floats(2, 0, 3), ints(1)], onnxruntime=False)
    for op in ("Softmax", "LogSoftmax"):
        for shape in ((2, 3, 4, 5), (3, 1, 7), (4, 9), (6,), (2, 3, 2, 3, 2), (2, 0, 3), (0, 3), (1, 1)):
            for axis in range(-len(shape), len(shape)):
                yield Case(op, [floats(*shape, high=9.0)], {"axis": axis}, atol=1e-5)
                if axis >= 0:
                    yield Case(op, [floats(*shape, high=9.0)], {"axis": axis}, opset=11, atol=1e-5)
        yield Case(op, [floats(2, 3, 4)])
        yield Case(op, [floats(2, 3, 4)], opset=7)
        extreme = np.array([[1e38, -1e38, 0.0], [-np.inf, 0.0, 1.0], [-200.0, -300.0, -250.0]], np.float32)
        yield Case(op, [extreme])


def edges() -> Iterator[Case]:
    """Running sums, products and places of extremes, and axes that do not fit."""
    x = floats(2, 3, 4)
    for op in ("ArgMax", "ArgMin"):
        for attrs in ({}, {"axis": -1, "keepdims": 0}, {"axis": 1, "select_last_index": 1}):
            yield Case(op, [x], attrs)
        yield Case(op, [x], {"axis": 3}, refused=op)
        yield Case(op, [floats(2, 0)], {"axis": 1}, refused=op)
    for axis in (Const(np.array(1)), np.array(-1)):
        for attrs in ({}, {"exclusive": 1, "reverse": 1}):
            yield Case("CumSum", [x, axis], attrs)
    yield Case("CumSum", [x, Const(np.array(3))], refused="CumSum")
    yield Case("CumSum", [x, np.array(3)], refused="CumSum")
    scores, classes = floats(2, 3, 4), integers(2, 4, low=0, high=3)
    for attrs in ({}, {"reduction": "none"}, {"reduction": "sum"}):
        yield Case("SoftmaxCrossEntropyLoss", [scores, classes], attrs, 13, 2, rtol=1e-4)
        yield Case("NegativeLogLikelihoodLoss", [scores, classes], attrs, 13, rtol=1e-4)
    yield Case("SoftmaxCrossEntropyLoss", [scores, classes[:, :3]], {}, 13, refused="differ in shape|does not fit")


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from reductions()
    yield from edges()
