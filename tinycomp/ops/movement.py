"""Operators that copy elements without looking at their values: Transpose to ReverseSequence, and Pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, TypeInferenceError
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import infer_types, informs
from tinycomp.ir.types import Dim, TensorType, Type, tensor
from tinycomp.memory.budget import reserve, reserve_bytes
from tinycomp.ops.contents import elements_of
from tinycomp.ops.facts import Facts, Operand, Shape, broadcast_sizes, is_known, one_of
from tinycomp.ops.numeric import Array, fix_axes, fix_axis, ints, scalar_int
from tinycomp.ops.record import ANY_NUMBER, OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.symbolic import Size, bounds, if_zero, marked_axes, maximum, minimum

FAMILY = OpFamily("movement")


@FAMILY.op("Transpose", traits={"movement"})
def transpose(x: Array, *, perm: Sequence[int] | None = None) -> Array:
    """Return the axes in the order ``perm``, or reversed.

    Raises:
        ExecutionError: If ``perm`` is not a permutation of the axes.
    """
    if perm is not None and sorted(perm) != list(range(x.ndim)):
        raise ExecutionError(
            "perm is not a permutation",
            where="Transpose",
            expected=f"each axis of {x.ndim} once",
            found=str(list(perm)),
        )
    return x.transpose(perm)


@FAMILY.plain_type("Transpose", dtypes=None)
def _transposed_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    perm = node.attrs.get("perm", range(len(x))[::-1])
    return (dtype, tuple([x[axis] for axis in perm])) if x else None


@FAMILY.check("Transpose")
def _check_perm(facts: Facts) -> None:
    perm, rank = facts.attr("perm"), facts.rank(0)
    if perm is not None and rank is not None and sorted(perm) != list(range(rank)):
        facts.fail("perm is not a permutation", expected=f"each of 0 to {rank - 1} once", found=list(perm))


@FAMILY.op("Concat", since=4, traits={"movement"})
def concat(*inputs: Array, axis: int) -> Array:
    """Return the inputs one after the other along ``axis``.

    Raises:
        ExecutionError: If their other dimensions differ.
    """
    fixed = fix_axis(axis, inputs[0].ndim, "Concat")
    reserve_bytes(sum(x.nbytes for x in inputs), "Concat")
    try:
        return np.concatenate(inputs, fixed)
    except ValueError as error:
        shapes = [x.shape for x in inputs]
        raise ExecutionError(
            f"the inputs differ outside axis {fixed}", where="Concat", expected="equal dimensions", found=str(shapes)
        ) from error


@FAMILY.plain_type("Concat", most=ANY_NUMBER, since=11, dtypes=None)
def _joined_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, first = operands[0]
    axis = node.attrs.get("axis")
    if axis is None or len(operands) < len(node.inputs) or not -len(first) <= axis < len(first):
        return None
    axis %= len(first)
    for kind, shape in operands:
        if kind != dtype or len(shape) != len(first) or _without(shape, axis) != _without(first, axis):
            return None
    lengths = list(filter(is_known, [shape[axis] for _, shape in operands]))
    total = sum(lengths) if len(lengths) == len(operands) else None
    return dtype, (*first[:axis], total, *first[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


_MOST_PIECES = 1 << 16


def _even_sizes(total: int, parts: int) -> list[int]:
    """Return the sizes of ``parts`` equal pieces; what comes last is smaller, or empty."""
    chunk = -(-total // parts)
    return [max(0, min(chunk, total - i * chunk)) for i in range(parts)]


def _split_types(node: Node) -> list[Type]:
    """Give the pieces the sizes that the kernel gives: onnx's inference is wrong where several pieces are smaller."""
    parts, least = node.attrs.get("num_outputs"), len(node.outputs)
    if parts is not None and not least <= parts <= _MOST_PIECES:  # results at the end may be left out
        raise TypeInferenceError(
            "num_outputs does not fit the results", where=f"node {node.label} (Split)",
            expected=f"{least} to {_MOST_PIECES}", found=str(parts),
        )  # fmt: skip
    types: list[Type] = list(infer_types(node))
    shape = node.operand(0).shape
    if not parts or shape is None:
        return types
    axis = fix_axis(node.attrs.get("axis", 0), len(shape), "Split")
    total = shape[axis]
    sizes: list[Dim] = [None] * parts if not isinstance(total, int) else [*_even_sizes(total, parts)]
    dtypes = [tensor(t).dtype for t in types]
    pairs = zip(dtypes, sizes, strict=False)
    return [TensorType(dtype, (*shape[:axis], size, *shape[axis + 1 :])) for dtype, size in pairs]


