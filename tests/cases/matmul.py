"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.cases.case import Case, Const
from tests.cases.values import floats

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
    for opset in (7, 9, 11):
        yield Case("Gemm", [floats(3, 5), Const(floats(5, 7)), Const(floats(7))], opset=opset, rtol=1e-4, atol=1e-5)
    yield Case("Gemm", [floats(0, 5), Const(floats(5, 7))])
    yield Case("Gemm", [floats(3, 0), Const(floats(0, 7)), Const(floats(7))])
    yield Case("Gemm", [floats(3, 5), Const(floats(5, 1)), Const(floats(1))], rtol=1e-4, atol=1e-5)


def edges() -> Iterator[Case]:
    """Many batch dimensions, determinants, inverses, sums over names, and what does not fit."""
    close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
    yield Case("MatMul", [floats(2, 3, 2, 4, 5), floats(2, 3, 2, 5, 3)], **close)
    yield Case("MatMul", [floats(2, 1, 2, 3, 4), floats(1, 3, 1, 4, 2)], **close)
    yield Case("MatMul", [floats(3, 4), floats(5, 3)], refused="MatMul")
    yield Case("MatMul", [floats(3, 4), Const(floats(5, 3))], refused="MatMul")
    yield Case("MatMul", [floats(2, 3, 4), floats(3, 4, 3)], refused="MatMul")
    yield Case("MatMul", [floats(), floats(3)], refused="MatMul")
    yield Case("Gemm", [floats(3, 4), floats(5, 3)], refused="Gemm")
    yield Case("Gemm", [floats(3, 4), Const(floats(4, 5)), Const(floats(4))], refused="Gemm")
    for shape in ((3, 3), (2, 3, 3), (1, 1), (2, 2, 4, 4), (0, 2, 2)):
        yield Case("Det", [floats(*shape)], **close)
        yield Case("Inverse", [floats(*shape)], domain="com.microsoft", opset=1, reference=False, rtol=1e-3, atol=1e-3)
    yield Case("Det", [floats(3, 4)], refused="Det")
    yield Case("Inverse", [floats(3, 4)], domain="com.microsoft", opset=1, reference=False, refused="Inverse")
    for equation, *shapes in (
        ("ij,jk->ik", (3, 4), (4, 5)), ("...ii->...i", (2, 3, 3)), ("bij,bjk", (2, 3, 4), (2, 4, 5)),
        ("i,j->ij", (3,), (4,)), ("ij->", (3, 4)), ("bhqd,bhkd->bhqk", (2, 2, 3, 4), (2, 2, 5, 4)),
        ("ij->ji", (2, 3)), ("ii->i", (3, 3)), ("ii", (3, 3)), ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 6)),
        ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)), ("b...->...", (2, 3, 4)), ("...i,...i->i", (2, 3, 4), (1, 4)),
        ("ii,ij->j", (3, 3), (3, 2)), ("...,...->...", (2, 3), (3,)), ("ij,kl->", (2, 3), (4, 5)),
        ("abc,abd,abe->acde", (2, 3, 2), (2, 3, 4), (2, 3, 1)), ("i,i,i->i", (3,), (3,), (3,)), ("i->", (0,)),
        (",ij->ji", (), (2, 3)), ("bac,bad->dbc", (2, 3, 4), (2, 3, 5)), (" i j , j k -> i k ", (2, 3), (3, 4)),
        ("ij,jk->ik", (0, 3), (3, 4)),
        ("abc,cd,bd,a->d", (3, 4, 5), (5, 6), (4, 6), (3,)), ("nctv,vw->nctw", (2, 3, 4, 5), (5, 5)),
        ("iji->j", (4, 3, 4)), ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)), ("...ij->...ji", (2, 3, 4)),
    ):  # fmt: skip
        yield Case("Einsum", [floats(*s, seed=i) for i, s in enumerate(shapes)], {"equation": equation}, **close)
    yield Case("Einsum", [floats(3, 4), floats(5, 3)], {"equation": "ij,jk->ik"}, refused="Einsum")


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "Gemm",
        [floats(3, 4), Const(floats(4, 5)), Const(floats(3, 1))],
        of_largest=1e-05,
        host="C of shape (3, 1) is neither a row nor full",
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from products()
    yield from edges()
    yield from declined()
