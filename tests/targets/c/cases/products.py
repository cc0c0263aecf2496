"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator

from tests.targets.c.cases.values import floats
from tests.targets.c.harness import Case, Const

PRODUCTS = [
    ((5,), (5,)), ((5,), (5, 3)), ((3, 5), (5,)), ((3, 5), (5, 7)), ((1, 1), (1, 1)), ((2, 3, 5), (5, 7)),
    ((2, 3, 5), (2, 5, 7)), ((2, 3, 5), (1, 5, 7)), ((1, 3, 5), (2, 5, 7)), ((4, 2, 3, 5), (4, 2, 5, 7)),
    ((4, 1, 3, 5), (1, 2, 5, 7)), ((3, 5), (2, 5, 7)), ((2, 3, 5), (5,)), ((5,), (2, 5, 3)), ((0, 5), (5, 3)),
    ((3, 0), (0, 4)), ((2, 3, 5), (2, 5, 0)), ((2, 2, 2, 3, 5), (5, 4)), ((17, 33), (33, 65)), ((1, 129), (129, 31)),
    ((2, 5, 3, 7), (7, 4)), ((2, 5, 3, 7), (5, 7, 4)), ((2, 3, 2, 4, 5), (2, 3, 2, 5, 4)),
    ((2, 1, 2, 3, 4), (1, 3, 1, 4, 2)), ((2, 1, 3, 1, 3, 4), (1, 2, 1, 4, 4, 2)),
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
