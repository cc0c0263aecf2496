from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tinycomp.errors import ExecutionError
from tinycomp.ops.numeric import compute_dtype, fix_axes, fix_axis, fix_indices, is_float, node_shape, prod, widened


def test_compute_dtype():
    assert compute_dtype(np.dtype(ml_dtypes.bfloat16)) == np.float32
    assert compute_dtype(np.dtype(ml_dtypes.float8_e5m2)) == np.float32
    assert compute_dtype(np.dtype(ml_dtypes.int4)) == np.int32
    for plain in (np.float32, np.float64, np.int8, np.uint64, np.bool_):
        assert compute_dtype(np.dtype(plain)) == plain


def test_is_float():
    assert is_float(np.dtype(ml_dtypes.float4_e2m1fn))
    assert is_float(np.dtype(np.float16))
    assert not is_float(np.dtype(ml_dtypes.uint4))
    assert not is_float(np.dtype(object))


def test_widened_rounds_once():
    @widened
    def shift_and_back(x):
        return (x + x.dtype.type(2048)) - x.dtype.type(2048)

    x = np.array([0.5], np.float16)
    assert shift_and_back(x).dtype == np.float16
    assert shift_and_back(x).tolist() == [0.5]  # float16 arithmetic would give 0


def test_widened_returns_arrays_without_warnings():
    result = widened(lambda x: 1 / x)(np.array(0, np.float32))
    assert isinstance(result, np.ndarray)
    assert result == np.inf


@pytest.mark.parametrize(("axis", "fixed"), [(0, 0), (2, 2), (-1, 2), (-3, 0)])
def test_fix_axis(axis, fixed):
    assert fix_axis(axis, 3, "Op") == fixed


def test_axis_errors():
    with pytest.raises(ExecutionError, match=r"Op: axis out of range; expected an axis in \[-3, 2\]; found 3"):
        fix_axis(3, 3, "Op")
    with pytest.raises(ExecutionError, match=r"Op: an axis is named twice; expected distinct axes; found \[1, 1\]"):
        fix_axes([1, -2], 3, "Op")


def test_fix_indices():
    assert fix_indices(np.array([0, -1, 3], np.int32), 4, "Op").tolist() == [0, 3, 3]
    assert fix_indices(np.zeros((0, 2), np.int64), 0, "Op").shape == (0, 2)
    with pytest.raises(ExecutionError, match=r"Op: index out of bounds; expected indices in \[-4, 3\]; found -5"):
        fix_indices(np.array([0, -5]), 4, "Op")


def test_shapes_count_unknown_dimensions_as_one():
    assert prod((2, "N", None, 3)) == 6
    assert node_shape(None) == ()
