"""Scales, zero points, weights and biases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tinycomp.quantization.encoding import LARGEST_BIAS, REDUCED_LIMIT, Affine, Encoding, quantize_bias, quantize_weight

ENCODINGS = [Encoding(dtype, symmetric) for dtype in ("uint8", "int8") for symmetric in (False, True)]
FINITE = st.floats(-1e6, 1e6)
WEIGHTS = hnp.arrays(np.float32, (4, 3, 2), elements=st.floats(-8, 8, width=32))


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@given(ends=st.tuples(FINITE, FINITE).map(sorted), share=st.floats(0, 1))
def test_everything_in_the_range_is_within_half_a_step(encoding, ends, share):
    low, high = min(ends[0], 0.0), max(ends[1], 0.0)
    affine = encoding.affine(low, high)
    x = np.float32(low + share * (high - low))
    error = abs(float(affine.dequantize(affine.quantize(x))) - float(x))
    # The zero point is rounded, so that one end may lie up to half a step outside.
    assert error <= float(affine.scale) * 1.001


@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@given(ends=st.tuples(FINITE, FINITE).map(sorted))
def test_zero_is_exact(encoding, ends):
    affine = encoding.affine(*ends)
    assert affine.dequantize(affine.quantize(np.float32(0))) == 0
    assert 0 < affine.scale < np.inf


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 128), ("int8", 0)])
@given(ends=st.tuples(FINITE, FINITE).map(sorted))
def test_the_zero_point_of_symmetric_scales(dtype, zero, ends):
    assert Encoding(dtype, symmetric=True).affine(*ends).zero_point == zero


def test_int8_and_uint8_mean_the_same_numbers():
    x = np.linspace(-2, 5, 300).astype(np.float32)
    one, other = (Encoding(dtype, symmetric=False).affine(-1.5, 4) for dtype in ("uint8", "int8"))
    np.testing.assert_array_equal(one.dequantize(one.quantize(x)), other.dequantize(other.quantize(x)))


@given(WEIGHTS, st.sampled_from([None, 0, 1]), st.sampled_from([127, REDUCED_LIMIT]))
def test_weights_are_within_half_a_step(weight, axis, limit):
    stored = quantize_weight(weight, axis, limit)
    assert stored.numbers.dtype == np.int8
    assert np.abs(stored.numbers.astype(int)).max() <= limit
    assert stored.scale.shape == (() if axis is None else (weight.shape[axis],))
    shape = [1] * 3 if axis is None else [-1 if i == axis else 1 for i in range(3)]
    assert (np.abs(stored.dequantize() - weight) <= 0.5001 * stored.scale.reshape(shape) + 1e-12).all()


def test_a_channel_of_zeros_stays_one():
    stored = quantize_weight(np.float32([[0, 0], [1, -2]]), 0, 127)
    np.testing.assert_array_equal(stored.numbers[0], 0)
    np.testing.assert_array_equal(stored.scale, np.float32([1, 2 / 127]))


def test_a_bias_is_in_steps_of_the_sums():
    weight = quantize_weight(np.float32([[1, 2], [3, -4]]), 0, 127)
    bias = np.float32([0.5, -7])
    stored = quantize_bias(bias, np.float32(0.1), weight, 2)
    assert stored.numbers.dtype == np.int32
    np.testing.assert_array_equal(stored.scale, np.float32(0.1) * weight.scale)
    np.testing.assert_allclose(stored.dequantize(), bias, atol=0.51 * stored.scale.max())


@given(st.floats(1e-3, 1e6), st.floats(1e-12, 1e-3))
def test_a_bias_fits_beside_tiny_weights(bias, weight):
    array, biases = np.float32([[weight], [1]]), np.float32([bias, bias])
    stored = quantize_weight(array, 0, 127, biases, np.float32(1e-4))
    numbers = quantize_bias(biases, np.float32(1e-4), stored, 2)
    assert np.abs(numbers.numbers.astype(np.int64)).max() <= LARGEST_BIAS * 1.001
    np.testing.assert_allclose(numbers.dequantize(), biases, rtol=1e-3, atol=1e-4)


def test_rounding_is_that_of_onnx():
    affine = Affine(np.float32(2), np.uint8(10))
    np.testing.assert_array_equal(affine.quantize(np.float32([1, 3, -1, 1000, -1000])), [10, 12, 10, 255, 0])
