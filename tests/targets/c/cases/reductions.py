"""Normalisation, reductions, softmax."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.targets.c.cases.values import floats, ints, of_dtype
from tests.targets.c.harness import Case, Const


def normalisations() -> Iterator[Case]:
    for shape in ((2, 3, 4, 5), (1, 6, 7), (3, 8), (5,), (1, 1, 1, 1)):
        for axis in {-1, 0, len(shape) // 2}:
            tail = shape[axis:]
            scale, bias = floats(*tail, seed=1), floats(*tail, seed=2)
            for bound in (True, False):
                operands: list[Any] = [floats(*shape), Const(scale) if bound else scale, Const(bias) if bound else bias]
                yield Case("LayerNormalization", operands, {"axis": axis}, rtol=1e-4, atol=1e-5)
            yield Case(
                "LayerNormalization", [floats(*shape), scale], {"axis": axis, "epsilon": 0.1}, rtol=1e-4, atol=1e-5
            )
            yield Case("RMSNormalization", [floats(*shape), scale], {"axis": axis}, opset=23, rtol=1e-4, atol=1e-5)
    for shape in ((2, 6, 4, 5), (1, 4, 9), (1, 2, 1, 1), (2, 4, 3, 2, 5)):
        scale, bias = floats(shape[1], seed=1), floats(shape[1], seed=2)
        yield Case("InstanceNormalization", [floats(*shape), Const(scale), Const(bias)], rtol=1e-4, atol=1e-4)
        yield Case("InstanceNormalization", [floats(*shape), scale, bias], {"epsilon": 0.1}, rtol=1e-4, atol=1e-4)
        for groups in {1, 2, shape[1]}:
            yield Case(
                "GroupNormalization",
                [floats(*shape), Const(scale), Const(bias)],
                {"num_groups": groups},
                rtol=1e-4,
                atol=1e-4,
            )
        mean, variance = floats(shape[1], seed=3), floats(shape[1], seed=4, low=0.5)
        statistics = [Const(scale), Const(bias), Const(mean), Const(variance)]
        for opset in (7, 9, 14, 15):
            yield Case("BatchNormalization", [floats(*shape), *statistics], opset=opset, rtol=1e-4, atol=1e-5)
        yield Case(
            "BatchNormalization", [floats(*shape), *statistics], {"epsilon": 0.1, "momentum": 0.5}, rtol=1e-4, atol=1e-5
        )
    statistics = [Const(floats(5, seed=i, low=0.5)) for i in range(4)]
    yield Case("BatchNormalization", [floats(7, 5), *statistics], rtol=1e-4, atol=1e-5)
    statistics = [Const(each.array.astype(np.float64)) for each in statistics]
    yield Case("BatchNormalization", [floats(7, 5, 3).astype(np.float64), *statistics])


REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]
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
                yield Case(op, [x, ints(*axes)], {"keepdims": 0}, opset=20, onnxruntime=not wrong)
            if dtype == "float64" or op not in ("ReduceLogSum", "ReduceLogSumExp"):  # -inf is no whole number
                yield Case(op, [x[..., :0], ints(-1)], {"keepdims": 1}, opset=20, onnxruntime=False)
            yield Case(op, [x[..., :2], ints(-1)], {"keepdims": 1}, opset=20, onnxruntime=not wrong)


def reductions() -> Iterator[Case]:
    yield from typed_reductions()
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
