"""Element-wise operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import ALONE, SPECIAL, floats, integers, of_dtype

ODD = [(), (1,), (7,), (3, 5), (2, 3, 5), (1, 1, 1), (2, 3, 4, 5), (1, 9, 1, 7), (2, 1, 3, 2, 5), (0, 3), (2, 3, 0, 4)]
UNIT = {"Asin", "Acos", "Atanh"}
POSITIVE = {"Log", "Sqrt", "Acosh"}
PLAIN_UNARY = [
    "Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Erf", "Softplus", "Softsign",
    "Elu", "Selu", "Celu", "Mish", "ThresholdedRelu", "Shrink", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh",
    "Cosh", "Asinh", "Acosh", "Atanh", "Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid",
    "Gelu",
]  # fmt: skip
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
        yield Case(op, [SPECIAL], rtol=rtol, onnxruntime=False, reference=op != "Clip")
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
        yield Case("Clip", [floats(2, 3, 5), low_bound, high_bound], opset=11)
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
    yield Case("Pow", [SPECIAL, Const(2.0)])
    yield Case("Pow", [floats(3, 1), Const(np.full((2, 3, 4), 2, np.float32))])
    yield Case("Pow", [floats(2, 3, 4), Const(np.int64(2))])
    yield Case("Pow", [integers(2, 3, dtype="int32"), Const(2.0)])
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
    for op in ("Sum", "Min", "Max", "Mean"):
        yield Case(op, [floats(2, 3), floats(3, seed=1), floats(2, 1, seed=2)])
        yield Case(op, [floats(3), floats(2, 1, seed=1), floats(5, 1, 1, seed=2), floats(1, seed=3)])
        yield Case(op, [floats(2, 3, 4, 5), floats(1, 3, 1, 1, seed=1), floats(2, 3, 4, 5, seed=2)], opset=8)
    yield Case("PRelu", [floats(2, 3, 4, 5), Const(floats(3, 1, 1, seed=1))])
    yield Case("PRelu", [floats(2, 3, 4, 5), floats(1, 3, 1, 1, seed=1)])
    yield Case("PRelu", [floats(2, 3), Const(floats(1, seed=1))], opset=9)
    for dtype in ("float32", "int8", "float16", "int64", "bool", "float64", "bfloat16"):
        yield from _where(dtype)


FLOATS = ("float32", "float64", "float16", "bfloat16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


def numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    """Return numbers between -9 and 9, or 0 and 18, among them the limits of an integer type."""
    if dtype in FLOATS:
        return of_dtype(floats(*shape, seed=seed), dtype)
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    values = rng.integers(0 if info.min == 0 else -9, 18 if info.min == 0 else 9, shape).astype(dtype)
    if values.size >= 3:
        values.reshape(-1)[:3] = info.min, info.max, 0
    return values


def dtypes() -> Iterator[Case]:
    """Every dtype that ONNX allows; onnxruntime has only some, and divides by zero as it likes."""
    for dtype in (*FLOATS, *SIGNED, *UNSIGNED):
        a, b = numbers(dtype, 2, 3, 40), numbers(dtype, 3, 1, seed=1)
        operators = ["Add", "Sub", "Mul", "Min", "Max", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
        for op in operators:
            yield Case(op, [a, b], onnxruntime=False)
        yield Case("Div", [a, b], onnxruntime=False, rtol=0 if "int" in dtype else 1e-5)
        yield Case("Abs", [a], onnxruntime=False)
        yield Case("Mod", [a, b], {"fmod": 1}, onnxruntime=False)
        if dtype != "bfloat16":
            yield Case("Mod", [a, b], onnxruntime=False)
        for low, high in ((None, None), (Const(b[0]), None), (b[1], numbers(dtype, seed=3)), (None, Const(b[2]))):
            yield Case("Clip", [a, low, high], onnxruntime=False)
        if dtype not in UNSIGNED:
            for op in ("Neg", "Sign", "Relu"):
                yield Case(op, [a], onnxruntime=False)
    for dtype in (*SIGNED, *UNSIGNED):
        a, b = numbers(dtype, 2, 3, 40), numbers(dtype, 3, 1, seed=1)
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            yield Case(op, [a, b], onnxruntime=False)
        yield Case("BitwiseNot", [a])
    for dtype in UNSIGNED:
        for direction in ("LEFT", "RIGHT"):
            amounts = np.arange(80, dtype=dtype)
            operands = [np.full(80, np.iinfo(dtype).max, dtype), amounts]
            yield Case("BitShift", operands, {"direction": direction}, onnxruntime=False)
    for dtype in FLOATS:
        for op in PLAIN_UNARY:
            if (op == "Celu" and dtype != "float32") or (op == "Shrink" and dtype == "bfloat16"):
                continue  # ONNX does not define them
            low, high = (-0.9, 0.9) if op in UNIT else (1.1, 4.0) if op in POSITIVE else (-3.0, 3.0)
            loose = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, LOOSE.get(op, 1e-5))
            yield Case(
                op,
                [of_dtype(floats(3, 50, low=low, high=high), dtype)],
                opset=22,
                rtol=loose,
                onnxruntime=False,
                reference=False,
            )
        yield Case("Swish", [of_dtype(floats(3, 50), dtype)], opset=24, rtol=8e-3, onnxruntime=False)
        yield Case("Swish", [of_dtype(floats(3, 50), dtype)], {"alpha": 0.5}, opset=24, rtol=8e-3, onnxruntime=False)
        yield Case("Mean", [of_dtype(floats(3, 50, seed=s), dtype) for s in range(3)], **ALONE)
        yield Case("Sum", [of_dtype(floats(3, 50, seed=s), dtype) for s in range(3)], **ALONE)
        for op, special in (("IsNaN", SPECIAL), ("IsInf", SPECIAL)):
            yield Case(op, [of_dtype(special, dtype)], opset=20, onnxruntime=False)
    for signs in ({"detect_negative": 0}, {"detect_positive": 0}, {"detect_negative": 0, "detect_positive": 0}):
        yield Case("IsInf", [SPECIAL], signs)
    yield Case("Not", [integers(3, 4, low=0, high=2, dtype="bool")])
    yield Case("Equal", [integers(3, 4, low=0, high=2, dtype="bool"), integers(4, low=0, high=2, dtype="bool")])
    yield from _powers()


def _powers() -> Iterator[Case]:
    base, exponent = np.arange(-6, 6), np.array([0, 1, 2, 3, 5, 2, 1, 4, 3, 2, 0, 1])
    for of in ("int32", "int64"):
        for to in ("int32", "int64"):
            yield Case("Pow", [base.astype(of), exponent.astype(to)], onnxruntime=False)
        yield Case("Pow", [base.astype(of), exponent.astype(np.float32)], onnxruntime=False)
    for of in FLOATS:
        for to in ("int32", "int64", "float32", "float64"):
            operands = [of_dtype(base.astype(np.float32), of), exponent.astype(to)]
            yield Case("Pow", operands, onnxruntime=False, rtol=1e-2 if of == "bfloat16" else 1e-3)


def _where(dtype: str) -> Iterator[Case]:
    a, b = of_dtype(floats(2, 3, 4, 5), dtype), of_dtype(floats(4, 1, seed=1), dtype)
    yield Case("Where", [integers(2, 3, 4, 5, low=0, high=2, dtype="bool"), a, b])
    yield Case("Where", [integers(3, 1, 1, low=0, high=2, dtype="bool"), b, a])


def edges() -> Iterator[Case]:
    """Numbers at the border of what an operator is defined for, and shapes that do not fit."""
    zeros, one = np.array([-0.0, 0.0], np.float32), np.array([-np.inf, -np.inf, -0.0, -0.0], np.float32)
    yield Case("Pow", [one, np.array([0.5, 2.5, 0.5, 1.5], np.float32)], onnxruntime=False)
    yield Case("Pow", [one, Const(0.5)], **ALONE)  # numpy and onnxruntime take the square root
    yield Case("Div", [integers(3), np.array([1, 0, 2])], **ALONE)
    for op in ("Add", "Max", "Equal", "Mod", "Where"):
        pair = [floats(2, 3), floats(2, 4)]
        operands = (
            [np.array([[True]]), *pair] if op == "Where" else [integers(2, 3), integers(2, 4)] if op == "Mod" else pair
        )
        yield Case(op, operands, refused=op)
    yield Case("Reciprocal", [zeros])
    for op in ("Sum", "Min", "Max", "Mean"):
        yield Case(op, [floats(3)])
    yield Case("Sum", [floats(2, 1), floats(3), floats(1, 1)])
    yield Case("Clip", [floats(3), None, np.array(0.5, "f4")])
    yield Case("Clip", [floats(3), np.array(-0.5, "f4"), np.array(0.5, "f4")])


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case("Add", [floats(*(1,) * 7, 2, 3), floats(*(1,) * 7, 2, 3)], host='"x0" has rank 9, more than 8')
    yield Case("Pow", [integers(3), integers(3, low=0, dtype="uint64")], onnxruntime=False, host="exponents of uint64")


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from unary()
    yield from binary()
    yield from dtypes()
    yield from edges()
    yield from declined()
