"""Operators that copy elements without looking at their values: Transpose to ReverseSequence, and Pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.memory.budget import reserve, reserve_bytes
from tinycomp.ops.contents import moved
from tinycomp.ops.numeric import Array, ints, scalar_int
from tinycomp.ops.record import ANY_NUMBER, OpFamily
from tinycomp.ops.rule import Facts, Results, known_of, shape_text
from tinycomp.symbolic import FARTHEST, Size, bounds, if_zero, marked_axes, maximum, minimum

FAMILY = OpFamily("movement")


@FAMILY.op("Transpose", traits={"movement"})
def transpose(x: Array, *, perm: Sequence[int] | None = None) -> Array:
    """Return the axes in the order ``perm``, or reversed."""
    return x.transpose(perm)


@FAMILY.infer("Transpose", contents=moved(1))
def _transpose_rule(facts: Facts) -> Results:
    shape, perm, rank = facts.shape(0), facts.attr("perm"), facts.rank(0)
    if perm is None:
        return [facts.tensor(facts.dtype(0), None if shape is None else shape[::-1])]
    rank = len(perm) if rank is None else rank
    facts.require(sorted(perm) == [*range(rank)], "perm is not a permutation",
                  expected=f"each of 0 to {rank - 1} once", found=list(perm))  # fmt: skip
    return [facts.tensor(facts.dtype(0), [None if shape is None else shape[axis] for axis in perm])]


@FAMILY.op("Concat", since=4, traits={"movement"})
def concat(*inputs: Array, axis: int) -> Array:
    """Return the inputs one after the other along ``axis``."""
    reserve_bytes(sum(x.nbytes for x in inputs), "Concat")
    return np.concatenate(inputs, axis)


@FAMILY.infer("Concat", contents=moved(ANY_NUMBER))
def _concat_rule(facts: Facts) -> Results:
    operands, axis = [index for index in range(facts.count) if facts.has(index)], int(facts.attr("axis", 1))
    shapes = {index: shape for index in operands if (shape := facts.shape(index)) is not None}
    if not shapes:
        return [facts.tensor(facts.first_dtype(), None)]
    first = next(iter(shapes.values()))
    fixed, result = facts.require_axis(axis, len(first)), list(first)
    for index, shape in shapes.items():
        facts.require_rank(index, len(first))
        for place, size in enumerate(shape):
            if place != fixed:
                message = f"the operands differ outside axis {fixed}"
                result[place] = facts.require_equal(size, result[place], message)
    lengths = [shape[fixed] for shape in shapes.values()]
    result[fixed] = None if len(shapes) < len(operands) or None in lengths else sum(known_of(lengths), start=0)
    return [facts.tensor(facts.first_dtype(), result)]


_MOST_PIECES = 1 << 16


def even_sizes(total: Size, parts: int) -> list[Size]:
    """Return the sizes of ``parts`` equal pieces; what comes last is smaller, or empty."""
    if total % parts == 0:
        return [total // parts] * parts
    chunk = (total + parts - 1) // parts
    return [maximum(minimum(chunk, total - i * chunk), 0) for i in range(parts)]


@FAMILY.op("Split", since=18, traits={"movement", "output_count"})
def split(
    x: Array, sizes: Array | None = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Array, ...]:
    """Return pieces along ``axis``: of the given sizes, or equal with a smaller last one."""
    parts = even_sizes(x.shape[axis], num_outputs or outputs) if sizes is None else ints(sizes)
    return tuple(np.split(x, np.cumsum(np.array(parts, np.int64))[:-1], axis))


@FAMILY.op("Split", since=13, traits={"movement", "output_count"})
def split_13(x: Array, sizes: Array | None = None, *, axis: int = 0, outputs: int = 1) -> tuple[Array, ...]:
    """Split as before opset 18, where equal pieces must be exactly equal."""
    return split(x, sizes, axis=axis, outputs=outputs)


@FAMILY.op("Split", since=2, traits={"movement", "output_count"})
def split_attribute(
    x: Array, *, axis: int = 0, split: Sequence[int] | None = None, outputs: int = 1
) -> tuple[Array, ...]:
    """Split as before opset 13, with the sizes as an attribute."""
    return split_13(x, np.array(split) if split else None, axis=axis, outputs=outputs)


_MAY_BE_UNEVEN = 18
"""Since this version of Split the last piece may be smaller without sizes that say so."""


@FAMILY.infer("Split", sizing=(1,), contents=moved(1))
def _split_rule(facts: Facts) -> Results:
    shape, least = facts.shape(0), len(facts.node.outputs)
    axis = facts.require_axis(int(facts.attr("axis", 0)), facts.rank(0))
    given: Sequence[Size | None] | None = facts.attr("split") or facts.elements(1)
    parts, whole = facts.attr("num_outputs"), None if shape is None else shape[axis]
    if facts.has_ints(1, "split") and (facts.has(1) or given):
        facts.require(parts is None, "both sizes and num_outputs are given", expected="one of them", found=parts)
        lengths = [None] * least if given is None else _given_lengths(facts, given, whole, axis)
    elif facts.version < _MAY_BE_UNEVEN:
        facts.require_divisible(whole, least, f"{least} equal pieces of axis {axis}")
        lengths = [None if whole is None else whole // least] * least
    else:
        if parts is None:
            facts.fail("neither sizes nor num_outputs are given", expected="one of them")
        # Results at the end may be left out.
        facts.require(least <= parts <= _MOST_PIECES, "num_outputs does not fit the results",
                      expected=f"at least {least}, and up to {_MOST_PIECES}", found=parts)  # fmt: skip
        lengths = [None] * parts if whole is None else even_sizes(whole, parts)
    if shape is None:
        return [facts.tensor(facts.dtype(0), None)] * len(lengths)
    return [facts.tensor(facts.dtype(0), (*shape[:axis], length, *shape[axis + 1 :])) for length in lengths]


def _given_lengths(facts: Facts, given: Sequence[Size | None], whole: Size | None, axis: int) -> Sequence[Size | None]:
    """Demand as many sizes as there are results, which sum to the axis; return them."""
    least = len(facts.node.outputs)
    expected = f"{least} sizes of 0 or more that sum to {'the whole' if whole is None else whole}"
    text = f"the sizes do not split axis {axis}"
    known = [size for size in given if size is not None]
    is_right = len(given) == least and all(size >= 0 for size in known if isinstance(size, int))
    facts.require(is_right, text, expected=expected, found=shape_text(tuple(given)))
    for size in known:
        facts.require_at_least(size, 0, text)
    if len(known) == len(given) and whole is not None:
        total = sum(known, start=0)
        if isinstance(total, int) and isinstance(whole, int):
            facts.require(total == whole, text, expected=expected, found=shape_text(tuple(given)))
        facts.require_equal(whole, total, text)
    elif len(known) == len(given) - 1 and whole is not None:  # which follows
        rest = whole - sum(known, start=0)
        facts.require_at_least(rest, 0, text)
        return [rest if size is None else size for size in given]
    return given


def _slice(
    x: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Array:
    picks: list[Any] = [slice(None)] * x.ndim
    chosen = range(len(starts)) if axes is None else axes
    for start, end, axis, step in zip(starts, ends, chosen, steps or [1] * len(starts), strict=True):
        picks[axis] = _range_of(x.shape[axis], start, end, step)
    return np.asarray(x[tuple(picks)])


def _range_of(size: int, start: int, end: int, step: int) -> slice:
    """Return the Python slice for ONNX's bounds, which clamp an end below ``-size`` to "before the first element"."""
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    end = min(max(end, -1), size - 1)
    start = min(max(start, -1), size - 1)
    if start < 0 or start <= end:
        return slice(0, 0)
    return slice(start, None if end < 0 else end, step)


