from __future__ import annotations

import math

import numpy as np
import pytest

from tests.runtime_c.element import UNARY, run_steps, step
from tests.runtime_c.test_activations import ACTIVATIONS, erf

# name: (code, definition in double precision, a, b, arguments it is defined for, units in the last place)
FUNCTIONS = {
    "abs": (32, np.abs, 0, 0, (-80, 80), 0),
    "neg": (33, np.negative, 0, 0, (-80, 80), 0),
    "exp": (34, np.exp, 0, 0, (-103, 88), 2),
    "log": (35, np.log, 0, 0, (1e-45, 1e38), 2),
    "sqrt": (36, np.sqrt, 0, 0, (0, 1e38), 0.51),
    "reciprocal": (37, np.reciprocal, 0, 0, (1e-3, 80), 0.51),
    "floor": (38, np.floor, 0, 0, (-80, 80), 0),
    "ceil": (39, np.ceil, 0, 0, (-80, 80), 0),
    "round": (40, np.rint, 0, 0, (-80, 80), 0),
    "sign": (41, np.sign, 0, 0, (-80, 80), 0),
    "erf": (42, erf, 0, 0, (-5, 5), 6),
    "softplus": (43, lambda x: np.logaddexp(0, x), 0, 0, (-80, 80), 4),
    "softsign": (44, lambda x: x / (1 + np.abs(x)), 0, 0, (-80, 80), 2),
    "elu": (45, lambda x: np.where(x < 0, 0.75 * np.expm1(x), x), 0.75, 0, (-80, 80), 4),
    "selu": (46, lambda x: 1.25 * np.where(x < 0, 0.75 * np.expm1(x), x), 0.75, 1.25, (-80, 80), 5),
    "celu": (47, lambda x: np.where(x < 0, 0.5 * np.expm1(x / 0.5), x), 0.5, 0, (-80, 80), 4),
    "mish": (48, lambda x: x * np.tanh(np.logaddexp(0, x)), 0, 0, (-80, 80), 8),
    "thresholded relu": (49, lambda x: np.where(x > 0.5, x, 0), 0.5, 0, (-80, 80), 0),
    "shrink": (50, lambda x: np.where(x < -2, x + 0.5, np.where(x > 2, x - 0.5, 0)), 2, 0.5, (-80, 80), 0.51),
    "sin": (51, np.sin, 0, 0, (-1e5, 1e5), 2),
    "cos": (52, np.cos, 0, 0, (-1e5, 1e5), 2),
    "tan": (53, np.tan, 0, 0, (-1e5, 1e5), 4),
    "asin": (54, np.arcsin, 0, 0, (-1, 1), 3),
    "acos": (55, np.arccos, 0, 0, (-1, 1), 2),
    "atan": (56, np.arctan, 0, 0, (-30, 30), 2),
    "sinh": (57, np.sinh, 0, 0, (-30, 30), 2),
    "cosh": (58, np.cosh, 0, 0, (-30, 30), 2),
    "asinh": (59, np.arcsinh, 0, 0, (-30, 30), 2),
    "acosh": (60, np.arccosh, 0, 0, (1, 30), 2),
    "atanh": (61, np.arctanh, 0, 0, (-0.99, 0.99), 2),
    "affine": (62, lambda x: 0.75 * x + 0.5, 0.75, 0.5, (0, 80), 1),
    "scaled tanh": (63, lambda x: 1.25 * np.tanh(0.75 * x), 1.25, 0.75, (-30, 30), 8),
}


def run(x: np.ndarray, code: int, isa: str, pool=None, a: float = 0.0, b: float = 0.0) -> np.ndarray:
    return run_steps([x], [step(UNARY, code, "float32", 0, a=a, b=b)], "float32", isa, pool)


def points(low: float, high: float) -> np.ndarray:
    """Return arguments that are dense near zero as well as spread over the whole range; an odd number of them."""
    even = np.linspace(low, high, 6001)
    fine = np.geomspace(1e-6, max(abs(low), abs(high)), 1500)
    x = np.concatenate([even, fine, -fine, np.geomspace(max(low, 1e-45), high, 1500)]).astype(np.float32)
    return x[(x >= np.float32(low)) & (x <= np.float32(high))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unary_equals_its_definition(name, isa, pool):
    code, function, a, b, domain, ulps = FUNCTIONS[name]
    x = points(*domain)
    expected = np.asarray(function(x.astype(np.float64)), np.float64)
    error = np.abs(run(x, code, isa, pool, a, b) - expected) / np.spacing(np.abs(expected).astype(np.float32))
    assert error.max() <= ulps, f"{error.max()} ulp at {x[error.argmax()]}"


@pytest.mark.parametrize("code", [code for code in ACTIVATIONS if code != 0])
def test_activations(code, isa, pool):
    x = points(-30, 30)
    function, a, b = ACTIVATIONS[code]
    y = run(x, code, isa, pool, a, b)
    np.testing.assert_allclose(y, function(x.astype(np.float64)), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 15, 17, 2048, 2049, 50_001])
