"""Activations beyond those of one operand, which are among the element-wise rows."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cases.case import Case, Const
from tests.cases.values import SPECIAL, floats, of_dtype

SHAPES = [(), (1,), (7,), (2, 3, 4), (2, 3, 4, 5), (0, 3)]


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    for shape in SHAPES:
        yield Case("Swish", [floats(*shape)], {"alpha": 0.5}, 24)
        yield Case("SwiGLU", [floats(*shape), floats(*shape, seed=1)], opset=28)
        yield Case("SwiGLU", [floats(*shape), floats(*shape, seed=1)], {"alpha": 1.5}, 28)
        yield Case("PRelu", [floats(*shape), Const(0.25)])
        if shape:
            yield Case("Hardmax", [floats(*shape)], {"axis": 0}, onnxruntime=0 not in shape)
            if len(shape) > 1:
                yield Case("Hardmax", [floats(*shape)], opset=11, onnxruntime=0 not in shape, reference=False)
    yield Case("PRelu", [floats(2, 3, 4, 5), Const(floats(3, 1, 1, seed=1))])
    yield Case("PRelu", [floats(2, 3, 4, 5), floats(5, seed=1)])
    yield Case("PRelu", [floats(2, 3), floats(2, 4)], refused="PRelu")
    yield Case("PRelu", [of_dtype(floats(2, 3), "int32"), of_dtype(floats(3), "int32")])
    yield Case("Swish", [SPECIAL], opset=24)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield Case(op, [floats(2, 3)], {"axis": 2}, refused="axis")
        for dtype, rtol in (("float64", 1e-5), ("float16", 2e-3), ("bfloat16", 2e-2)):
            yield Case(op, [of_dtype(floats(2, 3), dtype)], {"axis": 0}, rtol=rtol, atol=rtol, onnxruntime=False)
