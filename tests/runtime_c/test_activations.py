from __future__ import annotations

import math

import numpy as np
import pytest

from tests.runtime_c.helpers import OWN_BLOCKS, Weight, run_single

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


# code: (definition in double precision, a, b)
ACTIVATIONS = {
    0: (lambda x: x, 0, 0),
    1: (lambda x: np.maximum(x, 0), 0, 0),
    2: (lambda x: np.clip(x, -0.5, 6), -0.5, 6),
    3: (lambda x: np.where(x < 0, 0.125 * x, x), 0.125, 0),
    4: (sigmoid, 0, 0),
    5: (np.tanh, 0, 0),
    6: (lambda x: x * sigmoid(x), 0, 0),
    7: (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), 0, 0),
    8: (lambda x: np.clip(0.25 * x + 0.5, 0, 1), 0.25, 0.5),
    9: (lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), 0, 0),
    10: (gelu_tanh, 0, 0),
}


def activate(x: np.ndarray, code: int, isa: str) -> np.ndarray:
    """Run an activation as the epilogue of a product with the identity."""
    _, a, b = ACTIVATIONS[code]
    params = {
        "m": x.shape[0],
        "n": x.shape[1],
        "k": 1,
        "lda": 1,
        "ldc": x.shape[1],
        "ldr": x.shape[1],
        "trans_b": 0,
        **OWN_BLOCKS,
    }
    params |= {"activation": code, "activation_a": float(a), "activation_b": float(b)}
    zero, one = np.zeros((x.shape[0], 1), np.float32), Weight(np.ones((1, x.shape[1]), np.float32))
    return run_single("gemm_f32", [zero, one, None, x], params, ("float32", x.shape), isa)


@pytest.mark.parametrize("code", ACTIVATIONS)
def test_activation_equals_its_definition(code, isa):
    points = np.concatenate([np.linspace(-12, 12, 4001), np.geomspace(1e-6, 80, 500), -np.geomspace(1e-6, 80, 500)])
    x = points.astype(np.float32).reshape(-1, 1667)
    expected = ACTIVATIONS[code][0](x.astype(np.float64))
    np.testing.assert_allclose(activate(x, code, isa), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("code", ACTIVATIONS)
def test_nan_stays_nan(code, isa):
    x = np.full((3, 19), np.nan, np.float32)
    assert np.isnan(activate(x, code, isa)).all()


@pytest.mark.parametrize(
    ("code", "low", "high"),
    [(0, -np.inf, np.inf), (1, 0, np.inf), (2, -0.5, 6), (4, 0, 1), (5, -1, 1), (8, 0, 1)],
)
def test_infinities(code, low, high, isa):
    x = np.array([[-np.inf, np.inf] * 9], np.float32)
    np.testing.assert_array_equal(activate(x, code, isa), np.array([[low, high] * 9], np.float32))
