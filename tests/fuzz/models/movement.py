"""Operators that move elements: permutations, views, pieces, copies, gathering and scattering."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.models.build import Builder, UnsuitableError, Value


def _moved(b: Builder, op: str, x: Value, *others: Value | None, **attrs: Any) -> Value:
    return b.add(op, [x, *others], bound=x.bound, step=x.step, **attrs)


def _axis(b: Builder, x: Value) -> int:
    """Return an axis, counted from the end half of the time."""
    axis = b.rng.randrange(x.rank)
    return axis - x.rank if b.rng.random() < 0.5 else axis


def transpose(b: Builder) -> Value:
    """Transpose by any permutation, or the reverse by default."""
    x = b.pick(lambda v: v.rank >= 2)
    perm = b.rng.sample(range(x.rank), x.rank)
    return _moved(b, "Transpose", x, **({"perm": perm} if b.rng.random() < 0.9 else {}))


def reshape(b: Builder) -> Value:
    """Reshape: dimensions joined, split, kept by 0, left open by -1."""
    x = b.pick(lambda v: v.size > 1)
    dims: list[int] = list(x.shape)
    for _ in range(b.rng.randint(1, 3)):
        if len(dims) > 1 and b.rng.random() < 0.5:
            at = b.rng.randrange(len(dims) - 1)
            dims[at : at + 2] = [dims[at] * dims[at + 1]]
        elif dims and len(dims) < 5:
            at = b.rng.randrange(len(dims))
            factor = b.rng.choice([d for d in range(1, dims[at] + 1) if dims[at] % d == 0])
            dims[at : at + 1] = [factor, dims[at] // factor]
    wanted = list(dims)
    if b.rng.random() < 0.6:
        wanted[b.rng.randrange(len(wanted))] = -1
    if wanted[0] == x.shape[0] and b.rng.random() < 0.5:
        wanted[0] = 0
    return _moved(b, "Reshape", x, b.constant(wanted))


def flatten(b: Builder) -> Value:
    """Flatten at any axis."""
    x = b.pick(lambda v: v.rank >= 1)
    return _moved(b, "Flatten", x, axis=b.rng.randint(-x.rank, x.rank))


def squeeze(b: Builder) -> Value:
    """Squeeze what has size one, or Unsqueeze anywhere."""
    x = b.pick(lambda v: v.rank < 5)
    ones = [i for i, d in enumerate(x.shape) if d == 1]
    if ones and b.rng.random() < 0.6:
        axes = b.rng.sample(ones, b.rng.randint(1, len(ones)))
        return _moved(b, "Squeeze", x, b.constant(axes) if b.rng.random() < 0.8 else None)
    rank = x.rank + b.rng.randint(1, 2)
    axes = b.rng.sample(range(rank), rank - x.rank)
    return _moved(b, "Unsqueeze", x, b.constant([a - rank if b.rng.random() < 0.3 else a for a in axes]))


def slice_(b: Builder) -> Value:
    """Slice along some axes: with steps, backwards, with limits that lie outside."""
    x = b.pick(lambda v: v.rank >= 1)
    axes = b.rng.sample(range(x.rank), b.rng.randint(1, min(2, x.rank)))
    starts, ends, steps = [], [], []
    for axis in axes:
        size, step = x.shape[axis], b.rng.choice((1, 1, 1, 2, 3, -1, -2))
        low = b.rng.randrange(size)
        high = b.rng.randint(low + 1, size)
        if step > 0:
            start, end = low, b.rng.choice((high, high - size - (high == size) * 0 or high, (1 << 63) - 1))
        else:
            start, end = b.rng.choice((high - 1, size + 3, -1)), b.rng.choice((low - 1 - size, -(1 << 63)))
        starts.append(start)
        ends.append(end)
        steps.append(step)
    operands = [b.constant(starts), b.constant(ends), b.constant(axes), b.constant(steps)]
    return _moved(b, "Slice", x, *operands[: 4 if any(s != 1 for s in steps) else b.rng.choice((3, 4))])


def concat(b: Builder) -> Value:
    """Concat of up to four operands, one of them constant or the same twice now and then."""
    x = b.pick(lambda v: v.rank >= 1 and v.dtype != "bool")
    axis = _axis(b, x)
    at = axis % x.rank
    operands = [x]
    for _ in range(b.rng.randint(1, 3)):
        shape = (*x.shape[:at], *x.shape[at + 1 :])
        fitting = [
            v for v in b.visible()
            if v.dtype == x.dtype and v.rank == x.rank and (*v.shape[:at], *v.shape[at + 1 :]) == shape
        ]  # fmt: skip
        if fitting and b.rng.random() < 0.8:
            operands.append(b.rng.choice(fitting))
        else:
            operands.append(b.weights(x.dtype, (*x.shape[:at], b.rng.randint(1, 9), *x.shape[at + 1 :])))
    b.rng.shuffle(operands)
    bound, step = max(v.bound for v in operands), min(v.step for v in operands)
    return b.add("Concat", operands, bound=bound, step=step, axis=axis)


def split(b: Builder) -> Value:
    """Split into equal parts, or parts of given sizes."""
    x = b.pick(lambda v: any(d > 1 for d in v.shape))
    axis = b.rng.choice([i for i, d in enumerate(x.shape) if d > 1])
    size, parts = x.shape[axis], b.rng.randint(2, min(4, x.shape[axis]))
    cuts = sorted(b.rng.sample(range(1, size), parts - 1))
    sizes: Value | None = b.constant([high - low for low, high in zip([0, *cuts], [*cuts, size], strict=True)])
    attrs = {}
    if b.rng.random() < 0.5 and (size % parts == 0 or (b.opset >= 18 and math.ceil(size / parts) * (parts - 1) < size)):
        sizes = None
        attrs = {"num_outputs": parts} if b.opset >= 18 else {}
    return b.rng.choice(b.add_all("Split", [x, sizes], bound=x.bound, step=x.step, outputs=parts, axis=axis, **attrs))


def pad(b: Builder) -> Value:
    """Pad in all modes; negative pads cut."""
    x = b.pick(lambda v: v.rank >= 1 and v.dtype in ("float32", "int32", "int64", "float64"))
    mode = b.rng.choice(("constant", "constant", "constant", "reflect", "edge"))
    most = [d - 1 if mode == "reflect" else 3 for d in x.shape]
    pads = [b.rng.randint(0, min(3, m)) if b.rng.random() < 0.5 else 0 for m in most * 2]
    if mode == "constant" and b.rng.random() < 0.15 and x.shape[-1] > 2:
        pads[-1] = -1
    value = b.weights(x.dtype, ()) if mode == "constant" and b.rng.random() < 0.5 else None
    bound = max(x.bound, value.bound if value else 0.0)
    step = min(x.step, value.step if value else 1.0)
    return b.add("Pad", [x, b.constant(pads), value], bound=bound, step=step, mode=mode)


def expand(b: Builder) -> Value:
    """Expand what has size one, or Tile anything."""
    x = b.pick(lambda v: v.size < 2000)
    if b.rng.random() < 0.5 and x.rank:
        return _moved(b, "Tile", x, b.constant([b.rng.choice((1, 1, 2, 3)) for _ in x.shape]))
    shape = [b.rng.randint(1, 4) if d == 1 else b.rng.choice((1, d)) for d in x.shape]
    shape = [b.rng.randint(1, 3)] + shape if b.rng.random() < 0.2 else shape[b.rng.choice((0, 0, 1)) :]
    return _moved(b, "Expand", x, b.constant(shape))


def depth_to_space(b: Builder) -> Value:
    """DepthToSpace and SpaceToDepth."""
    x = b.pick_float(lambda v: v.rank == 4, ("float32",))
    if x.shape[1] % 4 == 0:
        return _moved(b, "DepthToSpace", x, blocksize=2, mode=b.rng.choice(("DCR", "CRD")))
    if x.shape[2] % 2 or x.shape[3] % 2:
        raise UnsuitableError
    return _moved(b, "SpaceToDepth", x, blocksize=2)


# Indices --------------------------------------------------------------------------------------------------------------


def _indices(b: Builder, size: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return indices below ``size``, some of them counted from the end."""
    found = b.arrays.integers(0, size, shape)
    return (found - size * (b.arrays.random(shape) < 0.2)).astype(b.rng.choice((np.int64, np.int64, np.int32)))


