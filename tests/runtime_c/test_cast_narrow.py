"""Conversions from and to integers of part of a byte and floats of 8 bits or fewer, bit by bit as on the host."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx.helper import np_dtype_to_tensor_dtype
from onnx.reference.ops.op_cast import cast_to

from tests.runtime_c.element import BINARY, CAST, NARROW, NATIVE, TYPES, raw, run_steps, step
from tinycomp.ir.types import bits
from tinycomp.ops.cast import cast_array

SCALE = np.dtype(ml_dtypes.float8_e8m0fnu)
FLOATS = [t for t in NARROW if "float" in t.name]
INTEGERS = [t for t in NARROW if "float" not in t.name]
ROUNDING = ("up", "down", "nearest")


def cast(x: np.ndarray, to: np.dtype, isa: str, pool=None, saturate: bool = True, rounding: str = "up") -> np.ndarray:
    number, options = TYPES.index(to), {"a": float(not saturate), "b": float(ROUNDING.index(rounding))}
    return run_steps([x], [step(CAST, number, x.dtype, 0, **options)], to, isa, pool)


def codes(dtype: np.dtype) -> np.ndarray:
    """Return all numbers of a type; what lies above its bits in a byte is 0."""
    return np.arange(1 << bits(dtype.name), dtype=np.uint8).view(dtype)


def borders(dtype: np.dtype) -> np.ndarray:
    """Return all numbers of a float type, what lies half-way between neighbours, and around their ends, as float32."""
    numbers = codes(dtype).astype(np.float32)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    beyond = numbers[-1] + (numbers[-1] - numbers[-2]) * np.array([0.5, 1, 2], np.float32)
    middles = (numbers[1:] + numbers[:-1]) / 2
    found = np.concatenate([numbers, middles, beyond])
    found = np.concatenate([found, -found])
    return np.concatenate([found, np.nextafter(found, np.float32(np.inf)), np.nextafter(found, -np.float32(np.inf))])


def as_double(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # NaN that signals
        return x.astype(np.float64)


def special() -> np.ndarray:
    positive = np.array([0, np.inf, np.nan, 1e-45, 1e-38, 3.4e38, 2.0**-128, 1.5 * 2.0**-128, 2.0**-127], np.float32)
    return np.concatenate([positive, -positive])


def anything(rng: np.random.Generator) -> np.ndarray:
    """Return floats of all sizes: random bits, and numbers whose sizes are usual."""
    with np.errstate(invalid="ignore"):
        patterns = rng.integers(0, 1 << 32, 20000, np.uint64).astype(np.uint32).view(np.float32)
    return np.concatenate([patterns, rng.standard_normal(5000).astype(np.float32) * np.float32(10)])


def assert_host(x: np.ndarray, to: np.dtype, isa: str, pool=None) -> None:
    """Compare with the host for all options that matter."""
    for saturate in (True, False):
        for rounding in ROUNDING if to == SCALE else ROUNDING[:1]:
            found = cast(x, to, isa, pool, saturate, rounding)
            np.testing.assert_array_equal(
                raw(found), raw(cast_array(x, to, saturate, rounding)), f"{saturate} {rounding}"
            )


@pytest.mark.parametrize("source", NARROW, ids=lambda t: t.name)
def test_every_code(source, isa):
    """The bits of NaN are compared, too."""
    for target in TYPES:
        wanted = cast_array(codes(source), target)
        np.testing.assert_array_equal(raw(cast(codes(source), target, isa)), raw(wanted), target.name)


@pytest.mark.parametrize("target", FLOATS, ids=lambda t: t.name)
def test_floats_and_what_lies_between_them(target, isa, pool, rng):
    x = np.concatenate([borders(target), special(), anything(rng)])
    assert_host(x, target, isa, pool)
    assert_host(as_double(x), target, isa)


@pytest.mark.parametrize("target", FLOATS, ids=lambda t: t.name)
def test_every_16_bit_float(target, isa):
    every = np.arange(1 << 16, dtype=np.uint16)
    for source in (np.float16, ml_dtypes.bfloat16):
        assert_host(every.view(source), target, isa)


@pytest.mark.parametrize("target", [t for t in FLOATS if t != SCALE], ids=lambda t: t.name)
def test_floats_equal_the_reference(target, isa, rng):
    """Powers of two are left out: the reference ignores signs, and takes subnormal numbers for normal ones."""
    x = np.concatenate([borders(target), special(), anything(rng)])
    for saturate in (True, False):
        with np.errstate(all="ignore"):
            wanted = cast_to(x, np_dtype_to_tensor_dtype(target), saturate)
        np.testing.assert_array_equal(raw(cast(x, target, isa, saturate=saturate)), raw(wanted))


@pytest.mark.parametrize("target", NARROW, ids=lambda t: t.name)
def test_integers(target, isa, rng):
    for source in NATIVE[4:]:
        ends = (0, 1) if source.kind == "b" else (np.iinfo(source).min, np.iinfo(source).max)
        x = rng.integers(*ends, 2000, np.uint8 if source.kind == "b" else source, endpoint=True).astype(source)
        assert_host(x, target, isa)
        assert_host((x % 17).astype(source), target, isa)


@pytest.mark.parametrize("target", INTEGERS, ids=lambda t: t.name)
def test_floats_become_integers_by_their_low_bits(target, isa, rng):
    x = np.concatenate([special(), anything(rng), np.arange(-40, 40, dtype=np.float32) / 4])
    assert_host(x, target, isa)
    assert_host(as_double(x), target, isa)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda t: t.name)
def test_immediates(dtype, isa):
    number = 0.5 if dtype in FLOATS else 1
    steps = [step(CAST, 0, dtype, 1), step(BINARY, 0, "float32", 0, 2)]
    found = run_steps([np.zeros(70, np.float32)], steps, "float32", isa, None, [(dtype, number)])
    np.testing.assert_array_equal(found, np.full(70, number, np.float32))
