"""What operators compute whose sizes a run shows: float progressions, crops to a size, affine grids, selections.

Sizes that a float says become an integer tensor, and those a target may read where a region begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import REALS, Body, Definition, dtype_of, is_float32
from tinycomp.ir.graph import Node, Value

_WHOLE = ("int32", "int64")


def _range(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define a float progression by an integer one, whose step is 0 only where the other's is."""
    start, limit, delta = operands[:3]
    if start is None or limit is None or delta is None:
        return None
    first, end, step = (body.reshape(body.cast(v, "float64"), []) for v in (start, limit, delta))
    zero, nothing = body.const(np.float64(0)), body.const(np.int64(0))
    ratio = body("Div", body("Sub", end, first), step)
    is_finite = body("Equal", body("Sub", ratio, ratio), zero)
    count = body.cast(body("Max", body("Ceil", body("Where", is_finite, ratio, zero)), zero), "int64")
    stride = body("Where", body("Equal", step, zero), nothing, body.const(np.int64(1)))
    places = body.cast(body("Range", nothing, count, stride), "float32")
    wide = [body.reshape(body.cast(v, "float32"), []) for v in (start, delta)]
    return body.cast(body("Add", wide[0], body("Mul", places, wide[1])), dtype_of(start))


def _one_hot(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    indices, depth, values = operands[:3]
    if indices is None or depth is None or values is None:
        return None
    if indices.dtype not in _WHOLE:
        indices = body.cast(indices, "int64")
    if depth.dtype not in _WHOLE:
        size = body.cast(depth, "float64")  # one that is not finite is refused, as a negative one is
        is_finite = body("Equal", body("Sub", size, size), body.const(np.float64(0)))
        depth = body("Where", is_finite, body.cast(depth, "int64"), body.const(np.int64(-1)))
    return body("OneHot", indices, depth, values, **node.attrs)


def _center_crop_pad(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define it by a slice and a pad; what is odd is cut or added behind."""
    x, shape = operands[:2]
    if x is None or shape is None or x.rank is None:
        return None
    axes = body.ints(*(int(axis) for axis in node.attrs.get("axes", range(x.rank))))
    dims, wanted = body("Gather", body("Shape", x), axes), body.cast(shape, "int64")
    nothing, two = body.ints(0), body.ints(2)
    start = body("Div", body("Max", body("Sub", dims, wanted), nothing), two)
    length = body("Max", body("Min", dims, wanted), nothing)
    kept = body("Slice", x, start, body("Add", start, length), axes)
    missing = body("Sub", wanted, length)
    before = body("Div", body("Max", missing, nothing), two)
    return body("Pad", kept, body("Concat", before, body("Sub", missing, before), axis=0), None, axes)


def _compress(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Gather where the condition holds."""
    x, condition = operands[:2]
    if x is None or condition is None or condition.rank != 1:
        return None
    axis = node.attrs.get("axis")
    places = body.reshape(body("NonZero", condition), [-1])
    return body("Gather", body.reshape(x, [-1]) if axis is None else x, places, axis=int(axis or 0))


def _affine_grid(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Add up what each axis contributes to a point: its centres times a column of the map.

    Each coordinate is a plane at first, since points of two or three are short for vectors.
    """
    theta, size = operands[:2]
    if theta is None or size is None or not size.static_shape:
        return None
    rank = size.static_shape[0] - 2
    if rank < 1 or theta.shape is None or theta.shape[1:] != (rank, rank + 1):
        return None
    total = _column(body, theta, rank, rank)
    for axis in range(rank):
        length = body.reshape(body("Slice", body.cast(size, "int64"), body.ints(2 + axis), body.ints(3 + axis)), [])
        centres = _centres(body, length, bool(node.attrs.get("align_corners", 0)))
        along = body.reshape(centres, [1, 1, *[1] * axis, -1, *[1] * (rank - axis - 1)])
        total = body("Add", body("Mul", along, _column(body, theta, rank - 1 - axis, rank)), total)
    return body("Transpose", total, perm=[0, *range(2, rank + 2), 1])


def _mel_weight_matrix(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define it by the triangles over three neighbouring bins of each band, in double."""
    given = [v for v in operands[:5] if v is not None]
    if len(given) != 5 or any(v.dtype == "string" for v in given):
        return None
    bands, length, rate = (body.reshape(body.cast(v, "int64"), []) for v in given[:3])
    zero, one, two = (body.const(np.int64(n)) for n in range(3))

    def double(value: float) -> Value:
        return body.const(np.float64(value))

    ends = [
        body("Log", body("Add", double(1), body("Div", body.reshape(body.cast(v, "float64"), []), double(700))))
        for v in given[3:]
    ]
    points = body("Add", bands, two)
    share = body("Div", body.cast(body("Range", zero, points, one), "float64"), body.cast(points, "float64"))
    mel = body("Add", ends[0], body("Mul", share, body("Sub", ends[1], ends[0])))
    hertz = body("Mul", double(700), body("Sub", body("Exp", mel), double(1)))
    wide = body("Mul", body.cast(body("Add", length, one), "float64"), hertz)
    bins = body("Floor", body("Div", wide, body.cast(rate, "float64")))
    lower, centre, upper = (
        body(
            "Slice", bins, body.ints(i), body.ints(i - 2) if i < 2 else body.ints(np.iinfo(np.int64).max), body.ints(0)
        )
        for i in range(3)
    )
    count = body("Add", body("Div", length, two), one)
    place = body("Unsqueeze", body.cast(body("Range", zero, count, one), "float64"), body.ints(1))
    width = body("Sub", centre, lower)
    is_sharp = body("Equal", width, double(0))
    rising = body("Div", body("Sub", place, lower), body("Where", is_sharp, double(1), width))
    rising = body("Where", is_sharp, double(1), rising)
    fall = body("Sub", upper, centre)
    falling = body("Div", body("Sub", upper, place), body("Max", fall, double(1)))
    on_left = body("And", body("GreaterOrEqual", place, lower), body("LessOrEqual", place, centre))
    on_right = body("And", body("GreaterOrEqual", place, centre), body("Less", place, upper))
    weights = body("Where", on_right, falling, body("Where", on_left, rising, double(0)))
    return body.cast(weights, node.output.dtype)


def _column(body: Body, theta: Value, place: int, rank: int) -> Value:
    """Return a column of a batch of maps as planes of one element, which stand for every point of a grid."""
    column = body("Slice", theta, body.ints(place), body.ints(place + 1), body.ints(2))
    return body.reshape(column, [-1, rank, *[1] * rank])


def _centres(body: Body, length: Value, aligned: bool) -> Value:
    """Return where the cells of an axis from -1 to 1 have their centres, or their corners with ``aligned``."""
    zero, one = body.const(np.int64(0)), body.const(np.int64(1))
    places = body.cast(body("Range", zero, length, one), "float32")
    if aligned:
        steps = body("Sub", length, one)
        first = body.cast(body("Min", steps, one), "float32")  # a single one lies in the middle
        span = body.cast(body("Max", steps, one), "float32")
        return body("Sub", body("Div", body("Mul", places, body.float32(2)), span), first)
    doubled = body("Add", body("Mul", places, body.float32(2)), body.float32(1))
    return body("Sub", body("Div", doubled, body.cast(length, "float32")), body.float32(1))


def _is_float(node: Node) -> bool:
    return dtype_of(node.operand(0)) in REALS


DEFINITIONS = MappingProxyType({
    "AffineGrid": Definition(_affine_grid, is_float32),
    "CenterCropPad": Definition(_center_crop_pad),
    "Compress": Definition(_compress),
    "MelWeightMatrix": Definition(_mel_weight_matrix),
    "OneHot": Definition(_one_hot, lambda node: any(dtype_of(v) not in _WHOLE for v in node.inputs[:2])),
    "Range": Definition(_range, _is_float),
})  # fmt: skip