def gather(b: Builder) -> Value:
    """Gather, GatherElements and GatherND by constant indices."""
    x = b.pick(lambda v: v.rank >= 1)
    axis = _axis(b, x)
    size = x.shape[axis]
    choice = b.rng.random()
    if choice < 0.6:
        shape = b.rng.choice(((), (1,), (b.rng.randint(1, 6),), (2, b.rng.randint(1, 4))))
        return _moved(b, "Gather", x, b.constant(_indices(b, size, shape)), axis=axis)
    if choice < 0.8:
        shape = tuple(b.rng.randint(1, d) for d in x.shape)
        return _moved(b, "GatherElements", x, b.constant(_indices(b, size, shape)), axis=axis)
    depth = b.rng.randint(1, x.rank)
    columns = [_indices(b, d, (b.rng.randint(1, 4),) * 0 + (3,)).astype(np.int64) for d in x.shape[:depth]]
    return _moved(b, "GatherND", x, b.constant(np.stack(columns, -1)))


def scatter(b: Builder) -> Value:
    """ScatterElements and ScatterND; no place is written twice unless the order does not matter."""
    x = b.pick(lambda v: v.rank >= 1 and v.dtype in ("float32", "int64", "int32"))
    size = x.shape[0]
    rows = b.rng.sample(range(size), b.rng.randint(1, size))
    if b.rng.random() < 0.5:
        updates = b.weights(x.dtype, (len(rows), *x.shape[1:]))
        indices = b.constant(np.array(rows, np.int64)[:, None])
        op, attrs = "ScatterND", {}
    else:
        updates = b.weights(x.dtype, (len(rows), *x.shape[1:]))
        grid = np.broadcast_to(np.array(rows, np.int64).reshape(-1, *[1] * (x.rank - 1)), updates.shape)
        indices, op, attrs = b.constant(np.ascontiguousarray(grid)), "ScatterElements", {"axis": 0}
    if b.opset >= 16 and b.rng.random() < 0.3:
        attrs["reduction"] = "add"
    bound, step = x.bound + updates.bound, min(x.step, updates.step)
    return b.add(op, [x, indices, updates], bound=bound, step=step, **attrs)


