from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tests.runtime_c.quantized import RESULTS, TYPES, activations
from tinycomp.errors import TargetError

# batch, m, n, k
SHAPES = [
    ((1, 1), 1, 1, 1),
    ((2, 3), 5, 33, 17),
    ((1, 2), 40, 16, 64),
    ((1, 1), 400, 21, 31),
    ((1, 1), 7, 9, 2050),
    ((0, 2), 3, 4, 5),
    ((1, 1), 0, 4, 5),
    ((1, 1), 3, 0, 5),
    ((1, 1), 3, 4, 0),
]
KINDS = {name: RESULTS[name] for name in ("uint8", "fixed point", "sums", "float")}


def matmul_params(result, batch, m, n, k, x, w):
    """The parameters for row-major operands."""
    strides = {"x": (m * k, k), "w": (k * n, n), "y": (m * n, n)}
    params = {"batch0": batch[0], "batch1": batch[1], "m": m, "n": n, "k": k, "x_column": 1, "w_column": 1}
    for name, (matrix, row) in strides.items():
        params |= {f"{name}_batch0": batch[1] * matrix, f"{name}_batch1": matrix, f"{name}_row": row}
    own = {"x_type": TYPES[x.dtype.name], "w_type": TYPES[w.dtype.name], "w_zeros": 1}
    shared = {name: result.params()[name] for name in ("type", "rule", "y_zero_point", "low", "high")}
    return params | own | shared


def numbers(rng, dtype, *shape):
    return activations(rng, *shape).view(dtype)


def exact(x, w, x_zero, w_zero):
    left, right = x.astype(np.int64) - x_zero.astype(np.int64), w.astype(np.int64) - w_zero.astype(np.int64)
    return left @ right


@pytest.mark.parametrize("result", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matmul_is_exact(shape, result, isa, pool, rng):
    batch, m, n, k = shape
    result = KINDS[result]
    x, w = numbers(rng, np.uint8, *batch, m, k), numbers(rng, np.int8, *batch, k, n)
    x_zero, w_zero = np.array([200], np.uint8), np.array([-100], np.int8)
    sums = exact(x, w, x_zero, w_zero)
    factor = result.factors(rng, sums.reshape(-1, 1))
    operands = [x, w, x_zero, w_zero, None if result.type == "int32" else factor]
    y = run_single("qmatmul", operands, matmul_params(result, *shape, x, w), (result.type, sums.shape), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factor))


@pytest.mark.parametrize("types", [("uint8", "uint8"), ("int8", "int8"), ("int8", "uint8")], ids=str)
def test_types_and_zero_points_of_columns(types, isa, pool, rng):
    result = KINDS["sums"]
    x, w = numbers(rng, types[0], 1, 1, 19, 33), numbers(rng, types[1], 1, 1, 33, 21)
    x_zero, w_zero = numbers(rng, types[0], 1), numbers(rng, types[1], 21)
    params = matmul_params(result, (1, 1), 19, 21, 33, x, w) | {"w_zeros": 21}
    y = run_single("qmatmul", [x, w, x_zero, w_zero, None], params, ("int32", (1, 1, 19, 21)), isa, pool)
    np.testing.assert_array_equal(y, exact(x, w, x_zero, w_zero))


def test_transposed_and_shared_operands(isa, pool, rng):
    result = replace(KINDS["uint8"], zero_point=7)
    x, w = numbers(rng, np.uint8, 3, 25, 11), numbers(rng, np.uint8, 30, 25)  # x[batch, k, m], w[n, k] for all batches
    params = matmul_params(result, (1, 3), 11, 30, 25, x, w) | {"x_row": 1, "x_column": 11, "w_batch1": 0}
    params |= {"w_row": 1, "w_column": 25}
    sums = exact(np.swapaxes(x, 1, 2), w.T, np.array(0), np.array(0))
    factor = np.array([200 / sums.max()], np.float32)
    y = run_single("qmatmul", [x, w, None, None, factor], params, ("uint8", sums.shape), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factor))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x_type": 6}, "types 6 and 5 cannot be multiplied here"),
        ({"w_zeros": 3}, "3 zero points do not fit 4 columns"),
        ({"type": 5}, "only sums need no factors"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(wrong, message, rng):
    x, w = numbers(rng, np.uint8, 1, 1, 2, 3), numbers(rng, np.uint8, 1, 1, 3, 4)
    params = matmul_params(KINDS["sums"], (1, 1), 2, 4, 3, x, w) | wrong
    with pytest.raises(TargetError, match=message):
        run_single("qmatmul", [x, w, None, None, None], params, ("int32", (1, 1, 2, 4)), "scalar")