def _split(x: Array, axis: int, sizes: Sequence[int] | None, parts: int) -> tuple[Array, ...]:
    fixed = fix_axis(axis, x.ndim, "Split")
    total = x.shape[fixed]
    if sizes is None:
        sizes = _even_sizes(total, parts)
    if sum(sizes) != total or any(s < 0 for s in sizes) or len(sizes) != parts:
        raise ExecutionError(
            f"the sizes do not split axis {fixed}",
            where="Split",
            expected=f"{parts} sizes of 0 or more that sum to {total}",
            found=str(list(sizes)),
        )
    return tuple(np.split(x, np.cumsum(sizes)[:-1], fixed))


@FAMILY.op("Split", since=18, traits={"movement", "output_count"}, type_rule=_split_types)
def split(
    x: Array, sizes: Array | None = None, *, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Array, ...]:
    """Return pieces along ``axis``: of the given sizes, or equal with a smaller last one."""
    return _split(x, axis, None if sizes is None else ints(sizes), num_outputs or outputs)


@FAMILY.op("Split", since=13, traits={"movement", "output_count"})
def split_13(x: Array, sizes: Array | None = None, *, axis: int = 0, outputs: int = 1) -> tuple[Array, ...]:
    """Split as before opset 18, where equal pieces must be exactly equal."""
    return split_attribute(x, axis=axis, split=None if sizes is None else ints(sizes), outputs=outputs)