@FAMILY.op("Slice", since=10, traits={"movement"})
def slice_(x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None) -> Array:
    """Return elements from ``starts`` to ``ends`` by ``steps`` along ``axes``; negative bounds count from the end."""
    return _slice(
        x, ints(starts), ints(ends), None if axes is None else ints(axes), None if steps is None else ints(steps)
    )


@FAMILY.op("Slice", since=1, traits={"movement"})
def slice_attributes(
    x: Array, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Array:
    """Slice as before opset 10, with attributes."""
    return _slice(x, starts, ends, axes, None)


@FAMILY.infer("Slice", sizing=(1, 2, 3, 4), contents=moved(1))
def _slice_rule(facts: Facts) -> Results:
    shape = facts.shape(0)
    given = [_bounds_given(facts, *each) for each in enumerate(("starts", "ends", "axes", "steps"), 1)]
    lengths = {len(numbers) for numbers in given if numbers is not None}
    facts.require(len(lengths) < 2, "starts, ends, axes and steps differ in length", expected="one length",
                  found=sorted(lengths))  # fmt: skip
    steps = [step for step in given[3] or () if step is not None]
    facts.require(0 not in steps, "a step is 0", expected="steps other than 0", found=steps)
    for step in steps:
        facts.demand(if_zero(step, 1, 0), "a step is 0")
    if shape is None:
        return [facts.tensor(facts.dtype(0), None)]
    axes = given[2] if facts.has_ints(3, "axes") else [*range(len(given[0] or ()))]
    if axes is not None and None not in axes:
        facts.require_axes_or_elements(known_of(axes), len(shape))
    slices = slices_of(facts, len(shape))
    if slices is None:
        return [facts.tensor(facts.dtype(0), (None,) * len(shape))]
    sizes = tuple([_slice_length(*part, size) for part, size in zip(slices, shape, strict=True)])
    return [facts.tensor(facts.dtype(0), sizes)]


def _slice_length(start: Size | None, stop: Size | None, step: Size | None, size: Size | None) -> Size | None:
    """Return the number of elements that a slice takes of a dimension."""
    if start is None or stop is None or step is None or size is None:
        return None
    if (start, stop, step) == WHOLE:
        return size
    distance = slice_bound(stop, step, size) - slice_bound(start, step, size)
    forwards, backwards = maximum(step, 1), maximum(-step, 1)
    return by_direction(
        step, maximum((distance + forwards - 1) // forwards, 0), maximum((backwards - 1 - distance) // backwards, 0)
    )


def by_direction(step: Size, forwards: Size, backwards: Size) -> Size:
    """Return one size where a step is positive, the other where it is negative."""
    return if_zero(maximum(-step, 0), forwards, backwards)


def slice_bound(bound: Size, step: Size, size: Size) -> Size:
    """Return where a slice's start or end lies inside a dimension, counted from its start; -1 is before the first."""
    low, high = bounds(bound)
    if isinstance(bound, int) and abs(bound) >= FARTHEST:
        place: Size = size if bound > 0 else -1
    elif low is not None and low >= 0:
        place = bound
    elif high is not None and high < 0:
        place = bound + size
    else:
        place = bound + size * minimum(maximum(-bound, 0), 1)
    return by_direction(step, maximum(minimum(place, size), 0), maximum(minimum(place, size - 1), -1))


_MOST_BOUNDS = 64
"""A Slice that claims to have more axes than this has none of ours."""


WHOLE = (0, FARTHEST, 1)
"""Start, end and step of a slice that is a whole dimension."""


def slices_of(facts: Facts, rank: int) -> list[tuple[Size | None, Size | None, Size | None]] | None:
    """Return start, end and step along every dimension of what a Slice takes, from either form of the operator.

    Returns:
        Numbers, expressions, and None for what is not known; None if the axes are not known.
    """
    starts, stops = _bounds_given(facts, 1, "starts"), _bounds_given(facts, 2, "ends")
    if starts is None or stops is None:
        return None
    axes = _bounds_given(facts, 3, "axes") if facts.has_ints(3, "axes") else [*range(len(starts))]
    steps = _bounds_given(facts, 4, "steps") if facts.has(4) else [1] * len(starts)
    if axes is None or None in axes or steps is None:
        return None
    result: list[tuple[Size | None, Size | None, Size | None]] = [WHOLE] * rank
    for axis, start, stop, step in zip(known_of(axes), starts, stops, steps, strict=True):
        if isinstance(step, int):  # no dimension is longer
            step = min(max(step, -FARTHEST), FARTHEST)
        marks = marked_axes([axis], rank)
        result = [
            (_where_marked(mark, old[0], start), _where_marked(mark, old[1], stop), _where_marked(mark, old[2], step))
            for mark, old in zip(marks, result, strict=True)
        ]
    return result


def _bounds_given(facts: Facts, index: int, name: str) -> Sequence[Size | None] | None:
    """Return an operand of a Slice, or the attribute that it was once."""
    if facts.has(index):
        facts.require_rank(index, 1, name)
        count = facts.dim(index, 0)
        return facts.elements(index) if isinstance(count, int) and count <= _MOST_BOUNDS else None
    given: Sequence[int] | None = facts.attr(name)
    return given


def _where_marked(mark: Size, old: Size | None, new: Size | None) -> Size | None:
    """Return ``new`` for a dimension whose mark is not 0, else ``old``."""
    if isinstance(mark, int):
        return new if mark else old
    return None if old is None or new is None else if_zero(mark, old, new)


@FAMILY.op("Tile", since=6, traits={"movement"})
def tile(x: Array, repeats: Array) -> Array:
    """Repeat the input along each axis; what has one element along it is a view, as of an Expand."""
    counts = ints(repeats)
    reserve([d * c for d, c in zip(x.shape, counts, strict=True)], x.itemsize, "Tile")
    parted = x.reshape([size for dim in x.shape for size in (1, dim)])
    repeated = np.broadcast_to(parted, [size for pair in zip(counts, x.shape, strict=True) for size in pair])
    return repeated.reshape([count * dim for count, dim in zip(counts, x.shape, strict=True)])


_COUNTS_SINCE = 6
"""Since this version of Tile there is a count for each axis."""


@FAMILY.infer("Tile", sizing=(1,), contents=moved(1))
def _tile_rule(facts: Facts) -> Results:
    shape = facts.shape(0)
    if facts.version < _COUNTS_SINCE:
        return [facts.tensor(facts.dtype(0), None if shape is None else (None,) * len(shape))]
    facts.require_vector(1, None if shape is None else len(shape), "repeats")
    counts = facts.elements(1)
    if counts is None:
        return [facts.tensor(facts.dtype(0), None if shape is None else (None,) * len(shape))]
    for count in counts:
        facts.require_at_least(count, 0, "a count is negative")
    pairs = zip((None,) * len(counts) if shape is None else shape, counts, strict=True)
    return [facts.tensor(facts.dtype(0), [None if n is None or c is None else n * c for n, c in pairs])]


@FAMILY.op("Expand", traits={"movement"})
def expand(x: Array, shape: Array) -> Array:
    """Broadcast the input with ``shape``, both ways: a view, as what follows often reads a part of it."""
    whole = np.broadcast_shapes(x.shape, tuple(ints(shape)))
    reserve(whole, x.itemsize, "Expand")
    return np.broadcast_to(x, whole)


@FAMILY.infer("Expand", sizing=(1,), contents=moved(1))
def _expand_rule(facts: Facts) -> Results:
    facts.require_rank(1, 1, "the shape")
    facts.require_few(1)
    wanted = facts.elements(1)
    for size in wanted or ():
        facts.require_at_least(size, 0, "a size is negative")
    whole = facts.broadcast(facts.shape(0), wanted, message="the shapes do not broadcast")
    return [facts.tensor(facts.dtype(0), whole)]


@FAMILY.op("CenterCropPad", traits={"movement"})
def center_crop_pad(x: Array, shape: Array, *, axes: Sequence[int] | None = None) -> Array:
    """Cut axes to sizes, or fill them up with 0, on both sides alike; what is odd is cut or added behind."""
    picks, begins, ends = [slice(None)] * x.ndim, [0] * x.ndim, [0] * x.ndim
    for axis, wanted in zip(range(x.ndim) if axes is None else axes, ints(shape), strict=True):
        size = x.shape[axis]
        start, missing = max(size - wanted, 0) // 2, max(wanted - size, 0)
        picks[axis] = slice(start, start + min(size, wanted))
        begins[axis], ends[axis] = missing // 2, missing - missing // 2
    kept = x[tuple(picks)]
    reserve([d + b + e for d, b, e in zip(kept.shape, begins, ends, strict=True)], x.itemsize, "CenterCropPad")
    return _pad_constant(kept, begins, ends, "" if x.dtype == object else 0)


@FAMILY.infer("CenterCropPad", sizing=(1,))
def _center_crop_pad_rule(facts: Facts) -> Results:
    shape, rank = facts.shape(0), facts.rank(0)
    axes = facts.attr("axes", None if rank is None else range(rank))
    facts.require_vector(1, None if axes is None else len(axes), "the shape")
    wanted = facts.elements(1)
    for size in wanted or ():
        facts.require_at_least(size, 0, "a size is negative")
    if shape is None or axes is None:
        return [facts.tensor(facts.dtype(0), None)]
    sizes = list(shape)
    for axis, size in zip(facts.require_axes(axes, rank), wanted or (None,) * len(axes), strict=True):
        sizes[axis] = size
    return [facts.tensor(facts.dtype(0), sizes)]


@FAMILY.op("DepthToSpace", traits={"movement"})
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move blocks of channels into space: (N, C b², H, W) to (N, C, H b, W b)."""
    b = blocksize
    n, c, h, w = x.shape
    if mode == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // (b * b), h * b, w * b)


@FAMILY.op("SpaceToDepth", traits={"movement"})
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move blocks of space into channels: (N, C, H b, W b) to (N, C b², H, W)."""
    b = blocksize
    n, c, h, w = x.shape
    y = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return y.transpose(order).reshape(n, c * b * b, h // b, w // b)


@FAMILY.infer("DepthToSpace", "SpaceToDepth")
def _blocks_rule(facts: Facts) -> Results:
    facts.require_one_of("mode", ("DCR", "CRD"))
    block, to_space = int(facts.attr("blocksize", 0)), facts.node.op == "DepthToSpace"
    facts.require(block > 0, "blocksize is out of range", expected="1 or more", found=block)
    sizes = list(facts.dims(0, 4))
    for axis, factor in ((1, block * block), (2, block), (3, block)):
        size, is_cut = sizes[axis], (axis == 1) == to_space
        if is_cut:
            facts.require_divisible(size, factor, f"the blocks do not fit axis {axis}")
        sizes[axis] = None if size is None else size // factor if is_cut else size * factor
    return [facts.tensor(facts.dtype(0), sizes)]


@FAMILY.op("Trilu", traits={"movement"})
def trilu(x: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """Return the upper or lower triangle of the innermost matrices, the rest zero; ``k`` shifts the diagonal."""
    rows, columns = x.shape[-2:]
    shift = 0 if k is None else min(max(scalar_int(k), -rows - 1), columns + 1)
    offset = np.arange(columns) - np.arange(rows)[:, None]
    return np.where(offset >= shift if upper else offset <= shift, x, np.zeros((), x.dtype))


@FAMILY.infer("Trilu", sizing=(1,))
def _trilu_rule(facts: Facts) -> Results:
    facts.require_rank_from(0, 2)
    facts.require_scalar(1, "k")
    return [facts.tensor(facts.dtype(0), facts.shape(0))]


@FAMILY.op("ReverseSequence", traits={"movement"})
def reverse_sequence(x: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """Return each batch entry with its first ``sequence_lens[i]`` steps in reverse order.

    Raises:
        ExecutionError: If a length does not lie in [0, steps].
    """
    batch, time = batch_axis % x.ndim, time_axis % x.ndim
    steps = x.shape[time]
    lengths = sequence_lens.astype(np.int64).reshape(-1, 1)
    if lengths.size and (lengths.min() < 0 or lengths.max() > steps):
        raise ExecutionError(
            "bad sequence_lens",
            where="ReverseSequence",
            expected=f"{x.shape[batch]} lengths in [0, {steps}]",
            found=str(lengths.ravel().tolist()),
        )
    t = np.arange(steps)
    source = np.where(t < lengths, lengths - 1 - t, t)
    layout = source if batch < time else source.T
    return np.take_along_axis(x, layout.reshape([d if i in (batch, time) else 1 for i, d in enumerate(x.shape)]), time)


@FAMILY.infer("ReverseSequence")
def _reverse_rule(facts: Facts) -> Results:
    facts.require_rank_from(0, 2)
    rank = facts.rank(0)
    batch = facts.require_axis(int(facts.attr("batch_axis", 1)), rank, "batch_axis")
    time = facts.require_axis(int(facts.attr("time_axis", 0)), rank, "time_axis")
    facts.require({batch, time} == {0, 1} or rank is None, "batch_axis and time_axis are not the first two axes",
                  expected="0 and 1", found=f"{batch} and {time}")  # fmt: skip
    facts.require_vector(1, facts.dim(0, batch), "sequence_lens")
    return [facts.tensor(facts.dtype(0), facts.shape(0))]


def _fold_back(position: Array, size: int) -> Array:
    """Map positions outside [0, size) into it by reflection at the border elements, as often as needed."""
    if size == 1:
        return np.zeros_like(position)
    period = 2 * (size - 1)
    position = position % period
    return np.where(position < size, position, period - position)


_SOURCES: dict[str, Callable[[Array, int], Array]] = {
    "edge": lambda position, size: np.clip(position, 0, size - 1),
    "reflect": _fold_back,
    "wrap": lambda position, size: position % size,
}


def _pad_axis(x: Array, axis: int, before: int, after: int, mode: str) -> Array:
    if before == after == 0:
        return x
    size = x.shape[axis]
    position = np.arange(-before, max(size + after, -before))
    return x.take(_SOURCES[mode](position, size), axis)


def _pad_constant(x: Array, begins: Sequence[int], ends: Sequence[int], fill: Any) -> Array:
    shape = [d + b + e for d, b, e in zip(x.shape, begins, ends, strict=True)]
    out = np.full(shape, fill, x.dtype)
    kept = [max(d + min(b, 0) + min(e, 0), 0) for b, e, d in zip(begins, ends, x.shape, strict=True)]
    if all(kept):
        inner = tuple(slice(max(b, 0), max(b, 0) + n) for b, n in zip(begins, kept, strict=True))
        out[inner] = x[tuple(slice(max(-b, 0), max(-b, 0) + n) for b, n in zip(begins, kept, strict=True))]
    return out


def _pad(x: Array, pads: Sequence[int], axes: Sequence[int] | None, mode: str, value: Any) -> Array:
    chosen = range(x.ndim) if axes is None else axes
    begins, ends = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(chosen):
        begins[axis], ends[axis] = pads[i], pads[i + len(chosen)]
    shape = [d + b + e for d, b, e in zip(x.shape, begins, ends, strict=True)]
    reserve(shape, x.itemsize, "Pad")
    if mode == "constant":
        return _pad_constant(x, begins, ends, value)
    if 0 in shape:
        return np.empty(shape, x.dtype)
    for axis, (before, after) in enumerate(zip(begins, ends, strict=True)):
        x = _pad_axis(x, axis, before, after, mode)
    return x


@FAMILY.op("Pad", since=11, traits={"movement"})
def pad(
    x: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None, *, mode: str = "constant"
) -> Array:
    """Add elements around the input (negative pads remove some): a constant, or copies of its own.

    A reflection or wrap wider than the input goes on periodically.
    """
    fill: Any = "" if x.dtype == object else 0
    if constant_value is not None and constant_value.size:
        fill = constant_value.reshape(-1)[0]
    return _pad(x, ints(pads), None if axes is None else ints(axes), mode, fill)


@FAMILY.op("Pad", since=2, traits={"movement"})
def pad_attributes(x: Array, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Pad as before opset 11, with attributes."""
    return _pad(x, pads, None, mode, value)


@FAMILY.infer("Pad", sizing=(1, 3))
def _pad_rule(facts: Facts) -> Results:
    mode, shape, rank = facts.attr("mode", "constant"), facts.shape(0), facts.rank(0)
    facts.require_one_of("mode", ("constant", "reflect", "edge", "wrap"))
    axes = facts.elements(3) if facts.has(3) else None if rank is None else [*range(rank)]
    pads = _pads_given(facts)
    if axes is not None and pads is not None:
        facts.require(len(pads) == 2 * len(axes), "pads has the wrong length", expected=f"{2 * len(axes)} values",
                      found=shape_text(tuple(pads)))  # fmt: skip
    if shape is None:
        return [facts.tensor(facts.dtype(0), None)]
    if axes is not None and None not in axes:
        facts.require_axes_or_elements(known_of(axes), len(shape))
    sizes: list[Size | None] = []
    for axis, (size, (before, after)) in enumerate(zip(shape, pads_of(facts, len(shape)), strict=True)):
        whole = None if size is None or before is None or after is None else size + before + after
        facts.require_at_least(whole, 0, f"negative pads remove more than axis {axis} has")
        if mode != "constant" and size is not None and before is not None and after is not None:
            facts.demand(
                if_zero(size, if_zero(before, if_zero(after, 0, 1), 1), 0), f"axis {axis} is empty: nothing to pad from"
            )
        sizes.append(whole)
    return [facts.tensor(facts.dtype(0), sizes)]


def _pads_given(facts: Facts) -> Sequence[Size | None] | None:
    given: Sequence[Size | None] | None = facts.attr("pads", facts.attr("paddings"))
    return facts.elements(1) if given is None else given


def pads_of(facts: Facts, rank: int) -> list[tuple[Size | None, Size | None]]:
    """Return how many elements a Pad adds before and behind each dimension, from either form of the operator."""
    pads, chosen = _pads_given(facts), facts.elements(3) if facts.has(3) else range(rank)
    if pads is None or chosen is None or None in chosen:
        return [(None, None)] * rank
    result: list[tuple[Size | None, Size | None]] = [(0, 0)] * rank
    for index, axis in enumerate(known_of(chosen)):
        before, after = pads[index], pads[len(chosen) + index]
        marks = marked_axes([axis], rank)
        result = [
            (_where_marked(mark, old[0], before), _where_marked(mark, old[1], after))
            for mark, old in zip(marks, result, strict=True)
        ]
    return result


FAMILY.trait("per_image", "DepthToSpace", "SpaceToDepth")
FAMILY.trait("along_axis", "Split")
FAMILY.trait("selection", "DepthToSpace", "Expand", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Tile")
FAMILY.trait("selection", "Transpose")
FAMILY.trait("strided", "Expand", "Slice", "Split", "Transpose")
