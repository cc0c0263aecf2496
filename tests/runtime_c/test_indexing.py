"""Kernels that read and write at indices, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import run_single, single
from tests.runtime_c.views import eight, strides
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.program import BufferSpec, Instruction, Operand, Program

DTYPES = ["uint8", "int16", "float32", "int64"]
TYPES = {"float32": 0, "float64": 1, "int8": 4, "uint8": 5, "int16": 6, "uint16": 7, "int32": 8, "uint32": 9}
TYPES |= {"int64": 10, "uint64": 11}


def gather_elements_params(data: np.ndarray, indices: np.ndarray, axis: int) -> dict[str, int]:
    steps = [0 if d == axis else s // data.itemsize for d, s in enumerate(data.strides)]
    sizes = {"element_size": data.itemsize, "index_size": indices.itemsize}
    place = {"axis": data.shape[axis], "axis_stride": data.strides[axis] // data.itemsize}
    return sizes | place | eight("size", indices.shape, 1) | eight("data_stride", steps, 0)


@pytest.mark.parametrize("shape", [(9,), (5, 7, 3), (40, 300)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_elements(shape, dtype, isa, pool, rng):
    data = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    for axis in range(len(shape)):
        for index_dtype in (np.int32, np.int64):
            indices = rng.integers(-shape[axis], shape[axis], shape).astype(index_dtype)
            expected = np.take_along_axis(data, indices, axis)
            params = gather_elements_params(data, indices, axis)
            y = run_single("gather_elements", [data, indices], params, (dtype, shape), isa, pool)
            np.testing.assert_array_equal(y, expected)


def tuples_params(data: np.ndarray, indices: np.ndarray, inner: int) -> dict[str, int]:
    depth = indices.shape[-1]
    return {
        "element_size": data.itemsize, "index_size": indices.itemsize, "count": indices.size // depth, "depth": depth,
        "inner": inner, **eight("size", data.shape[:depth], 1),
    }  # fmt: skip


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gather_nd(depth, dtype, isa, pool, rng):
    data = np.arange(9 * 8 * 7).astype(dtype).reshape(9, 8, 7)
    indices = np.stack([rng.integers(-n, n, 500) for n in data.shape[:depth]], axis=-1)
    expected = data[tuple(indices.T)]
    params = {"batch": 1} | tuples_params(data, indices, expected[0].size)
    y = run_single("gather_nd", [data, indices], params, (dtype, expected.shape), isa, pool)
    np.testing.assert_array_equal(y, expected)


def run_onto(kernel: str, data: np.ndarray, operands: list[np.ndarray], params: dict, isa: str, threads=None):
    """Run a kernel that writes parts of its result, which holds ``data`` before."""
    specs = tuple(BufferSpec(f"x{i}", x.dtype.name, x.shape) for i, x in enumerate(operands))
    places = (Operand("output", 0), *(Operand("input", i) for i in range(len(operands))))
    out = BufferSpec("y", data.dtype.name, data.shape)
    program = Program("test", specs, (out,), (), 0, (Instruction(kernel, places, params, source=("node",)),))
    y = data.copy()
    runner(program, threads, isa).run([np.ascontiguousarray(x) for x in operands], [y])
    return y


REDUCTIONS = [None, np.add, np.multiply, np.maximum, np.minimum]


@pytest.mark.parametrize("reduction", range(5))
@pytest.mark.parametrize("dtype", TYPES)
def test_scatter_nd_and_scatter_elements(reduction, dtype, isa, pool, rng):
    data = rng.integers(0, 100, (6, 300)).astype(dtype)
    indices = rng.permutation(6)[:4, None] if reduction == 0 else rng.integers(-6, 6, (9, 1))
    updates = rng.integers(0, 100, (len(indices), 300)).astype(dtype)
    expected = data.copy()
    if reduction == 0:
        expected[indices[:, 0]] = updates
    else:
        REDUCTIONS[reduction].at(expected, indices[:, 0], updates)
    kinds = {"type": TYPES[dtype], "reduction": reduction}
    params = kinds | tuples_params(data, indices, 300)
    for threads in (None, pool):
        y = run_onto("scatter_nd", data, [indices, updates], params, isa, threads)
        np.testing.assert_array_equal(y, expected)
    # The same along axis 0 with one index for every element; the axis is the walk's last dimension.
    wide = np.broadcast_to(indices, updates.shape)
    params = kinds | {"element_size": data.itemsize, "index_size": 8, "axis": 6, "axis_stride": 300}
    params |= eight("size", wide.shape[::-1], 1) | eight("y_stride", (1, 0), 0)
    params |= eight("index_stride", (1, 300), 0) | eight("update_stride", (1, 300), 0)
    for threads in (None, pool):
        y = run_onto("scatter_elements", data, [wide, updates], params, isa, threads)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("reduction", range(5))
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64"])
def test_scattered_elements_that_meet(reduction, dtype, isa, pool, rng):
    data, updates = (rng.integers(-50, 50, n).astype(dtype) for n in (20, 150))
    if dtype.startswith("float"):
        data[3], updates[7], updates[100] = np.nan, np.nan, np.nan
    indices = rng.integers(-20, 20, 150)
    expected = data.copy()
    if reduction == 0:
        for index, update in zip(indices, updates, strict=True):
            expected[index] = update
    else:
        with np.errstate(invalid="ignore"):
            REDUCTIONS[reduction].at(expected, indices, updates)
    kinds = {"type": TYPES[dtype], "reduction": reduction}
    operands = [indices[:, None], updates]
    y = run_onto("scatter_nd", data, operands, kinds | tuples_params(data, operands[0], 1), isa, pool)
    np.testing.assert_array_equal(y, expected)
    params = kinds | {"element_size": data.itemsize, "axis": 20, "axis_stride": 1, **eight("y_stride", (0,), 0)}
    params |= eight("size", (150,), 1) | strides("index_stride", indices) | strides("update_stride", updates)
    for index_dtype in (np.int32, np.int64):
        given = indices.astype(index_dtype)
        y = run_onto("scatter_elements", data, [given, updates], params | {"index_size": given.itemsize}, isa, pool)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("time_first", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_reverse_sequence(time_first, dtype, isa, pool, rng):
    x = np.arange(7 * 5 * 300).astype(dtype).reshape(5, 7, 300)
    lengths = rng.integers(0, 8, 5)
    expected = x.copy()
    for b, n in enumerate(lengths):
        expected[b, :n] = x[b, :n][::-1]
    params = {"element_size": x.itemsize, "time_first": time_first, "batch": 5, "time": 7, "inner": 300}
    order = (1, 0, 2) if time_first else (0, 1, 2)
    fed, expected = x.transpose(order), expected.transpose(order)
    y = run_single("reverse_sequence", [fed, lengths], params, (dtype, expected.shape), isa, pool)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("circular", [0, 1])
def test_tensor_scatter(circular, isa, pool):
    data, updates = np.full((2, 3, 5, 4), -1, np.float32), np.arange(48, dtype=np.float32).reshape(2, 3, 2, 4) + 1
    starts = np.array([4, -3]) if circular else np.array([3, 0])
    expected = data.copy()
    for b, start in enumerate(starts):
        for step in range(2):
            expected[b, :, (start + step) % 5] = updates[b, :, step]
    params = {"element_size": 4, "circular": circular, "batch": 2, "outer": 3, "axis": 5, "inner": 4, "count": 2}
    operands, result = [data, updates, starts], ("float32", data.shape)
    np.testing.assert_array_equal(run_single("tensor_scatter", operands, params, result, isa, pool), expected)
    nothing = [data, updates[:, :, :0], starts]
    y = run_single("tensor_scatter", nothing, params | {"count": 0}, result, isa, pool)
    np.testing.assert_array_equal(y, data)
    if not circular:
        with pytest.raises(ExecutionError, match="the write passes the end of the cache"):
            run_single("tensor_scatter", [data, updates, np.array([0, 4])], params, result, isa)


def test_tensor_scatter_into_the_cache_itself(native_isa):
    """Which is the result's memory: the new steps are written, and nothing else."""
    cache, updates = np.full((1, 2, 4, 3), -1, np.float32), np.ones((1, 2, 1, 3), np.float32)
    params = {"element_size": 4, "circular": 0, "batch": 1, "outer": 2, "axis": 4, "inner": 3, "count": 1}
    program, feeds = single("tensor_scatter", [cache, updates, np.array([2])], params, ("float32", cache.shape))
    runner(program, None, native_isa).run([cache, *feeds[1:]], [cache])
    np.testing.assert_array_equal(cache[:, :, 2], 1)
    np.testing.assert_array_equal(np.delete(cache, 2, 2), -1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_hot(dtype, isa, pool):
    indices, values = np.array([[0, -1, 9], [2**40, 3, -6]]), np.array([3, 8]).astype(dtype)
    expected = np.where((np.where(indices < 0, indices + 5, indices)[:, None] == np.arange(5)[:, None]), *values[::-1])
    params = {"element_size": values.itemsize, "index_size": 8, "outer": 2, "depth": 5, "inner": 3}
    y = run_single("one_hot", [indices, values], params, (dtype, (2, 5, 3)), isa, pool)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("index", [5, -6, 2**40, -(2**63)])
def test_index_out_of_range(index, isa):
    data, indices = np.zeros((5, 3), np.float32), np.full((5, 3), index)
    for kernel, params, fed, shape in (
        ("gather_elements", gather_elements_params(data, indices, 0), indices, (5, 3)),
        ("gather_nd", {"batch": 1} | tuples_params(data, indices[:1, :1], 3), indices[:1, :1], (1, 3)),
    ):
        program, feeds = single(kernel, [data, fed], params, ("float32", shape))
        with pytest.raises(ExecutionError, match="an index is out of range"):
            runner(program, None, isa).run(feeds, [np.empty(shape, np.float32)])
    params = {"type": 0, "reduction": 0} | tuples_params(data, indices[:1, :1], 3)
    with pytest.raises(ExecutionError, match="an index is out of range"):
        run_onto("scatter_nd", data, [indices[:1, :1], data[:1]], params, isa)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"depth": 9}, "tuples of 9 indices"),
        ({"index_size": 2}, "indices of 2 bytes"),
        ({"element_size": 3}, "elements of 3 bytes"),
        ({"size0": 2}, "a size that no index addresses is not 1"),
        ({"reduction": 5}, "there is no reduction 5"),
        ({"reduction": 1, "type": 2}, "there is no reduction 1 of numbers of type 2"),
        ({"inner": 2**40, "count": 2**20}, "passes 2\\^48"),
    ],
)
def test_bad_parameters(changes, text):
    data, indices = np.zeros((5, 3), np.float32), np.zeros((1, 1), np.int64)
    params = {"type": 0, "reduction": 0} | tuples_params(data, indices, 3) | changes
    with pytest.raises(TargetError, match=text):
        run_onto("scatter_nd", data, [indices, data[:1]], params, "scalar")


def test_a_stride_along_the_scattered_axis_is_refused():
    data, indices = np.zeros(5, np.float32), np.zeros(2, np.int64)
    params = {"type": 0, "reduction": 0, "element_size": 4, "index_size": 8, "axis": 5, "axis_stride": 1}
    params |= eight("size", (2,), 1) | eight("y_stride", (1,), 0)
    params |= strides("index_stride", indices) | strides("update_stride", data[:2])
    with pytest.raises(TargetError, match="a stride along the indexed dimension"):
        run_onto("scatter_elements", data, [indices, data[:2]], params, "scalar")
