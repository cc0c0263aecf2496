from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import Weight, run_single
from tests.runtime_c.quantized import activations
from tinycomp.errors import TargetError


@pytest.mark.parametrize("shape", [(1, 256), (3, 1), (7, 33), (5, 4097), (0, 4), (4, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("gap", [0, 3])
def test_lookup(shape, dtype, gap, isa, pool, rng):
    rows, columns = shape
    x = activations(rng, rows, columns + gap)
    x.reshape(-1)[:256] = np.arange(x.size)[:256]
    table = rng.integers(0, 100, 256).astype(dtype)
    strides = {"x_row_stride": columns + gap, "y_row_stride": columns + 2 * gap}
    params = {"element_size": table.itemsize, "rows": rows, "columns": columns} | strides
    y = run_single("qlookup", [x, Weight(table)], params, (dtype, (rows, columns + 2 * gap)), isa, pool)
    np.testing.assert_array_equal(y[:, :columns], table[x[:, :columns]])
    np.testing.assert_array_equal(y[:, columns:], 77)


@pytest.mark.parametrize("bits", [0, 0x80, 0xFF])
def test_tables_that_flip_bits(bits, isa, pool, rng):
    x = rng.integers(0, 256, (3, 50_000)).astype(np.uint8)
    table = (np.arange(256) ^ bits).astype(np.uint8)
    params = {"element_size": 1, "rows": 3, "columns": 50_000, "x_row_stride": 50_000, "y_row_stride": 50_000}
    for last in (255 ^ bits, 7):  # the second is no such table
        table[255] = last
        y = run_single("qlookup", [x, Weight(table)], params, ("uint8", x.shape), isa, pool)
        np.testing.assert_array_equal(y, table[x])


def test_impossible_elements_are_refused():
    params = {"element_size": 8, "rows": 1, "columns": 4, "x_row_stride": 4, "y_row_stride": 4}
    operands = [np.zeros(4, np.uint8), Weight(np.zeros(256, np.float64))]
    with pytest.raises(TargetError, match="no table has elements of 8 bytes"):
        run_single("qlookup", operands, params, ("float64", (4,)), "scalar")
