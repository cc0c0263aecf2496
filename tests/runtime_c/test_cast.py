from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.runtime_c.element import CAST, NATIVE, TYPES, run_steps, step
from tinycomp.errors import TargetError
from tinycomp.ops.cast import cast_array

FLOATS = TYPES[:4]


def cast(x: np.ndarray, to: np.dtype, isa: str, pool=None) -> np.ndarray:
    return run_steps([x], [step(CAST, TYPES.index(to), x.dtype, 0)], to, isa, pool)


def samples(dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Return 2,500 elements: the limits of every type, special values, and random bits or numbers."""
    if dtype.kind == "b":
        return rng.integers(0, 2, 2500).astype(bool)
    if dtype not in FLOATS:
        info = np.iinfo(dtype)
        return np.concatenate(
            [
                rng.integers(info.min, info.max, 2440, dtype, endpoint=True),
                np.array([info.min, info.max, 0] * 20, dtype),
            ]
        )
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1e-40, 65519.0, 65520.0, 1e30, -1e30]
    limits = [float(f(np.iinfo(t).max)) for t in TYPES[4:12] for f in (lambda v: v, lambda v: v + 1, lambda v: -v - 1)]
    numbers = np.concatenate([rng.standard_normal(1000) * 100, rng.standard_normal(1464) * 1e-6, special, limits])
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(NATIVE, NATIVE)), ids=lambda t: t.name)
def test_cast_equals_the_host(source, target, isa, pool, rng):
    x = samples(source, rng)
    with np.errstate(all="ignore"):
        wanted = cast_array(x, target)
    y = cast(x, target, isa, pool)
    if target in FLOATS[2:]:  # numpy does not know their NaN
        y, wanted = y.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("target", [FLOATS[2], FLOATS[3]], ids=lambda t: t.name)
def test_every_16_bit_float(target, isa):
    x = np.arange(1 << 16, dtype=np.uint16).view(target)
    wide = cast(x, FLOATS[0], isa)
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    np.testing.assert_array_equal(cast(wide, target, isa).astype(np.float32), wide)


def test_there_is_no_such_type(isa):
    with pytest.raises(TargetError, match="there is no operation 25 of kind 5 on type 0"):
        run_steps([np.zeros(3, np.float32)], [step(CAST, len(TYPES), "float32", 0)], "float32", isa, None)