@FAMILY.op("Split", since=2, traits={"movement", "output_count"})
def split_attribute(
    x: Array, *, axis: int = 0, split: Sequence[int] | None = None, outputs: int = 1
) -> tuple[Array, ...]:
    """Split as before opset 13, with the sizes as an attribute."""
    size = x.shape[fix_axis(axis, x.ndim, "Split")]
    return _split(x, axis, split or [size // outputs] * outputs, outputs)


@FAMILY.check("Split")
def _check_split(facts: Facts) -> None:
    sizes, parts = facts.ints(1, "split"), facts.attr("num_outputs")
    if sizes is not None and any(s < 0 for s in sizes):
        facts.fail("a size is negative", expected="sizes of 0 or more", found=sizes)
    if parts is not None and parts < len(facts.node.outputs):
        facts.fail("num_outputs does not fit the node", expected=f"at least {len(facts.node.outputs)}", found=parts)
    if sizes is not None and parts is not None:
        facts.fail("both sizes and num_outputs are given", expected="one of them", found=f"{sizes} and {parts}")


def _slice(
    x: Array, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Array:
    chosen = fix_axes(range(len(starts)) if axes is None else axes, x.ndim, "Slice")
    steps = [1] * len(starts) if steps is None else steps
    if 0 in steps:
        raise ExecutionError("a step is 0", where="Slice", expected="steps other than 0", found=str(list(steps)))
    if not len(starts) == len(ends) == len(chosen) == len(steps):
        raise ExecutionError(
            "starts, ends, axes and steps differ in length",
            where="Slice",
            found=str((len(starts), len(ends), len(chosen), len(steps))),
        )
    picks: list[Any] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, chosen, steps, strict=True):
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
    """Return elements from ``starts`` to ``ends`` by ``steps`` along ``axes``; bounds count from the end if negative.

    Raises:
        ExecutionError: If a step is 0 or an axis is wrong.
    """
    return _slice(
        x, ints(starts), ints(ends), None if axes is None else ints(axes), None if steps is None else ints(steps)
    )


@FAMILY.op("Slice", since=1, traits={"movement"})
def slice_attributes(
    x: Array, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None
) -> Array:
    """Slice as before opset 10, with attributes."""
    return _slice(x, starts, ends, axes, None)


@FAMILY.plain_type("Slice", least=3, most=5, since=10, dtypes=None)
def _sliced_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, x = operands[0]
    read = [_constant_indices(value) for value in node.inputs[1:]]
    starts, ends = read[:2]
    axes = read[2] if len(read) > 2 else [*range(len(starts or ()))]
    steps = read[3] if len(read) > 3 else [1] * len(starts or ())
    if starts is None or ends is None or axes is None or steps is None:
        return None
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        return None
    result = list(x)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = x[axis] if -len(x) <= axis < len(x) else None
        if not is_known(size):
            return None
        result[axis] = len(range(size)[start:end:step])
    return (dtype, tuple(result)) if len({axis % len(x) for axis in axes}) == len(axes) else None


def _constant_indices(value: Value | None) -> list[int] | None:
    """Return the elements of a constant list of integers that inference reads."""
    if value is None or value.const is None or value.const.ndim != 1 or not informs(value):
        return None
    return value.const.tolist() if value.const.dtype.name in ("int32", "int64") else None


@FAMILY.check("Slice")
def _check_slice(facts: Facts) -> None:
    steps = facts.const(4)
    if steps is not None and steps.size and not steps.all():
        facts.fail("a step is 0", expected="steps other than 0", found=steps.tolist())
    lengths = {len(v) for v in (facts.ints(1, "starts"), facts.ints(2, "ends"), facts.ints(3, "axes")) if v is not None}
    if len(lengths) > 1:
        facts.fail("starts, ends and axes differ in length", expected="one length", found=sorted(lengths))
    axes, rank = facts.ints(3, "axes"), facts.rank(0)
    if axes is not None and rank is not None:
        facts.require_distinct(axes, rank)


@FAMILY.op("Tile", since=6, traits={"movement"})
def tile(x: Array, repeats: Array) -> Array:
    """Repeat the input along each axis.

    Raises:
        ExecutionError: If there is not one count of 0 or more per axis.
    """
    counts = ints(repeats)
    if len(counts) != x.ndim or any(c < 0 for c in counts):
        raise ExecutionError("bad repeats", where="Tile", expected=f"{x.ndim} counts of 0 or more", found=str(counts))
    reserve([d * c for d, c in zip(x.shape, counts, strict=True)], x.itemsize, "Tile")
    return np.tile(x, counts)


@FAMILY.op("Expand", traits={"movement"})
def expand(x: Array, shape: Array) -> Array:
    """Broadcast the input with ``shape``, both ways.

    Raises:
        ExecutionError: If the shapes do not broadcast.
    """
    wanted = tuple(ints(shape))
    try:
        whole = np.broadcast_shapes(x.shape, wanted)
        reserve(whole, x.itemsize, "Expand")
        return np.broadcast_to(x, whole).copy()
    except ValueError as error:
        raise ExecutionError(
            "the shapes do not broadcast", where="Expand", expected=f"a shape that fits {x.shape}", found=str(wanted)
        ) from error


@FAMILY.check("Expand")
def _check_expanded_sizes(facts: Facts) -> None:
    facts.require_shape(1)
    wanted = facts.const(1)
    if wanted is not None and wanted.size and int(wanted.min()) < 0:
        facts.fail("a size is negative", expected="sizes of 0 or more", found=wanted.tolist())


def _image(x: Array, where: str, channels: int, space: int) -> tuple[int, int, int, int]:
    """Return the four dimensions of an image whose channels, or height and width, must be multiples of a number."""
    if x.ndim != 4:
        raise ExecutionError("wrong rank", where=where, expected="4 dimensions (N, C, H, W)", found=str(x.shape))
    n, c, h, w = x.shape
    if channels < 1 or space < 1 or c % channels or h % space or w % space:
        need = f"C a multiple of {channels}" if space == 1 else f"H and W multiples of {space}"
        raise ExecutionError("the block size does not divide the image", where=where, expected=need, found=str(x.shape))
    return n, c, h, w


@FAMILY.op("DepthToSpace", traits={"movement"})
def depth_to_space(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move blocks of channels into space: (N, C b², H, W) to (N, C, H b, W b)."""
    b = blocksize
    n, c, h, w = _image(x, "DepthToSpace", b * abs(b), 1)
    if mode == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // (b * b), h * b, w * b)


@FAMILY.op("SpaceToDepth", traits={"movement"})
def space_to_depth(x: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Move blocks of space into channels: (N, C, H b, W b) to (N, C b², H, W)."""
    b = blocksize
    n, c, h, w = _image(x, "SpaceToDepth", 1, b)
    y = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return y.transpose(order).reshape(n, c * b * b, h // b, w // b)


FAMILY.check("DepthToSpace")(one_of(mode=("DCR", "CRD")))


@FAMILY.check("DepthToSpace", "SpaceToDepth")
def _check_blocks(facts: Facts) -> None:
    block, in_space = int(facts.attr("blocksize", 0)), facts.node.op == "SpaceToDepth"
    if block < 1:
        facts.fail("blocksize is out of range", expected="1 or more", found=block)
    for axis in (2, 3) if in_space else (1,):
        size, step = facts.dim(0, axis), block if in_space else block * block
        if size is not None and size % step:
            facts.fail("the blocks do not fit", expected=f"axis {axis} a multiple of {step}", found=size)


@FAMILY.op("Trilu", traits={"movement"})
def trilu(x: Array, k: Array | None = None, *, upper: int = 1) -> Array:
    """Return the upper or lower triangle of the innermost matrices, the rest zero; ``k`` shifts the diagonal."""
    rows, columns = x.shape[-2:]
    shift = 0 if k is None else min(max(scalar_int(k), -rows - 1), columns + 1)
    offset = np.arange(columns) - np.arange(rows)[:, None]
    return np.where(offset >= shift if upper else offset <= shift, x, np.zeros((), x.dtype))


@FAMILY.op("ReverseSequence", traits={"movement"})
def reverse_sequence(x: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """Return each batch entry with its first ``sequence_lens[i]`` steps in reverse order.

    Raises:
        ExecutionError: If a length does not lie in [0, steps].
    """
    batch, time = fix_axes((batch_axis, time_axis), x.ndim, "ReverseSequence")
    steps = x.shape[time]
    lengths = sequence_lens.astype(np.int64).reshape(-1, 1)
    if lengths.size != x.shape[batch] or (lengths.size and (lengths.min() < 0 or lengths.max() > steps)):
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


@FAMILY.check("ReverseSequence")
def _check_sequence_axes(facts: Facts) -> None:
    rank = facts.rank(0)
    batch, time = int(facts.attr("batch_axis", 1)), int(facts.attr("time_axis", 0))
    facts.require_axis(batch, rank, "batch_axis")
    facts.require_axis(time, rank, "time_axis")
    facts.require_distinct((batch, time), rank, "the pair of batch_axis and time_axis")


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
    size = x.shape[axis]
    if before == after == 0:
        return x
    if not size:
        raise ExecutionError("nothing to pad from", where="Pad", expected=f"axis {axis} not empty", found=str(x.shape))
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
    chosen = tuple(range(x.ndim)) if axes is None else fix_axes(axes, x.ndim, "Pad")
    if len(pads) != 2 * len(chosen):
        raise ExecutionError("bad pads", where="Pad", expected=f"{2 * len(chosen)} values", found=str(list(pads)))
    begins, ends = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(chosen):
        begins[axis], ends[axis] = pads[i], pads[i + len(chosen)]
    if any(d + b + e < 0 for d, b, e in zip(x.shape, begins, ends, strict=True)):
        raise ExecutionError("negative pads remove more than there is", where="Pad", expected=f"pads for {x.shape}",
                             found=str(list(pads)))  # fmt: skip
    shape = [d + b + e for d, b, e in zip(x.shape, begins, ends, strict=True)]
    reserve(shape, x.itemsize, "Pad")
    if mode == "constant":
        return _pad_constant(x, begins, ends, value)
    if mode not in _SOURCES:
        raise ExecutionError("unknown mode", where="Pad", expected=f"constant or one of {list(_SOURCES)}",
                             found=repr(mode))  # fmt: skip
    if 0 in shape and 0 not in (d for d, b, e in zip(x.shape, begins, ends, strict=True) if b or e):
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

    Raises:
        ExecutionError: If the pads do not fit the shape, or the mode is unknown.
    """
    fill: Any = "" if x.dtype == object else 0
    if constant_value is not None and constant_value.size:
        fill = constant_value.reshape(-1)[0]
    return _pad(x, ints(pads), None if axes is None else ints(axes), mode, fill)


@FAMILY.op("Pad", since=2, traits={"movement"})
def pad_attributes(x: Array, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Pad as before opset 11, with attributes."""
    return _pad(x, pads, None, mode, value)


FAMILY.check("Pad")(one_of(mode=("constant", "reflect", "edge", "wrap")))


@FAMILY.check("Pad")
def _check_pads(facts: Facts) -> None:
    pads, shape = facts.ints(1, "pads"), facts.shape(0)
    if pads is None or shape is None:
        return
    axes = facts.ints(3, "axes")
    if axes is None and facts.node.optional_operand(3) is not None:
        return
    chosen = range(len(shape)) if axes is None else axes
    for axis in chosen:
        facts.require_axis(axis, len(shape), "an entry of axes")
    facts.require_distinct(list(chosen), len(shape))
    if len(pads) != 2 * len(chosen):
        facts.fail("pads has the wrong length", expected=f"{2 * len(chosen)} values", found=pads)
    for i, axis in enumerate(chosen):
        size = shape[axis]
        if isinstance(size, int) and size + pads[i] + pads[i + len(chosen)] < 0:
            facts.fail("negative pads remove more than there is", expected=f"pads for axis {axis} of {size} elements",
                       found=pads)  # fmt: skip


@FAMILY.sizes("Concat")
def _joined_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    known = [shape for shape in shapes if shape is not None]
    if len(known) != len(shapes):
        return [None]
    axis = int(node.attrs.get("axis", 1)) % len(known[0])
    result = [_agreed([shape[i] for shape in known]) for i in range(len(known[0]))]
    lengths = [shape[axis] for shape in known]
    result[axis] = None if None in lengths else sum([n for n in lengths if n is not None], start=0)
    return [tuple(result)]


def _agreed(sizes: Sequence[Size | None]) -> Size | None:
    """Return what equal sizes are, as a number if one of them is."""
    known = [size for size in sizes if size is not None]
    return next((size for size in known if isinstance(size, int)), known[0] if known else None)


@FAMILY.sizes("Split")
def _split_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, parts = shapes[0], len(node.outputs)
    if x is None:
        return []
    axis = int(node.attrs.get("axis", 0)) % len(x)
    given = node.optional_operand(1)
    lengths: Sequence[Size | None] | None = node.attrs.get("split") if given is None else given.contents
    if lengths is None and given is None:
        whole, parts = x[axis], int(node.attrs.get("num_outputs", parts))
        each = None if whole is None else (whole + parts - 1) // parts
        lengths = [None] * parts
        if whole is not None and each is not None:
            lengths = [maximum(minimum(each, whole - i * each), 0) for i in range(parts)]
            if whole % parts == 0:
                lengths = [whole // parts] * parts
    if lengths is None:
        return []
    return [(*x[:axis], length, *x[axis + 1 :]) for length in lengths]


@FAMILY.sizes("Slice")
def _sliced_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x = shapes[0]
    slices = None if x is None else slices_of(node, len(x))
    if x is None or slices is None:
        return [None]
    return [tuple([_slice_length(*part, size) for part, size in zip(slices, x, strict=True)])]


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
    if isinstance(bound, int) and abs(bound) >= _FAR:
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
_FAR = 1 << 40
"""Beyond every size."""


WHOLE = (0, _FAR, 1)
"""Start, end and step of a slice that is a whole dimension."""


def slices_of(node: Node, rank: int) -> list[tuple[Size | None, Size | None, Size | None]] | None:
    """Return start, end and step along every dimension of what a Slice takes, from either form of the operator.

    Returns:
        Numbers, expressions, and None for what is not known; None if the axes are not known.
    """
    starts, stops = _bounds_given(node, 1, "starts"), _bounds_given(node, 2, "ends")
    if starts is None or stops is None:
        return None
    axes = _bounds_given(node, 3, "axes") or [*range(len(starts))]
    steps = _bounds_given(node, 4, "steps") or [1] * len(starts)
    named = [axis for axis in axes if axis is not None]
    if not len(starts) == len(stops) == len(named) == len(steps):
        return None
    result: list[tuple[Size | None, Size | None, Size | None]] = [WHOLE] * rank
    for axis, start, stop, step in zip(named, starts, stops, steps, strict=True):
        marks = marked_axes([axis], rank)
        result = [
            (_where_marked(mark, old[0], start), _where_marked(mark, old[1], stop), _where_marked(mark, old[2], step))
            for mark, old in zip(marks, result, strict=True)
        ]
    return result


def _bounds_given(node: Node, index: int, name: str) -> list[Size | None] | None:
    """Return an operand of a Slice, or the attribute that it was once."""
    value = node.optional_operand(index)
    if value is None:
        return list(node.attrs[name]) if name in node.attrs else None
    if value.contents is None:
        count = (value.static_shape or (None,))[0]
        return None if count is None or count > _MOST_BOUNDS else [None] * count
    return list(value.contents)


def _where_marked(mark: Size, old: Size | None, new: Size | None) -> Size | None:
    """Return ``new`` for a dimension whose mark is not 0, else ``old``."""
    if isinstance(mark, int):
        return new if mark else old
    return None if old is None or new is None else if_zero(mark, old, new)


@FAMILY.sizes("Tile")
def _tiled_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, repeats = shapes[0], node.operand(1).contents
    if x is None or repeats is None:
        return [None]
    pairs = zip(x, repeats, strict=True)
    return [tuple([None if n is None or times is None else n * times for n, times in pairs])]


@FAMILY.sizes("Expand")
def _expanded_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    wanted = elements_of(node.operand(1))
    return [None if wanted is None else broadcast_sizes(shapes[0], wanted)]


@FAMILY.sizes("Pad")
def _padded_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x = shapes[0]
    if x is None:
        return [None]
    pads = pads_of(node, len(x))
    sizes = [
        None if size is None or before is None or after is None else size + before + after
        for size, (before, after) in zip(x, pads, strict=True)
    ]
    return [tuple(sizes)]


def pads_of(node: Node, rank: int) -> list[tuple[Size | None, Size | None]]:
    """Return how many elements a Pad adds before and behind each dimension, from either form of the operator."""
    given, axes = node.optional_operand(1), node.optional_operand(3)
    pads: Sequence[Size | None] | None = node.attrs.get("pads") if given is None else given.contents
    chosen: Sequence[Size | None] | None = range(rank) if axes is None else axes.contents
    if pads is None or chosen is None or len(pads) != 2 * len(chosen):
        return [(None, None)] * rank
    result: list[tuple[Size | None, Size | None]] = [(0, 0)] * rank
    for index, axis in enumerate(chosen):
        before, after = pads[index], pads[len(chosen) + index]
        if axis is None:
            return [(None, None)] * rank
        marks = marked_axes([axis], rank)
        result = [
            (_where_marked(mark, old[0], before), _where_marked(mark, old[1], after))
            for mark, old in zip(marks, result, strict=True)
        ]
    return result


@FAMILY.sizes("DepthToSpace", "SpaceToDepth")
def _exchanged_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, block = shapes[0], int(node.attrs["blocksize"])
    if x is None or None in x:
        return [None]
    n, c, h, w = (size for size in x if size is not None)
    if node.op == "DepthToSpace":
        return [(n, c // (block * block), h * block, w * block)]
    return [(n, c * (block * block), h // block, w // block)]


FAMILY.trait("per_image", "DepthToSpace", "SpaceToDepth")
FAMILY.trait("along_axis", "Split")
FAMILY.trait("selection", "DepthToSpace", "Expand", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Tile")
FAMILY.trait("selection", "Transpose")