def test_counts(count, isa, pool, rng):
    x = rng.standard_normal(count, np.float32)
    np.testing.assert_array_equal(run(x, 32, isa, pool), np.abs(x))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "thresholded relu" and name != "shrink"])
def test_nan_stays_nan(name, isa):
    code, _, a, b, _, _ = FUNCTIONS[name]
    assert np.isnan(run(np.full(19, np.nan, np.float32), code, isa, None, a, b)).all()


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("log", [0, -1, np.inf], [-np.inf, np.nan, np.inf]),
        ("exp", [-np.inf, np.inf, 0], [0, np.inf, 1]),
        ("softplus", [-np.inf, np.inf, 0], [0, np.inf, math.log(2)]),
        ("elu", [-np.inf, np.inf, 0], [-0.75, np.inf, 0]),
        ("round", [0.5, 1.5, -2.5], [0, 2, -2]),
        ("sqrt", [-1, np.inf, 0], [np.nan, np.inf, 0]),
        ("mish", [np.inf, 0, 100], [np.inf, 0, 100]),
        ("sin", [np.inf, -np.inf, 0], [np.nan, np.nan, 0]),
        ("cos", [np.inf, -np.inf, 0], [np.nan, np.nan, 1]),
        ("tan", [np.inf, -np.inf, 0], [np.nan, np.nan, 0]),
        ("asin", [1.5, -np.inf, 1], [np.nan, np.nan, np.pi / 2]),
        ("acos", [-1.5, 1, -1], [np.nan, 0, np.pi]),
        ("atan", [-np.inf, np.inf, 0], [-np.pi / 2, np.pi / 2, 0]),
    ],
)
def test_limits(name, x, y, isa):
    code, _, a, b, _, _ = FUNCTIONS[name]
    np.testing.assert_array_equal(run(np.array(x, np.float32), code, isa, None, a, b), np.array(y, np.float32))


@pytest.mark.parametrize("name", ["sin", "tan", "asin", "atan"])
def test_odd_functions_keep_the_sign_of_zero(name, isa):
    y = run(np.array([-0.0, 0.0], np.float32), FUNCTIONS[name][0], isa)
    np.testing.assert_array_equal(np.signbit(y), [True, False])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_arguments_of_any_size_are_reduced(name, isa, rng):
    """Among small arguments are some beyond what vectors reduce, infinity and NaN: each gets its own result."""
    code, function, _, _, _, ulps = FUNCTIONS[name]
    x = rng.standard_normal(70).astype(np.float32)
    x[::7] = [1.1e5, -3e6, 1e10, -1e22, 3e38, -99999.9, np.inf, np.nan, -1e30, 2.0**40]
    with np.errstate(invalid="ignore"):
        expected = function(x.astype(np.float64))
    y = run(x, code, isa)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    sound = ~np.isnan(y)
    error = np.abs(y - expected)[sound] / np.spacing(np.abs(expected[sound]).astype(np.float32))
    assert error.max() <= ulps


DOUBLES = {
    "exp": (34, np.exp, (-745, 709), 2),
    "elu": (45, lambda x: np.where(x < 0, 0.75 * np.expm1(x), x), (-80, 80), 3),
    "sigmoid": (4, lambda x: 1 / (1 + np.exp(-x)), (-300, 300), 4),
    "tanh": (5, np.tanh, (-30, 30), 4),
    "silu": (6, lambda x: x / (1 + np.exp(-x)), (-300, 300), 4),
}


@pytest.mark.parametrize("name", DOUBLES)
def test_doubles(name, isa, pool):
    code, function, domain, ulps = DOUBLES[name]
    x = points(*domain).astype(np.float64)
    x = np.concatenate([x, [np.inf, -np.inf, np.nan, -0.0, 710, -746]])
    y = run_steps([x], [step(UNARY, code, "float64", 0, a=0.75)], "float64", isa, pool)
    with np.errstate(all="ignore"):
        expected = function(x)
        error = np.abs(y - expected) / np.spacing(np.abs(expected))
    exact = (y == expected) | (np.isnan(y) & np.isnan(expected))
    assert error[~exact].max(initial=0) <= ulps
    assert np.isnan(y).any()
