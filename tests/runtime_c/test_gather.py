from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import run_single, single
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.executor import NativeProgram


def gather_params(data: np.ndarray, indices: np.ndarray, axis: int) -> dict[str, int]:
    return {
        "element_size": data.itemsize,
        "index_size": indices.itemsize,
        "outer": int(np.prod(data.shape[:axis])),
        "axis": data.shape[axis],
        "inner": int(np.prod(data.shape[axis + 1 :])),
        "count": indices.size,
    }


@pytest.mark.parametrize("shape", [(9,), (5, 7, 3), (1000, 33), (3, 4, 1, 1), (4, 0)], ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_gather_equals_numpy(shape, dtype, index_dtype, isa, pool, rng):
    data = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    for axis in range(len(shape)):
        size = shape[axis]
        indices = rng.integers(-size, size, (2, 301 if size else 0)).astype(index_dtype) if size else np.empty((0, 2))
        indices = indices.astype(index_dtype)
        expected = np.take(data, indices, axis=axis)
        y = run_single(
            "gather", [data, indices], gather_params(data, indices, axis), (dtype, expected.shape), isa, pool
        )
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("index", [5, -6, 2**40, -(2**63)])
def test_index_out_of_range(index, isa):
    data, indices = np.zeros((5, 3), np.float32), np.array([0, index])
    program, feeds = single("gather", [data, indices], gather_params(data, indices, 0), ("float32", (2, 3)))
    with pytest.raises(ExecutionError, match="an index is out of range"):
        runner(program, None, isa).run(feeds, [np.empty((2, 3), np.float32)])


@pytest.mark.parametrize(
    ("changes", "text"), [({"index_size": 2}, "indices of 2 bytes"), ({"element_size": 16}, "elements of 16 bytes")]
)
def test_bad_parameters(changes, text):
    data, indices = np.zeros((5, 3), np.float32), np.zeros(2, np.int64)
    params = gather_params(data, indices, 0) | changes
    with pytest.raises(TargetError, match=text):
        NativeProgram(single("gather", [data, indices], params, ("float32", (2, 3)))[0])
