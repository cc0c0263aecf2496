from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from tests.runtime_c.helpers import run_single, single
from tinycomp.errors import TargetError
from tinycomp.runtime.native import NativeProgram

TYPES = [
    np.dtype(name)
    for name in (
        "float32",
        "float64",
        "float16",
        ml_dtypes.bfloat16,
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "bool",
    )
]
FLOATS = TYPES[:4]


def cast(x: np.ndarray, to: np.dtype, isa: str, pool=None) -> np.ndarray:
    params = {"count": x.size, "from": TYPES.index(x.dtype), "to": TYPES.index(to)}
    raw = np.dtype(f"u{to.itemsize}")
    y = run_single("cast", [x.view(f"u{x.itemsize}")], params, (raw.name, x.shape), isa, pool)
    return y.view(to)


def expected(x: np.ndarray, to: np.dtype) -> np.ndarray:
    if to.kind == "b":
        return x.astype(np.float64) != 0
    if x.dtype not in FLOATS or to in FLOATS:
        through = np.float32 if to.itemsize == 2 and to in FLOATS and x.dtype == np.float64 else x.dtype
        return x.astype(through).astype(to)
    info = np.iinfo(to)
    wide = np.nan_to_num(x.astype(np.float64), nan=0, posinf=1e300, neginf=-1e300)
    return np.array([min(max(int(v), info.min), info.max) for v in wide.tolist()], to)


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


@pytest.mark.parametrize(("source", "target"), list(itertools.product(TYPES, TYPES)), ids=lambda t: t.name)
def test_cast_equals_numpy(source, target, isa, pool, rng):
    x = samples(source, rng)
    with np.errstate(all="ignore"):
        wanted = expected(x, target)
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


def test_there_is_no_such_type():
    program, _ = single("cast", [np.zeros(3, np.float32)], {"count": 3, "from": 0, "to": 13}, ("float32", (3,)))
    with pytest.raises(TargetError, match="there is no type 13"):
        NativeProgram(program)
