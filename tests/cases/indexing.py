"""Reading and writing at indices, selecting, repeating and exchanging blocks, with shapes and attributes at random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case, Const
from tests.cases.values import MOVABLE, SPECIAL, floats, integers, ints, of_dtype

OUTSIDE = "index out of bounds; expected indices in .* found [345]|an index is out of range"
INDEX_DTYPES = (np.int32, np.int64)
NUMBERS = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def indexing() -> Iterator[Case]:
    rng = np.random.default_rng(11)
    yield from _gathers(rng)
    yield from _scatters(rng)
    yield from _rearrangements(rng)
    yield from _selections(rng)
    yield from _running()
    yield from _places()
    yield from _suppressions()


def _shape(rng: np.random.Generator, rank: int, low: int = 1, high: int = 6) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(low, high, rank))


def _numbers(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    low = 0 if dtype.startswith("u") else -9
    return of_dtype(integers(*shape, low=low, seed=seed), dtype)


def _indices(rng: np.random.Generator, size: int, shape: tuple[int, ...], i: int) -> np.ndarray:
    return rng.integers(-size, size, shape).astype(INDEX_DTYPES[i % 2])


def _tuples(rng: np.random.Generator, sizes: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    return np.stack([rng.integers(-n, n, shape) for n in sizes], axis=-1)


def _gathers(rng: np.random.Generator) -> Iterator[Case]:
    for i, dtype in enumerate(MOVABLE * 3):
        x = of_dtype(floats(*_shape(rng, 1 + i % 4), seed=i), dtype)
        axis = int(rng.integers(-x.ndim, x.ndim))
        counts = [int(rng.integers(1, n + 1)) for n in x.shape]
        counts[axis] = int(rng.integers(1, 9))
        index = _indices(rng, x.shape[axis], tuple(counts), i)
        yield Case("GatherElements", [x, index], {"axis": axis}, onnxruntime=dtype != "bfloat16")
        batch = int(rng.integers(0, x.ndim))
        depth = int(rng.integers(1, x.ndim - batch + 1))
        outer = x.shape[:batch] + _shape(rng, int(rng.integers(0 if batch else 1, 3)))
        index = _tuples(rng, x.shape[batch : batch + depth], outer)
        yield Case("GatherND", [x, index], {"batch_dims": batch}, onnxruntime=dtype != "bfloat16")
        if x.ndim > 1 and dtype != "bfloat16":
            time = i % 2
            lengths = rng.integers(0, x.shape[time] + 1, x.shape[1 - time])
            yield Case("ReverseSequence", [x, lengths], {"time_axis": time, "batch_axis": 1 - time}, onnxruntime=False)
    yield Case("GatherElements", [floats(3, 4), np.empty((0, 4), np.int64)])
    yield Case("GatherElements", [floats(100, 3), integers(150, 2, low=-100, high=100)], {"axis": 0})
    yield Case("GatherND", [floats(3, 4), np.empty((0, 2), np.int64)])


def _scatters(rng: np.random.Generator) -> Iterator[Case]:
    choices = [(d, "none") for d in MOVABLE] + [(d, r) for d in NUMBERS for r in ("add", "mul", "max", "min")]
    for i, (dtype, reduction) in enumerate(choices):
        x = _numbers(dtype, *_shape(rng, 1 + i % 4), seed=i)
        axis = int(rng.integers(-x.ndim, x.ndim))
        counts = [int(rng.integers(1, n + 1)) for n in x.shape]
        counts[axis] = int(rng.integers(1, x.shape[axis] + 1))
        # Without a reduction the order of writing is not laid down, so that indices must not meet.
        order = np.argsort(rng.random([*counts[:axis], x.shape[axis], *counts[axis % x.ndim + 1 :]]), axis)
        index = order.take(range(counts[axis]), axis) - (x.shape[axis] if i % 3 == 0 else 0)
        if reduction != "none":
            index = _indices(rng, x.shape[axis], tuple(counts), i)
        attrs: dict[str, Any] = {"axis": axis, "reduction": reduction}
        # onnxruntime wraps other integers than the host does
        updates = _numbers(dtype, *index.shape, seed=i + 1)
        yield Case("ScatterElements", [x, index.astype(INDEX_DTYPES[i % 2]), updates], attrs, onnxruntime=False)
        depth = int(rng.integers(1, x.ndim + 1))
        count = int(rng.integers(1, 5)) if reduction != "none" else 1
        tuples = _tuples(rng, x.shape[:depth], (count,))
        updates = _numbers(dtype, count, *x.shape[depth:], seed=i + 2)
        yield Case("ScatterND", [x, tuples, updates], {"reduction": reduction}, onnxruntime=False)
    yield Case("ScatterND", [floats(4, 700), np.array([[3], [0]]), floats(2, 700, seed=1)])
    yield Case("ScatterND", [floats(4, 700), np.array([[3], [3]]), floats(2, 700, seed=1)], {"reduction": "add"})
    yield Case("ScatterElements", [floats(3), np.array([2, 0]), SPECIAL[3:5]], {"reduction": "max"}, opset=18)
    yield Case("Scatter", [floats(3, 3), np.array([[1, 0, 2]]), floats(1, 3, seed=1)], opset=10)
    for dtype in MOVABLE:
        cache, new = of_dtype(floats(2, 3, 5, 4), dtype), of_dtype(floats(2, 3, 2, 4, seed=1), dtype)
        for mode, starts in (("linear", [3, 0]), ("circular", [4, 12]), ("linear", None)):
            operands = [cache, new, None if starts is None else np.array(starts)][: 3 if starts else 2]
            yield Case("TensorScatter", operands, {"mode": mode}, opset=24, onnxruntime=False)
    yield Case(
        "TensorScatter", [floats(2, 5), floats(2, 7)], {"mode": "circular", "axis": 1}, opset=24, onnxruntime=False
    )


def _rearrangements(rng: np.random.Generator) -> Iterator[Case]:
    for i, dtype in enumerate(MOVABLE):
        x = of_dtype(floats(*_shape(rng, 1 + i % 4), seed=i), dtype)
        yield Case("Tile", [x, ints(*rng.integers(1, 4, x.ndim))], onnxruntime=dtype != "bfloat16")
        peer = dtype in ("float32", "float64")
        for mode in ("DCR", "CRD"):
            deep = of_dtype(floats(2, 12, 3, 4, seed=i), dtype)
            yield Case("DepthToSpace", [deep], {"blocksize": 2, "mode": mode}, onnxruntime=peer)
        yield Case("SpaceToDepth", [of_dtype(floats(2, 3, 4, 6), dtype)], {"blocksize": 2}, onnxruntime=peer)
        for k in (-7, -1, 0, 2, 9):
            for upper in (0, 1):
                shape = (*_shape(rng, int(rng.integers(0, 3))), 4, 6)[-4:]
                x = of_dtype(floats(*shape, seed=i), dtype)
                yield Case("Trilu", [x, ints(k)], {"upper": upper}, onnxruntime=dtype != "bfloat16")
        if dtype != "bfloat16":
            yield Case("EyeLike", [of_dtype(floats(3, 5), dtype)], {"k": i - 3}, onnxruntime=False)
    yield Case("Tile", [floats(2, 3), ints(0, 2)])
    yield Case("Tile", [floats(2, 1, 3, 4), ints(1, 3, 1, 2)])
    yield Case("DepthToSpace", [floats(1, 27, 2, 2)], {"blocksize": 3})
    yield Case("SpaceToDepth", [floats(1, 1, 6, 3)], {"blocksize": 3})
    yield Case("Trilu", [floats(3, 3)])
    yield Case("Trilu", [floats(2, 0, 3)])
    yield Case("EyeLike", [floats(2, 2)], {"dtype": 7})


def _selections(rng: np.random.Generator) -> Iterator[Case]:
    for i, dtype in enumerate(NUMBERS * 3):
        x = _numbers(dtype, *_shape(rng, 1 + i % 4, high=9), seed=i)
        axis = int(rng.integers(-x.ndim, x.ndim))
        last, keep = i // 2 % 2, i % 2
        for op in ("ArgMax", "ArgMin"):
            attrs = {"axis": axis, "select_last_index": last, "keepdims": keep}
            yield Case(op, [x], attrs)
        count = int(rng.integers(0, x.shape[axis] + 1))
        attrs = {"axis": axis, "largest": last, "sorted": int(i % 5 > 0)}
        # in what order unsorted results come is not laid down
        yield Case("TopK", [x, ints(count)], attrs, outputs=2, onnxruntime=bool(attrs["sorted"]))
        if dtype in ("float32", "float64"):
            yield Case("Hardmax", [x], {"axis": axis})
            yield Case("Hardmax", [x], {"axis": axis % x.ndim}, opset=11, reference=False)
        places = rng.integers(-9, 9, _shape(rng, 1 + i % 3)).astype(INDEX_DTYPES[i % 2])
        values = of_dtype(np.array([1.0, 5.0]), dtype)
        place = int(rng.integers(-places.ndim - 1, places.ndim + 1))
        yield Case("OneHot", [places, Const(np.array(6)), values], {"axis": place}, onnxruntime=False)
    extremes = np.stack([SPECIAL, SPECIAL[::-1], np.roll(SPECIAL, 5), np.ones_like(SPECIAL)])
    for axis in (0, 1):
        for flag in (0, 1):
            for op in ("ArgMax", "ArgMin"):  # the peer ignores NaN
                yield Case(op, [extremes], {"axis": axis, "select_last_index": flag}, onnxruntime=False)
            yield Case(
                "TopK",
                [extremes, ints(3)],
                {"axis": axis, "largest": flag},
                outputs=2,
                onnxruntime=False,
                reference=False,
            )
    big = floats(3, 5000)
    yield Case("ArgMax", [big], {"axis": 1})
    yield Case("ArgMax", [big], {"axis": 0})
    yield Case("TopK", [big, ints(40)], outputs=2)
    yield Case("TopK", [floats(4, 5)], {"k": 2}, opset=9, outputs=2)


def _running() -> Iterator[Case]:
    for i, dtype in enumerate(d for d in NUMBERS if d[-2:] in ("32", "64")):
        for axis in (0, 1, -1):
            flags = {"exclusive": i % 2, "reverse": i // 2 % 2}
            x = _numbers(dtype, 3, 4, 70, seed=i)
            peer = not dtype.startswith("u")
            yield Case("CumSum", [x, Const(np.array(axis))], flags, onnxruntime=peer)
            yield Case("CumProd", [x % x.dtype.type(3), Const(np.array(axis))], flags, opset=26, onnxruntime=False)
    yield Case("CumSum", [floats(2, 0, 3), Const(np.array(1))], {"exclusive": 1})
    yield Case("CumSum", [floats(7), Const(np.array([0]))])


def _places() -> Iterator[Case]:
    for dtype in ("float32", "int8", "bool", "int64", "float16"):
        yield Case(
            "NonZero", [integers(3, 5, 7, low=0, high=2).astype(dtype)], onnxruntime=dtype not in ("int8", "float16")
        )
    yield Case("NonZero", [np.array([0.0, -0.0, np.nan, np.inf], np.float32)])
    yield Case("NonZero", [integers(9000, low=0, high=2, dtype="int32")])
    yield Case("NonZero", [np.zeros((4, 3), np.float32)], onnxruntime=False)
    yield Case("NonZero", [floats(4, 0, 3)], onnxruntime=False)


def _suppressions() -> Iterator[Case]:
    boxes = np.sort(floats(2, 50, 2, 2, low=0, high=9), axis=2).reshape(2, 50, 4)
    scores = integers(2, 3, 50, low=0, high=20, dtype="float32") / np.float32(16)  # many are equal
    limit, overlap, least = ints(5), Const([0.3]), Const([0.25])
    many = np.sort(floats(1, 500, 2, 2, low=0, high=30), axis=2).reshape(1, 500, 4)
    tied = np.round(floats(1, 2, 500, seed=2, low=0, high=1), 2)
    for most in (1, 65, 500):
        yield Case("NonMaxSuppression", [many, tied, ints(most), Const([0.4]), Const([0.1])])
    for threshold in (0.0, 0.7, 1.0):
        yield Case("NonMaxSuppression", [boxes, scores, limit, np.array([threshold], "f4")])
    yield Case("NonMaxSuppression", [boxes, scores, limit, overlap, Const([9.0])], onnxruntime=False)
    for center in (0, 1):
        attrs = {"center_point_box": center}
        yield Case("NonMaxSuppression", [boxes, scores, limit, overlap, least], attrs)
        yield Case("NonMaxSuppression", [boxes, scores, np.array([50]), np.array([0.5], "f4")], attrs, opset=10)
    yield Case("NonMaxSuppression", [boxes[..., [2, 3, 0, 1]], scores, limit, None, least])
    yield Case("NonMaxSuppression", [boxes, scores])
    yield Case("NonMaxSuppression", [boxes, scores, ints(0)])
    yield Case("NonMaxSuppression", [boxes, scores, ints(2**63 - 1), overlap, least])
    yield Case("NonMaxSuppression", [boxes[:1, :1], scores[:1, :1, :1], limit, overlap, Const([-1.0])])
    yield Case("NonMaxSuppression", [boxes[:, :0], scores[:, :, :0], limit], onnxruntime=False)


def gathers() -> Iterator[Case]:
    for dtype in MOVABLE:
        yield Case("Gather", [of_dtype(floats(5, 3), dtype), np.array([[0, 4], [-1, -5]])])
    x = floats(2, 3, 4, 5)
    for axis in (0, 1, 2, 3, -1, -4):
        yield Case("Gather", [x, np.array([1, 0, -1, 1], np.int32)], {"axis": axis})
        yield Case("Gather", [x, ints(0, 1)], {"axis": axis})
    yield Case("Gather", [floats(7), np.array(-2)])
    yield Case("Gather", [floats(7, 2), np.empty((0, 3), np.int64)])
    yield Case("Gather", [floats(3, 0), np.array([1, 2])])
    yield Case("Gather", [Const(floats(9, 4)), np.array([[8, 0, 3]])])


def edges() -> Iterator[Case]:
    """What is selected by values, and what is out of bounds."""
    x, truths = floats(3, 4), np.array([True, False, True])
    yield Case("Compress", [x, truths], {"axis": 0})
    yield Case("Compress", [x, np.array([False, True])], {"axis": -1})
    yield Case("Compress", [x, truths])
    yield Case("Unique", [integers(9, low=0, high=4)], outputs=4)
    yield Case("Unique", [integers(4, 2, low=0, high=2)], {"axis": 0}, outputs=4)
    yield Case("Unique", [integers(9, low=0, high=4)], {"sorted": 0}, outputs=4)
    for axis in (0, 1, -1):
        for ordered in (0, 1):
            few = np.array([[2, 1, 1], [3, 1, 1], [2, 1, 1]], np.float32)
            yield Case("Unique", [few], {"sorted": ordered, "axis": axis}, outputs=4)
    yield Case("Gather", [x, np.array([3])], refused=OUTSIDE)
    yield Case("Gather", [x, ints(3)], refused=OUTSIDE)
    yield Case("Gather", [x, ints(0)], {"axis": 2}, refused="Gather")
    yield Case("GatherElements", [x, np.array([[0, 4]])], {"axis": 1}, refused=OUTSIDE)
    yield Case("GatherND", [x, np.array([[3, 0]])], refused=OUTSIDE)
    yield Case("ScatterElements", [x, np.array([[5]]), floats(1, 1)], refused=OUTSIDE)
    yield Case("ScatterND", [x, np.array([[3]]), floats(1, 4)], refused=OUTSIDE)
    yield Case("ScatterND", [x, np.array([[1]]), floats(1, 3)], refused="ScatterND")
    yield Case("OneHot", [np.array([1, -1, 9]), np.array(3), floats(2)])
    yield Case("OneHot", [np.array([1, -1, 9]), Const(np.array([3])), floats(2)], {"axis": 0})


def declined() -> Iterator[Case]:
    """What the C target leaves to the host, with the reason."""
    yield Case(
        "ScatterND",
        [floats(3).astype("f2"), ints(0).array[:, None], floats(1).astype("f2")],
        {"reduction": "add"},
        host="reduction add of float16",
    )


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from indexing()
    yield from gathers()
    yield from edges()
    yield from declined()