def shape_of(b: Builder) -> Value:
    """A reshape whose sizes are computed by the model itself, as exporters write it."""
    x = b.pick(lambda v: v.rank >= 2)
    sizes = b.add("Shape", [x], bound=1e4)
    first = b.add("Gather", [sizes, b.constant([0])], bound=1e4, axis=0)
    wanted = b.add("Concat", [first, b.constant([-1])], bound=1e4, axis=0)
    # What the sizes are is known here, but onnx does not look through several nodes.
    known = b.constant([x.shape[0], -1])
    y = _moved(b, "Reshape", x, known)
    b.nodes[-1].input[1] = wanted.name
    return y


def trilu(b: Builder) -> Value:
    """The upper or lower triangle."""
    x = b.pick(lambda v: v.rank >= 2 and v.dtype in ("float32", "int64", "float64"))
    k = b.constant(np.array(b.rng.randint(-2, 2))) if b.rng.random() < 0.5 else None
    return _moved(b, "Trilu", x, k, upper=b.rng.randint(0, 1))


def one_hot(b: Builder) -> Value:
    """OneHot of random classes, along any axis."""
    classes = b.constant(b.arrays.integers(-5, 5, (b.rng.randint(1, 4), 3)))
    values = b.constant(np.array([0.25, 2.0], np.float32), step=0.25)
    return b.add(
        "OneHot", [classes, b.constant(np.array(5)), values], bound=2.0, step=0.25, axis=b.rng.choice((-1, 0, 1))
    )


FAMILIES = {
    transpose: 4, reshape: 4, flatten: 1, squeeze: 2, slice_: 3, concat: 3, split: 2, pad: 2, expand: 1.5,
    depth_to_space: 0.7, gather: 2, scatter: 0.6, shape_of: 1, trilu: 0.4, one_hot: 0.2,
}  # fmt: skip
