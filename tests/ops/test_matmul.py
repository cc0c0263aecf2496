"""Matrix products and Einsum."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.ops.harness import allowed, check, run_ours, sample, versions
from tinycomp.errors import ExecutionError
from tinycomp.ops import OPS
from tinycomp.symbolic import symbol


def test_matmul_in_every_version_and_dtype():
    for version in versions("MatMul", 7):
        for dtype in allowed("MatMul", version):
            check("MatMul", [sample(dtype, (2, 8), 1, 0, 2), sample(dtype, (8, 3), 2, 0, 2)], version=version)


def test_gemm_in_every_dtype():
    for dtype in allowed("Gemm", 13):
        operands = [sample(dtype, s, i, 0, 3) for i, s in enumerate([(3, 5), (5, 4), (4,)])]
        check("Gemm", operands, {"alpha": 2.0, "beta": 3.0}, 13)


def test_gemm_before_opset_7_broadcasts_on_request():
    a, b, c = sample("float32", (3, 5)), sample("float32", (5, 4)), sample("float32", (4,))
    got = run_ours("Gemm", [a, b, c], {"broadcast": 1}, 6)[0]
    np.testing.assert_array_equal(got, run_ours("Gemm", [a, b, c], {}, 7)[0])


def test_gemm_rejects_a_larger_c():
    a, b, c = sample("float32", (1, 5)), sample("float32", (5, 4)), sample("float32", (3, 4))
    with pytest.raises(ExecutionError, match=r"the bias does not broadcast.*shape \[1, 4\] or .*found float32\[3, 4\]"):
        run_ours("Gemm", [a, b, c])


def _node(op, shapes, result, **attrs):
    def value(shape):
        return SimpleNamespace(type=SimpleNamespace(shape=shape, dtype="float32"))

    return SimpleNamespace(op=op, inputs=[value(s) for s in shapes], outputs=[value(result)], attrs=attrs)


@pytest.mark.parametrize(
    ("node", "macs"),
    [
        (_node("MatMul", [(2, 3, 4), (4, 5)], (2, 3, 5)), 120),
        (_node("MatMul", [("N", 4), (4, 5)], ("N", 5)), 20 * symbol("N")),
        (_node("MatMul", [None, (4, 5)], None), 1),
        (_node("Gemm", [(3, 5), (5, 4)], (3, 4)), 60),
        (_node("Gemm", [(5, 3), (5, 4)], (3, 4), transA=1), 60),
    ],
)
def test_multiply_accumulate_counts(node, macs):
    assert OPS.find(node.op).macs(node) == macs


@pytest.mark.parametrize("seed", range(60))
def test_random_equations(seed):
    rng = np.random.default_rng(seed)
    sizes = dict(zip("abcdef", rng.integers(1, 5, 6).tolist(), strict=True))
    terms = ["".join(rng.choice(list(sizes), rng.integers(0, 4))) for _ in range(rng.integers(1, 4))]
    used = sorted(set("".join(terms)))
    right = "".join(rng.permutation(used)[: rng.integers(0, len(used) + 1)]) if used else ""
    equation = ",".join(terms) + "->" + right
    operands = [rng.standard_normal([sizes[c] for c in term]) for term in terms]
    got = run_ours("Einsum", operands, {"equation": equation})[0]
    np.testing.assert_allclose(got, np.einsum(equation, *operands), rtol=1e-9, atol=1e-9, err_msg=equation)


def test_einsum_in_every_dtype():
    for dtype in allowed("Einsum", 28):
        operands = [sample(dtype, (2, 3), 1, 0, 3), sample(dtype, (3, 4), 2, 0, 3)]
        want = operands[0].astype(np.float64) @ operands[1].astype(np.float64)
        got = run_ours("Einsum", operands, {"equation": "ij,jk->ik"})[0]
        assert got.dtype == operands[0].dtype
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-2)


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("ij,jk->ik->", 'malformed term "ik->"'), ("i.j,jk->ik", 'malformed term "i.j"'), ("ij->ij", "1 input terms"),
        ("ij,jk->im", 'bad output label "m"'), ("ij,jk->ii", 'bad output label "i"'), ("i1,jk->ik", "malformed term"),
        ("ijk,jk->ik", 'term "ijk"'), ("ij,kj->ik", '"j" of "ij,kj->ik" has two sizes; expected 4; found 3'),
    ],
)  # fmt: skip
def test_einsum_rejects_malformed_equations(equation, text):
    with pytest.raises(ExecutionError, match="Einsum") as caught:
        run_ours("Einsum", [np.ones((2, 3), "f"), np.ones((3, 4), "f")], {"equation": equation})
    assert text in str(caught.value)


def _einsum_node(equation, shapes):
    inputs = [SimpleNamespace(type=SimpleNamespace(shape=shape)) for shape in shapes]
    return SimpleNamespace(inputs=inputs, attrs={"equation": equation})


@pytest.mark.parametrize(
    ("node", "macs"),
    [
        (_einsum_node("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), 120),
        (_einsum_node("...ij,jk->...ik", [(7, 3, 4), (4, 5)]), 420),
        (_einsum_node("ij,jk->ik", [("N", 4), (4, 5)]), 20 * symbol("N")),
    ],
)
def test_einsum_multiply_accumulate_counts(node, macs):
    assert OPS.find("Einsum").macs(node) == macs
