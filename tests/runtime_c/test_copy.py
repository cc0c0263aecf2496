from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single, single
from tests.runtime_c.views import eight, lowest, strides
from tinycomp.errors import TargetError
from tinycomp.runtime.native.executor import NativeProgram

# shape of an array, and the view of it that is copied
VIEWS = {
    "one element": ((1, 1), lambda x: x),
    "contiguous": ((3, 5, 7), lambda x: x),
    "large contiguous": ((50_000,), lambda x: x),
    "empty": ((3, 0, 7), lambda x: x),
    "nchw to nhwc": ((2, 19, 9, 11), lambda x: x.transpose(0, 2, 3, 1)),
    "nchw to nhwc, 3 channels": ((2, 3, 37, 41), lambda x: x.transpose(0, 2, 3, 1)),
    "nhwc to nchw, 3 channels": ((2, 37, 41, 3), lambda x: x.transpose(0, 3, 1, 2)),
    "nhwc to nchw, 2 channels": ((1, 37, 41, 2), lambda x: x.transpose(0, 3, 1, 2)),
    "2 channels of 5": ((1, 5, 70, 7), lambda x: x[:, 1:3].transpose(0, 2, 3, 1)),
    "matrix": ((130, 67), lambda x: x.T),
    "matrix of rows that meet in a cache": ((256, 44), lambda x: x.T),
    "windows": ((2, 4, 5, 4, 3), lambda x: x.transpose(0, 2, 1, 3, 4)),
    "pairs": ((3, 6, 20, 2), lambda x: x.transpose(0, 2, 1, 3)),
    "pairs at odd places": ((9, 7), lambda x: x[:, 1:3]),
    "reversed pairs": ((6, 7, 2), lambda x: x.transpose(1, 0, 2)[::-1]),
    "short rows": ((6, 31), lambda x: x[:, 3:8]),
    "long rows": ((6, 90), lambda x: x[:, 3:80]),
    "wide matrix": ((5, 5001), lambda x: x.T),
    "heads": ((2, 17, 4, 8), lambda x: x.transpose(0, 2, 1, 3)),
    "heads, transposed": ((2, 17, 4, 9), lambda x: x.transpose(0, 2, 3, 1)),
    "slice": ((9, 10, 11), lambda x: x[1:7:2, 3:, 2:9]),
    "inner step": ((9, 40), lambda x: x[:, 1::3]),
    "reversed": ((6, 7, 8), lambda x: x[::-1, :, ::-2]),
    "reversed transposed": ((70, 71), lambda x: x.T[::-1]),
    "expanded rows": ((5, 1, 7), lambda x: np.broadcast_to(x, (5, 6, 7))),
    "expanded columns": ((5, 6, 1), lambda x: np.broadcast_to(x, (5, 6, 9))),
    "all eight": ((2, 3, 2, 1, 3, 2, 2, 3), lambda x: x.transpose(7, 0, 3, 2, 6, 1, 5, 4)),
}


def copy_params(view: np.ndarray, target: np.ndarray) -> dict[str, int]:
    sizes = eight("size", view.shape, 1)
    return {"element_size": view.itemsize} | sizes | strides("to_stride", target) | strides("from_stride", view)


@pytest.mark.parametrize("case", VIEWS)
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
def test_copy_equals_numpy(case, dtype, isa, pool):
    shape, take = VIEWS[case]
    view = take(np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape))
    params = copy_params(view, np.empty(view.shape, dtype))
    y = run_single("copy", [lowest(view)], params, (dtype, view.shape), isa, pool)
    np.testing.assert_array_equal(y, view)


@pytest.mark.parametrize("transposed", [False, True])
def test_part_of_the_destination(transposed, isa, pool):
    """As for one part of a concatenation: what is around it stays as it was."""
    x = np.arange(12 * 13 * 5, dtype=np.float32).reshape(12, 13, 5)
    view = x.transpose(0, 2, 1) if transposed else x
    whole = np.empty((12, view.shape[1], view.shape[2] + 4), np.float32)
    params = copy_params(view, whole[..., : view.shape[2]])
    y = run_single("copy", [x], params, ("float32", whole.shape), isa, pool)
    np.testing.assert_array_equal(y[..., : view.shape[2]], view)
    np.testing.assert_array_equal(y[..., view.shape[2] :], 77)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
