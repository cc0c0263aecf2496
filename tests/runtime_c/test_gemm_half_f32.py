"""Products with constants that half precision holds exactly: the bits are those of gemm_f32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, run_single
from tests.runtime_c.test_gemm_f32 import SHAPES
from tinycomp.errors import TargetError
from tinycomp.targets.c.codegen.element_program import TYPES

HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def product(weights, a, params, isa, pool, bias=None, residual=None, columns=None):
    """Return what the kernel for weights of this dtype gives."""
    half = weights.dtype != np.float32
    kernel = "gemm_half_f32" if half else "gemm_f32"
    own = {"type": TYPES[str(weights.dtype)]} if half else OWN_BLOCKS
    stored = Weight(weights.T if params["trans_b"] else weights)
    shape = (params["m"], params["ldc"] if columns is None else columns)
    return run_single(kernel, [a, stored, bias, residual], params | own, ("float32", shape), isa, pool)


@pytest.mark.parametrize("shape", [*SHAPES, (1, 300, 40), (2, 256, 33), (193, 130, 1100)], ids=str)
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("half", HALVES)
def test_the_bits_are_those_of_float32(shape, trans_b, half, isa, pool, rng):
    m, n, k = shape
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n)).astype(HALVES[half])
    bias, residual = Weight(rng.standard_normal(n, np.float32)), rng.standard_normal((m, n), np.float32)
    params = {"m": m, "n": n, "k": k, "lda": k, "ldc": n, "ldr": n, "trans_b": trans_b, **NO_ACTIVATION}
    y = product(b, a, params, isa, pool, bias, residual)
    np.testing.assert_array_equal(y, product(b.astype(np.float32), a, params, isa, pool, bias, residual))


@pytest.mark.parametrize("half", HALVES)
def test_every_finite_number_is_widened(half, isa, pool):
    every = np.arange(1 << 16, dtype=np.uint16).view(HALVES[half])
    infinite = 0x7C00 if half == "float16" else 0x7F80
    finite = (np.arange(1 << 16) & infinite) < infinite
    b = every[finite][None]
    params = {"m": 1, "n": b.size, "k": 1, "lda": 1, "ldc": b.size, "ldr": 0, "trans_b": 0, **NO_ACTIVATION}
    for rows in (1, 6):
        y = product(b, np.ones((rows, 1), np.float32), params | {"m": rows}, isa, pool)
        np.testing.assert_array_equal(y, np.tile(b.astype(np.float32), (rows, 1)))


@pytest.mark.parametrize("m", [1, 3, 20])
def test_row_strides_and_activations(m, isa, pool, rng):
    a, b = rng.standard_normal((m, 50), np.float32), rng.standard_normal((30, 70)).astype(np.float16)
    params = {"m": m, "n": 70, "k": 30, "lda": 50, "ldc": 83, "ldr": 0, "trans_b": 0, **NO_ACTIVATION, "activation": 1}
    y = product(b, a, params, isa, pool)
    np.testing.assert_allclose(y[:, :70], np.maximum(a[:, :30] @ b.astype(np.float32), 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y[:, 70:], 77)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"type": TYPES["float32"]}, "is no half precision"),
        ({"trans_b": 2}, "trans_b must be 0 or 1"),
        ({"lda": 4}, "a row stride is shorter than its row"),
        ({"k": 6, "lda": 6}, "operand 2 ends at byte"),
        ({"k": 1 << 62, "lda": 1 << 62}, "overflow|too large|beyond"),
    ],
)
def test_refused(changes, text, isa):
    params = {"m": 2, "n": 3, "k": 5, "lda": 5, "ldc": 3, "ldr": 0, "trans_b": 0, **NO_ACTIVATION}
    operands = [np.zeros((2, 5), np.float32), Weight(np.zeros((5, 3), np.float16)), None, None]
    with pytest.raises(TargetError, match=text):
        run_single("gemm_half_f32", operands, params | {"type": TYPES["float16"]} | changes, ("float32", (2, 3)), isa)
