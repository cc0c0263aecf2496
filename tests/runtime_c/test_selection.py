"""Places of extremes, best elements and running sums, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import run_single, single
from tests.runtime_c.test_indexing import TYPES
from tinycomp.errors import TargetError
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.program import BufferSpec, Instruction, Operand, Program

SHAPES = [(3, 200, 1), (2, 7, 70), (1, 1, 5), (4, 33, 3), (19, 6, 1)]


def sizes(shape: tuple[int, ...]) -> dict[str, int]:
    return dict(zip(("outer", "axis", "inner"), shape, strict=True))


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Few different numbers, so that many are equal, and NaN among floats."""
    x = rng.integers(0, 50, shape).astype(dtype)
    if dtype.startswith("float"):
        x[rng.random(shape) < 0.02] = np.nan
    return x


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_arg_reduce(shape, dtype, isa, pool, rng):
    x = numbers(rng, shape, dtype)
    for least, function in enumerate((np.argmax, np.argmin)):
        for last in (0, 1):
            expected = shape[1] - 1 - function(x[:, ::-1], axis=1) if last else function(x, axis=1)
            params = {"type": TYPES[dtype], "least": least, "last": last, **sizes(shape)}
            y = run_single("arg_reduce", [x], params, ("int64", expected.shape), isa, pool)
            np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_top_k(shape, dtype, isa, rng):
    x = numbers(rng, shape, dtype)
    for largest in (0, 1):
        keys = (-x if x.dtype.kind == "f" else ~x) if largest else x
        order = np.argsort(keys, axis=1, kind="stable")
        for k in {0, 1, *(min(few, shape[1]) for few in (5, 16, 17)), shape[1] // 2, shape[1]}:
            for in_order in (0, 1):
                expected = order[:, :k] if in_order else np.sort(order[:, :k], axis=1)
                params = {"type": TYPES[dtype], "largest": largest, "sorted": in_order, **sizes(shape), "k": k}
                values, indices = run_both(x, params, expected.shape, isa)
                np.testing.assert_array_equal(indices, expected)
                np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


@pytest.mark.parametrize("count", [63, 64, 65, 100, 300])
@pytest.mark.parametrize("k", [1, 9, 16, 17])
def test_top_few_of_many_floats(count, k, isa, rng):
    """Rows in any order, in order, of few numbers, and with what is no number or beyond all of them."""
    x = rng.standard_normal((9, count), np.float32)
    x[1], x[2] = np.sort(x[1]), np.sort(x[2])[::-1]
    x[3:6] = np.round(x[3:6])
    x[4, ::3], x[5, : count // 2], x[6, 3:] = np.nan, np.inf, np.nan
    x[7, ::2], x[8] = -np.inf, -0.0
    x[8, ::5] = 0.0
    for largest in (0, 1):
        expected = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :k]
        params = {"type": TYPES["float32"], "largest": largest, "sorted": 1, **sizes((9, count, 1)), "k": k}
        values, indices = run_both(x, params, expected.shape, isa)
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_array_equal(values.view(np.int32), np.take_along_axis(x, expected, 1).view(np.int32))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64"])
def test_top_of_more_than_there_is_room_for(dtype, isa, rng):
    """Rows of few and many numbers, and in order, so that every element is one of the best so far."""
    x = np.stack([numbers(rng, (3000,), dtype), *rng.integers(-3000, 3000, (3, 3000)).astype(dtype)])
    x[2], x[3] = np.sort(x[2]), np.sort(x[3])[::-1]
    for largest in (0, 1):
        order = np.argsort((-x if x.dtype.kind == "f" else ~x) if largest else x, axis=1, kind="stable")
        for k, in_order in ((40, 1), (700, 1), (700, 0)):
            expected = order[:, :k] if in_order else np.sort(order[:, :k], axis=1)
            params = {"type": TYPES[dtype], "largest": largest, "sorted": in_order, **sizes((4, 3000, 1)), "k": k}
            values, indices = run_both(x, params, expected.shape, isa)
            np.testing.assert_array_equal(indices, expected)
            np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


def run_both(x, params, shape, isa):
    """Run top_k, whose two results are outputs."""
    places = (Operand("output", 0), Operand("output", 1), Operand("input", 0))
    specs = (BufferSpec("v", x.dtype.name, shape), BufferSpec("i", "int64", shape))
    program = Program(
        "test", (BufferSpec("x", x.dtype.name, x.shape),), specs, (), 0, (Instruction("top_k", places, params, ("n",)),)
    )
    results = [np.full(shape, 77, s.dtype) for s in specs]
    runner(program, None, isa).run([np.ascontiguousarray(x)], results)
    return results


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_cumulate(shape, dtype, isa, pool, rng):
    x = rng.integers(0, 3, shape).astype(dtype)
    for product, function in enumerate((np.cumsum, np.cumprod)):
        for exclusive in (0, 1):
            for reverse in (0, 1):
                source = x[:, ::-1] if reverse else x
                if exclusive:
                    source = np.concatenate([np.full_like(source[:, :1], product), source[:, :-1]], axis=1)
                expected = function(source, axis=1, dtype=dtype)
                params = {"type": TYPES[dtype], "product": product, "exclusive": exclusive, "reverse": reverse}
                y = run_single("cumulate", [x], params | sizes(shape), (dtype, shape), isa, pool)
                np.testing.assert_array_equal(y, expected[:, ::-1] if reverse else expected)


@pytest.mark.parametrize(
    ("kernel", "changes", "text"),
    [
        ("arg_reduce", {"type": 2}, "numbers of type 2 cannot be compared"),
        ("arg_reduce", {"axis": 0}, "the axis is empty"),
        ("arg_reduce", {"last": 2}, "least and last must be 0 or 1"),
        ("cumulate", {"type": 12}, "numbers of type 12 cannot be summed up"),
        ("cumulate", {"reverse": -1}, "product, exclusive and reverse must be 0 or 1"),
    ],
)
def test_bad_parameters(kernel, changes, text):
    flags = {"least": 0, "last": 0} if kernel == "arg_reduce" else {"product": 0, "exclusive": 0, "reverse": 0}
    x = np.zeros((1, 4, 1), np.float32)
    params = {"type": 0, **flags, **sizes(x.shape), **changes}
    with pytest.raises(TargetError, match=text):
        NativeProgram(single(kernel, [x], params, ("float32", x.shape))[0])
