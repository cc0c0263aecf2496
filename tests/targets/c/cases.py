"""The table of operators under test: what each takes, in the shapes, dtypes, attributes and versions that matter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.targets.c.harness import Case, Const

ODD = [(), (1,), (7,), (3, 5), (2, 3, 5), (1, 1, 1), (2, 3, 4, 5), (1, 9, 1, 7), (2, 1, 3, 2, 5), (0, 3), (2, 3, 0, 4)]
LARGEST = np.finfo(np.float32).max
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, LARGEST, -LARGEST, 1e-45, -1e-38, 88.8, -104.0, 0.5, 1.5, -2.5], "f4"
)


def floats(*shape: int, seed: int = 0, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def integers(*shape: int, dtype: str = "int64", seed: int = 0, low: int = -9, high: int = 9) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).integers(low, high, shape)).astype(dtype)


def ints(*values: int) -> Const:
    return Const(np.array(values, np.int64))


# Element-wise --------------------------------------------------------------------------------------------------------

UNIT = {"Asin", "Acos", "Atanh"}
POSITIVE = {"Log", "Sqrt", "Acosh"}
PLAIN_UNARY = [
    "Abs",
    "Neg",
    "Exp",
    "Log",
    "Sqrt",
    "Reciprocal",
    "Floor",
    "Ceil",
    "Round",
    "Sign",
    "Erf",
    "Softplus",
    "Softsign",
    "Elu",
    "Selu",
    "Celu",
    "Mish",
    "ThresholdedRelu",
    "Shrink",
    "Sin",
    "Cos",
    "Tan",
    "Asin",
    "Acos",
    "Atan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Acosh",
    "Atanh",
    "Relu",
    "Clip",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "HardSigmoid",
    "Gelu",
]
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "Elu": [{"alpha": 0.5}],
    "Selu": [{"alpha": 1.5, "gamma": 2.0}],
    "Celu": [{"alpha": 0.25}],
    "ThresholdedRelu": [{"alpha": -0.5}],
    "Shrink": [{"lambd": 1.0, "bias": 0.25}],
    "LeakyRelu": [{"alpha": 0.3}, {"alpha": -0.5}, {"alpha": 1.5}],
    "HardSigmoid": [{"alpha": 0.3, "beta": 0.1}, {"alpha": 1 / 6, "beta": 0.5}],
    "Gelu": [{"approximate": "tanh"}, {"approximate": "none"}],
}
LOOSE = {"Tan": 1e-4, "Erf": 1e-5, "Gelu": 1e-5, "Mish": 1e-5}


def unary() -> Iterator[Case]:
    for op in PLAIN_UNARY:
        low, high = (-0.99, 0.99) if op in UNIT else (1.01, 4.0) if op in POSITIVE else (-3.0, 3.0)
        rtol = LOOSE.get(op, 1e-5)
        for shape in ODD:
            yield Case(op, [floats(*shape, low=low, high=high)], rtol=rtol)
        for attrs in ATTRIBUTES.get(op, []):
            yield Case(op, [floats(2, 3, 5, 7)], attrs, rtol=rtol)
        # Limits at infinity differ between libraries for a few; the host's kernels are the contract.
        yield Case(op, [SPECIAL], rtol=rtol, onnxruntime=False)
    for op in (
        "Relu",
        "Sigmoid",
        "Abs",
        "Exp",
        "Floor",
        "Neg",
        "Tanh",
        "Sqrt",
        "HardSigmoid",
        "Selu",
        "Elu",
        "LeakyRelu",
    ):
        yield Case(op, [floats(3, 4, low=0.1)], opset=7)
    bounds = [(Const(-1.0), Const(1.0)), (None, Const(0.5)), (Const(-0.5), None), (Const(1.0), Const(-1.0))]
    for low_bound, high_bound in bounds:
        yield Case("Clip", [floats(2, 3, 5), low_bound, high_bound])
        yield Case("Clip", [SPECIAL, low_bound, high_bound])
    yield Case("Clip", [floats(2, 3), Const([0.0])], onnxruntime=False)
    yield Case("Clip", [floats(4, 5)], {"min": -1.0, "max": 0.5}, opset=10)
    yield Case("Clip", [SPECIAL], {"max": 0.5}, opset=7)


BROADCASTS = [
    ((), ()), ((3,), ()), ((2, 3, 4), (4,)), ((4,), (2, 3, 4)), ((2, 3, 4, 5), (1, 3, 1, 1)), ((3, 1), (1, 4)),
    ((2, 1, 4, 1), (3, 1, 5)), ((2, 3, 4, 5), (2, 3, 4, 5)), ((1, 3, 1, 1), (2, 3, 4, 5)), ((2, 3, 5), (2, 3, 1)),
    ((0, 3), (1, 3)), ((2, 0, 3), (1, 1, 3)), ((2, 1, 3, 1, 2), (1, 4, 1, 3, 1)), ((1,) * 8, (2, 1, 3, 1, 2, 1, 2, 1)),
    ((2, 3, 4, 5), (5,)), ((2, 3, 4, 5), (4, 1)), ((2, 3, 4), (1, 1, 1, 1)),
]  # fmt: skip


def binary() -> Iterator[Case]:
    for left, right in BROADCASTS:
        for op in ("Add", "Sub", "Mul", "Div", "Max"):
            yield Case(op, [floats(*left), floats(*right, seed=1, low=0.5)])
        yield Case("Add", [Const(floats(*left)), floats(*right, seed=1)])
        yield Case("Sub", [floats(*left), Const(floats(*right, seed=1))])
        yield Case("Greater", [floats(*left), floats(*right, seed=1)])
        yield Case(
            "And", [integers(*left, low=0, high=2, dtype="bool"), integers(*right, seed=1, low=0, high=2, dtype="bool")]
        )
    pair = [floats(2, 3, 4, 5, low=0.1), floats(3, 1, 1, seed=1)]
    yield Case("Pow", pair, rtol=2e-5)
    yield Case("Pow", [floats(2, 3, 4), Const(2.0)])
    yield Case("Pow", [floats(2, 3, 4), Const(3.0)])
    yield Case("Pow", [floats(2, 3, 4, low=0.0), Const(0.5)])
    for op in ("Add", "Mul", "Min", "Max", "Div", "Pow", "Sub"):
        grid = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
        yield Case(op, list(grid), onnxruntime=op not in ("Min", "Max", "Pow"))
    for dtype in ("int32", "int64"):
        a, b = integers(2, 3, 4, dtype=dtype), integers(3, 1, dtype=dtype, seed=1)
        for op in ("Add", "Sub", "Mul"):
            yield Case(op, [a, b])
            extremes = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, -1, 0, 1], dtype)
            yield Case(op, [np.repeat(extremes, 5), np.tile(extremes, 5)])
        for op in ("Min", "Max"):
            yield Case(op, [a, b])
        yield Case("Div", [a, np.where(b == 0, 1, b).astype(dtype)])
        yield Case("Pow", [a, np.abs(b) % 4])
        for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
            yield Case(op, [a, b])
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        grid = np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)
        yield Case(op, list(grid))
        yield Case(op, [floats(2, 3, 4, 5), floats(2, 3, 4, 5, seed=1)])
    for op in ("Or", "Xor"):
        yield Case(op, [integers(3, 4, low=0, high=2, dtype="bool"), integers(4, seed=1, low=0, high=2, dtype="bool")])
    for op in ("Sum", "Min", "Max"):
        yield Case(op, [floats(2, 3), floats(3, seed=1), floats(2, 1, seed=2)])
        yield Case(op, [floats(3), floats(2, 1, seed=1), floats(5, 1, 1, seed=2), floats(1, seed=3)])
        yield Case(op, [floats(2, 3, 4, 5), floats(1, 3, 1, 1, seed=1), floats(2, 3, 4, 5, seed=2)], opset=8)
    yield Case("PRelu", [floats(2, 3, 4, 5), Const(floats(3, 1, 1, seed=1))])
    yield Case("PRelu", [floats(2, 3, 4, 5), floats(1, 3, 1, 1, seed=1)])
    yield Case("PRelu", [floats(2, 3), Const(floats(1, seed=1))], opset=9)
    for dtype in ("float32", "int8", "float16", "int64", "bool", "float64", "bfloat16"):
        yield from _where(dtype)


def of_dtype(values: np.ndarray, dtype: str) -> np.ndarray:
    import ml_dtypes

    return values.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


def _where(dtype: str) -> Iterator[Case]:
    a, b = of_dtype(floats(2, 3, 4, 5), dtype), of_dtype(floats(4, 1, seed=1), dtype)
    yield Case("Where", [integers(2, 3, 4, 5, low=0, high=2, dtype="bool"), a, b])
    yield Case("Where", [integers(3, 1, 1, low=0, high=2, dtype="bool"), b, a])


# Matrix products -----------------------------------------------------------------------------------------------------

PRODUCTS = [
    ((5,), (5,)), ((5,), (5, 3)), ((3, 5), (5,)), ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((2, 3, 5), (5, 7)),
    ((2, 3, 5), (2, 5, 7)), ((2, 3, 5), (1, 5, 7)), ((1, 3, 5), (2, 5, 7)), ((4, 2, 3, 5), (4, 2, 5, 7)),
    ((4, 1, 3, 5), (1, 2, 5, 7)), ((3, 5), (2, 5, 7)), ((2, 3, 5), (5,)), ((5,), (2, 5, 3)), ((0, 5), (5, 3)),
    ((3, 0), (0, 4)), ((2, 3, 5), (2, 5, 0)), ((2, 2, 2, 3, 5), (5, 4)), ((17, 33), (33, 65)), ((1, 129), (129, 31)),
    ((2, 5, 3, 7), (7, 4)), ((2, 5, 3, 7), (5, 7, 4)),
]  # fmt: skip


def products() -> Iterator[Case]:
    for left, right in PRODUCTS:
        a, b = floats(*left), floats(*right, seed=1)
        yield Case("MatMul", [a, b], rtol=1e-4, atol=1e-5)
        yield Case("MatMul", [a, Const(b)], rtol=1e-4, atol=1e-5)
        yield Case("MatMul", [Const(a), b], rtol=1e-4, atol=1e-5)
    for trans_a, trans_b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        a, b = floats(*((5, 3) if trans_a else (3, 5))), floats(*((7, 5) if trans_b else (5, 7)), seed=1)
        for alpha, beta in ((1.0, 1.0), (0.5, 2.0), (0.0, 1.0), (1.0, 0.0)):
            attrs = {"transA": trans_a, "transB": trans_b, "alpha": alpha, "beta": beta}
            for c in (
                None,
                Const(floats(7, seed=2)),
                Const(floats(3, 7, seed=2)),
                Const(2.0),
                Const(floats(1, 7)),
                Const([2.0]),
            ):
                for weights in (Const(b), b):
                    yield Case("Gemm", [a, weights, *([] if c is None else [c])], attrs, rtol=1e-4, atol=1e-5)
        yield Case("Gemm", [a, b, floats(3, 7, seed=2)], {"transA": trans_a, "transB": trans_b}, rtol=1e-4, atol=1e-5)
        yield Case(
            "Gemm", [a, Const(b), floats(3, 7, seed=2)], {"transA": trans_a, "transB": trans_b}, rtol=1e-4, atol=1e-5
        )
    yield Case("Gemm", [floats(3, 5), Const(floats(5, 7)), Const(floats(7))], opset=7, rtol=1e-4, atol=1e-5)
    yield Case("Gemm", [floats(0, 5), Const(floats(5, 7))])
    yield Case("Gemm", [floats(3, 0), Const(floats(0, 7)), Const(floats(7))])
    yield Case("Gemm", [floats(3, 5), Const(floats(5, 1)), Const(floats(1))], rtol=1e-4, atol=1e-5)


# Convolutions and pools ----------------------------------------------------------------------------------------------

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
    ((0, 3, 8, 8), (4, 3, 3, 3), {}),
    ((1, 3, 2, 2), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
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
    ((0, 3, 8, 8), {"kernel_shape": [2, 2]}),
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
        for shape in ((1, 3, 7, 5), (2, 1, 1, 1), (2, 3, 9), (1, 16, 40, 40), (0, 3, 4, 4)):
            yield Case(op, [floats(*shape)])
    for shape, attrs in (
        ((1, 5, 4, 3), {"size": 3}),
        ((2, 7, 3, 3), {"size": 5, "alpha": 0.01, "beta": 0.5, "bias": 2.0}),
        ((1, 2, 3, 3), {"size": 7}),
        ((1, 6, 2, 2), {"size": 4, "alpha": 1.0}),
        ((1, 6, 5), {"size": 3, "alpha": 1.0}),
    ):
        yield Case("LRN", [floats(*shape)], attrs, onnxruntime=len(shape) == 4)


# Normalisation, reductions, softmax ----------------------------------------------------------------------------------


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
    for shape in ((2, 6, 4, 5), (1, 4, 9), (1, 2, 1, 1)):
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


def reductions() -> Iterator[Case]:
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


# Movement ------------------------------------------------------------------------------------------------------------

MOVABLE = ("float32", "float16", "int8", "int64", "bool", "float64", "uint16", "bfloat16")


def movement() -> Iterator[Case]:
    for dtype in MOVABLE:
        x = of_dtype(floats(2, 3, 4, 5), dtype)
        yield Case("Transpose", [x], {"perm": [0, 2, 3, 1]})
        yield Case("Concat", [x, x[:, :1]], {"axis": 1})
        yield Case("Reshape", [x, ints(6, -1)])
        yield Case("Slice", [x, ints(1), ints(9), ints(2), ints(2)])
        yield Case("Expand", [x[:, :1], ints(2, 3, 4, 5)])
        yield Case("Split", [x, ints(1, 3)], {"axis": 2}, outputs=2)
        yield Case("Identity", [x])
        yield Case("Pad", [x, ints(0, 1, 0, 2, 0, 0, 1, 0), Const(of_dtype(np.array(1.0), dtype))])
    yield from _reshapes()
    yield from _transposes()
    yield from _concats_and_splits()
    yield from _slices()
    yield from _pads()
    for shape, wanted in (
        ((3, 1), (3, 4)),
        ((1,), (2, 3)),
        ((2, 3, 4), (1,)),
        ((), (2, 2)),
        ((1, 3, 1), (2, 1, 3, 5)),
        ((1, 3), (0, 3)),
        ((2, 1, 3, 1), (2, 4, 3, 5)),
    ):
        yield Case("Expand", [floats(*shape), ints(*wanted)])


def _reshapes() -> Iterator[Case]:
    for wanted in ((-1,), (0, -1), (0, 0, 20), (5, 4, 3, 2), (1, 120), (2, 1, 3, 1, 4, 5)):
        yield Case("Reshape", [floats(2, 3, 4, 5), ints(*wanted)])
    yield Case("Reshape", [floats(0, 3), ints(3, 0)], {"allowzero": 1}, opset=14)
    yield Case("Reshape", [floats(0, 3), ints(0, 3)])
    yield Case("Reshape", [floats(), ints(1, 1)])
    for axis in (0, 1, 2, 4, -1):
        yield Case("Flatten", [floats(2, 3, 4, 5)], {"axis": axis}, opset=11)
    yield Case("Squeeze", [floats(1, 3, 1, 5), ints(0, -2)])
    yield Case("Squeeze", [floats(1, 3, 1, 5)])
    yield Case("Squeeze", [floats(1, 3, 1, 5)], {"axes": [2]}, opset=11)
    yield Case("Unsqueeze", [floats(3, 5), ints(0, -1)])
    yield Case("Unsqueeze", [floats(3, 5)], {"axes": [1]}, opset=11)
    yield Case("Unsqueeze", [floats(), ints(0)])


def _transposes() -> Iterator[Case]:
    import itertools

    for perm in itertools.permutations(range(4)):
        yield Case("Transpose", [floats(2, 3, 4, 5)], {"perm": list(perm)})
    for perm in itertools.permutations(range(3)):
        yield Case("Transpose", [floats(4, 1, 5)], {"perm": list(perm)})
    yield Case("Transpose", [floats(2, 3, 4, 5)])
    yield Case("Transpose", [floats(1, 7, 1, 5)], {"perm": [0, 2, 3, 1]})
    yield Case("Transpose", [floats(2, 3, 2, 1, 2, 3)], {"perm": [5, 0, 3, 2, 4, 1]})
    yield Case("Transpose", [floats(2, 3, 2, 4, 5)], {"perm": [0, 2, 3, 4, 1]})
    yield Case("Transpose", [floats(2, 0, 3)], {"perm": [2, 0, 1]})
    yield Case("Transpose", [floats()])
    yield Case("Transpose", [floats(6)])
    yield Case("Transpose", [floats(33, 65)])


def _concats_and_splits() -> Iterator[Case]:
    x = floats(2, 3, 4, 5)
    for axis in (0, 1, 2, 3, -1, -3):
        yield Case("Concat", [x, floats(2, 3, 4, 5, seed=1), x], {"axis": axis})
        yield Case("Concat", [x, Const(floats(2, 3, 4, 5, seed=1))], {"axis": axis})
    yield Case("Concat", [floats(2, 0, 3), floats(2, 4, 3), floats(2, 1, 3)], {"axis": 1})
    yield Case("Concat", [floats(3)], {"axis": 0})
    yield Case("Concat", [floats(2, 0), floats(2, 0)], {"axis": 1})
    for axis, sizes in ((0, (1, 1)), (1, (2, 1)), (2, (1, 0, 3)), (-1, (2, 3))):
        yield Case("Split", [x, ints(*sizes)], {"axis": axis}, outputs=len(sizes))
        yield Case("Split", [x], {"axis": axis, "split": list(sizes)}, opset=11, outputs=len(sizes))
    yield Case("Split", [x], {"axis": 2, "num_outputs": 3}, outputs=3)
    yield Case("Split", [floats(6)], {"num_outputs": 2}, outputs=2)
    yield Case("Split", [floats(6, 2)], outputs=2, opset=13)


def _slices() -> Iterator[Case]:
    x = floats(2, 7, 6, 5)
    big = (1 << 63) - 1
    for starts, ends, axes, steps in (
        ((1,), (5,), (1,), (1,)),
        ((-1,), (-big,), (1,), (-1,)),
        ((5,), (0,), (1,), (-2,)),
        ((0, 1), (big, -1), (2, 3), (2, 1)),
        ((-100,), (100,), (-1,), (3,)),
        ((3,), (3,), (2,), (1,)),
        ((4,), (1,), (2,), (1,)),
        ((100,), (0,), (1,), (-3,)),
        ((0, 0, 0, 0), (1, 2, 3, 4), (0, 1, 2, 3), (1, 1, 1, 1)),
        ((5, 4), (-big, -big), (2, 3), (-1, -1)),
    ):
        yield Case("Slice", [x, ints(*starts), ints(*ends), ints(*axes), ints(*steps)])
    yield Case("Slice", [x, ints(0, 2), ints(2, 5)])
    yield Case("Slice", [x, ints(1), ints(-1), None, ints(1)])
    yield Case("Slice", [x], {"starts": [1, 0], "ends": [5, 3], "axes": [1, 2]}, opset=9)
    yield Case("Slice", [x], {"starts": [1], "ends": [2]}, opset=7)
    yield Case("Slice", [x, *(Const([v], "int32") for v in (1, 6, 2, 2))])


def _pads() -> Iterator[Case]:
    x = floats(2, 3, 4, 5)
    for pads in (
        (0, 0, 1, 1, 0, 0, 1, 1),
        (1, 2, 3, 4, 4, 3, 2, 1),
        (0, 0, -1, -2, 0, 0, 0, 1),
        (0,) * 8,
        (0, -1, 0, 3, 0, 2, -1, -2),
    ):
        yield Case("Pad", [x, ints(*pads)])
        yield Case("Pad", [x, ints(*pads), Const(-2.5)])
    yield Case("Pad", [x, ints(1, 2), Const(np.float32(-np.inf)), ints(-1)])
    yield Case("Pad", [x, ints(1, 0, 2, 1), None, ints(2, 1)])
    yield Case("Pad", [x], {"pads": [0, 1, 0, 0, 2, 0, 0, 1], "value": 3.0}, opset=10)
    yield Case("Pad", [x], {"pads": [0, 0, 0, 0, 0, 0, 0, 2]}, opset=7)
    yield Case("Pad", [floats(0, 3), ints(1, 0, 1, 2), Const(4.0)])
    yield Case("Pad", [floats(3), ints(-3, 0)])


# Gathering, quantisation, conversion, resizing, transposed convolution ------------------------------------------------


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


CASTABLE = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "uint32", "int64", "bool")


def casts() -> Iterator[Case]:
    from onnx import helper

    for source in CASTABLE:
        for result in CASTABLE:
            if ("float" in source and result in ("int8", "uint8", "int16", "uint32")) or source == result:
                continue
            kind = helper.np_dtype_to_tensor_dtype(of_dtype(np.zeros(1), result).dtype)
            values = of_dtype(floats(2, 3, 4, 5, low=0.0 if "uint" in source else -3.0), source)
            yield Case("Cast", [values], {"to": kind})
    yield Case("Cast", [SPECIAL], {"to": 10})
    yield Case("Cast", [SPECIAL], {"to": 9})
    yield Case("CastLike", [floats(2, 3), Const(np.array([1], np.int64))])


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
    yield Case("Resize", [x, None, None, ints(10, 9)], {"axes": [3, 2], "mode": "linear"}, atol=1e-5)
    yield Case("Resize", [x, Const([1.0, 1.0, 2.0, 3.0])], {"mode": "nearest"}, opset=10)
    yield Case("Upsample", [x, Const([1.0, 1.0, 2.0, 3.0])], {"mode": "linear"}, opset=9, onnxruntime=False, atol=1e-5)
    yield Case("Upsample", [x], {"mode": "nearest", "scales": [1.0, 1.0, 2.0, 3.0]}, opset=7)


DECONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 5, 6), (3, 4, 3, 3), {}),
    ((2, 3, 5, 6), (3, 4, 2, 2), {"strides": [2, 2]}),
    ((1, 4, 5, 6), (4, 2, 3, 3), {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ((1, 3, 5, 6), (3, 4, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ((1, 3, 4, 4), (3, 2, 3, 2), {"dilations": [2, 3]}),
    ((1, 5, 4, 4), (5, 1, 3, 3), {"group": 5}),
    ((2, 3, 7), (3, 4, 3), {"strides": [2], "pads": [1, 0]}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
]


def transposed_convolutions() -> Iterator[Case]:
    for x, w, attrs in DECONVS:
        bias = Const(floats(w[1] * attrs.get("group", 1), seed=2))
        yield Case("ConvTranspose", [floats(*x), Const(floats(*w, seed=1))], attrs, of_largest=1e-5)
        yield Case("ConvTranspose", [floats(*x), Const(floats(*w, seed=1)), bias], attrs, of_largest=1e-5)


ALL: list[Case] = [
    *unary(), *binary(), *products(), *convolutions(), *pools(), *normalisations(), *reductions(), *movement(),
    *gathers(), *quantisations(), *casts(), *resizes(), *transposed_convolutions(),
]  # fmt: skip
