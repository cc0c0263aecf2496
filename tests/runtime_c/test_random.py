"""Random numbers: those of numpy's generator, and normal ones as the functions of the C library make them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tinycomp.ops.creation import key_of_seed
from tinycomp.runtime.native.library import lib

TYPES = {"float32": lib.TC_TYPE_F32, "float64": lib.TC_TYPE_F64}
SEED = 4.5


def draw(distribution: int, count: int, dtype: str, a: float, b: float, isa: str, pool=None) -> np.ndarray:
    params = {"count": count, "type": TYPES[dtype], "distribution": distribution, "a": a, "b": b}
    return run_single("random", [key_of_seed(SEED)], params, (dtype, (count,)), isa, pool)


def uniform(count: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(key=key_of_seed(SEED))).random(count)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("count", [0, 1, 33, 5003])
def test_uniform_numbers(dtype, count, isa, pool):
    y = draw(lib.TC_RANDOM_UNIFORM, count, dtype, -1.5, 2.25, isa, pool)
    np.testing.assert_array_equal(y, (-1.5 + 3.75 * uniform(count)).astype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (3.0, 0.25), (-1.0, 0.0), (0.0, math.inf)])
def test_normal_numbers(dtype, mean, scale, isa, pool):
    pairs = uniform(2 * 5003).reshape(-1, 2).tolist()
    normal = np.array([math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v) for u, v in pairs])
    y = draw(lib.TC_RANDOM_NORMAL, 5003, dtype, mean, scale, isa, pool)
    expected = (mean + scale * normal).astype(dtype)
    relative, absolute = (0, 0) if dtype == "float32" else (1e-14, 1e-15)
    np.testing.assert_allclose(y, expected, relative, absolute)