def test_fill(dtype, isa, pool):
    whole, value = np.empty((6, 70, 9), dtype), np.array(-3).astype(dtype)
    part = whole[1:4, ::2, :7]
    pattern = int(value.view(f"i{value.itemsize}"))
    params = {"element_size": value.itemsize, "pattern": pattern}
    params |= eight("size", part.shape, 1) | strides("stride", part)
    y = run_single("fill", [], params, (dtype, whole.shape), isa, pool)
    expected = np.full(whole.shape, 77, dtype)
    expected[0:3, ::2, :7] = value
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"element_size": 3}, "elements of 3 bytes"),
        ({"size7": -1}, "a size is negative"),
        ({"size0": 2**40, "size1": 2**40}, "passes 2\\^48"),
        ({"to_stride7": 0}, "a destination stride is not positive"),
        ({"from_stride7": -(2**62)}, "a stride of -4611686018427387904 is out of range"),
        ({"from_stride6": 8}, "reaches past the end"),
    ],
)
def test_bad_parameters(changes, text):
    x = np.zeros((4, 5), np.float32)
    program, _ = single("copy", [x], copy_params(x, x) | changes, ("float32", (4, 5)))
    with pytest.raises(TargetError, match=text):
        NativeProgram(program)


@pytest.mark.parametrize("rows", [1, 100])
def test_an_empty_part_of_the_destination(rows, isa, pool):
    x = np.empty((rows, 0), np.float32)
    params = copy_params(x, np.empty((rows, 5), np.float32)[:, :0])
    y = run_single("copy", [x], params, ("float32", (rows, 5)), isa, pool)
    np.testing.assert_array_equal(y, 77)


PADDED = {
    "a row": ((7,), (3,), (2,)),
    "wider than the row": ((3,), (11,), (8,)),
    "one element": ((1,), (2,), (3,)),
    "an image": ((2, 3, 9, 11), (0, 0, 1, 2), (0, 0, 2, 1)),
    "channels last": ((2, 9, 11, 3), (0, 1, 2, 0), (0, 2, 1, 0)),
    "cut and padded": ((6, 7), (-2, 3), (4, -6)),
    "cut": ((6, 7), (-2, 0), (0, -5)),
    "cut to nothing": ((6, 7), (-2, 0), (-4, 1)),
    "no border": ((6, 7), (0, 0), (0, 0)),
    "large": ((40, 3000), (1, 1), (1, 1)),
    "empty": ((0, 5), (0, 1), (0, 1)),
}


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize("case", PADDED)
def test_pad_equals_numpy(case, dtype, isa, pool, rng):
    shape, before, after = PADDED[case]
    x = rng.integers(0, 100, shape).astype(dtype)
    for mode, name in enumerate(("edge", "reflect", "wrap")):
        expected = x
        for axis, (low, high) in enumerate(zip(before, after, strict=True)):
            places = np.arange(-low, shape[axis] + high)
            expected = expected.take(source_of(name, places, shape[axis]), axis) if low or high else expected
        params = {"element_size": x.itemsize, "mode": mode, **eight("size", shape, 1)}
        params |= eight("before", before, 0) | eight("after", after, 0)
        y = run_single("pad", [x], params, (dtype, expected.shape), isa, pool)
        np.testing.assert_array_equal(y, expected)


def source_of(mode: str, places: np.ndarray, size: int) -> np.ndarray:
    """Return which elements of a row stand at places that may lie outside of it, from rows that are long enough."""
    row = np.arange(size)
    reach = int(max(np.abs(places).max(initial=0), size)) + 1
    wide = np.pad(row, reach, mode) if size > 1 or mode != "reflect" else np.pad(row, reach, "edge")
    return wide[places + reach]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"element_size": 3}, "elements of 3 bytes cannot be padded"),
        ({"mode": 3}, "there is no padding mode 3"),
        ({"before7": -8}, "dimension 7 of 5 elements is padded by -8 and 1"),
        ({"after7": 2**50}, "is padded by 1 and"),
        ({"size7": 0}, "dimension 7 is empty: there is nothing to pad from"),
    ],
)
def test_bad_borders(changes, text):
    params = {"element_size": 4, "mode": 0, **eight("size", (5,), 1), **eight("before", (1,), 0)}
    program, _ = single(
        "pad", [np.zeros(5, np.float32)], {**params, **eight("after", (1,), 0), **changes}, ("float32", (7,))
    )
    with pytest.raises(TargetError, match=text):
        NativeProgram(program)
