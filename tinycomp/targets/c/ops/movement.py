"""Data movement on the C target: views where the bytes already lie right, strided copies elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import TINYCOMP, Node, Value
from tinycomp.ir.layout import memory_order, reshaped, strides
from tinycomp.ir.types import bits, numpy_dtype, tensor
from tinycomp.lazy import LazyModule
from tinycomp.ops.rule import Facts
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import codes
from tinycomp.symbolic import Size, if_zero, is_positive, maximum, minimum, product
from tinycomp.targets.c.codegen.element_program import (
    TYPES,
    Ref,
    Steps,
    StridedInput,
    broadcast_steps,
    emit_fusion_group,
)
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter, Strided, View, eight, nd_params, same_steps
from tinycomp.targets.c.codegen.placement import element_size, emit_copy, leave
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank, taken
from tinycomp.targets.c.codegen.texts import DTYPE, heap_makers
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, settled, sized_type

if TYPE_CHECKING:
    from tinycomp.ops import movement
else:
    movement = LazyModule("tinycomp.ops.movement")

FAMILY = LoweringRules()


_TEXTS_MOVED = frozenset({*named("selection"), "Concat"})
_FARTHEST = 32
"""For so many values at most one looks for what computes with texts."""


def one_heap(node: Node) -> Verdict:
    """Tell whether all texts that a node takes lie in one heap."""
    makers = set[Node | None]().union(*[heap_makers(v) for v in node.inputs if v is not None and v.dtype == DTYPE])
    return len(makers) < 2 or reject("its texts come from several nodes that make texts")


def _moves_texts(node: Node) -> Verdict:
    """Tell whether a node that only moves texts stands beside one that computes with them: else nothing is gained."""
    if node.op not in _TEXTS_MOVED or node.domain:
        return reject(f"{node.op} of texts")
    seen, waiting = {node}, [node]
    for each in waiting:
        beside = [v.producer for v in each.inputs if v is not None and v.dtype == DTYPE and v.producer is not None]
        beside += [user for v in each.used_outputs() for user in v.users if v.dtype == DTYPE]
        if any(other.op not in _TEXTS_MOVED for other in beside):
            return one_heap(node)
        fresh = [other for other in dict.fromkeys(beside) if other not in seen]
        seen |= {*fresh}
        waiting += fresh[: _FARTHEST - len(waiting)]
    return reject("its texts are only moved")


def movable(node: Node) -> Verdict:
    """Tell whether the elements are of 1, 2, 4 or 8 whole bytes, or texts."""
    for value in node.used_outputs():
        dtype = value.dtype
        if dtype == DTYPE:
            return _moves_texts(node)
        if dtype == "?" or numpy_dtype(dtype).itemsize not in (1, 2, 4, 8):
            return reject(f'"{value.name}" is {value.type}; only elements of 1, 2, 4 or 8 bytes are moved')
    return True


@FAMILY.lower("Relayout", check=movable, layout=LayoutRule.ROW_MAJOR, domain=TINYCOMP)
def relayout(emit: Emitter, node: Node) -> None:
    """Leave the elements where they are until somebody needs them in the new order: two changes in a row may cancel."""
    leave(emit, node, node.output, emit.where(node.operand(0)))


def _has_sizes(node: Node) -> Verdict:
    contents = node.output.contents
    known = contents is not None and None not in contents
    return known or reject(f'"{node.operand(0).name}" is {node.operand(0).type}')


def write_sizes(emit: Emitter, node: Node) -> None:
    """Write sizes where somebody reads them as data."""
    value = node.output
    emit.postpone_writing(value, lambda: _emit_sizes(emit, node, value))


FAMILY.lower("Shape", "Size", check=_has_sizes, layout=LayoutRule.ROW_MAJOR)(write_sizes)
FAMILY.lower("Sizes", check=taken, layout=LayoutRule.ROW_MAJOR, domain=TINYCOMP)(write_sizes)


@FAMILY.lower("Conditions", "Declared", check=known_rank, layout=LayoutRule.ROW_MAJOR, domain=TINYCOMP)
def handed_on(emit: Emitter, node: Node) -> None:
    """Hand the operand on: what the node states is a condition of the program."""
    emit.alias(node.output, emit.view(node.operand(0)))


@FAMILY.lower("Elements", check=taken, layout=LayoutRule.ROW_MAJOR, domain=TINYCOMP)
def elements(emit: Emitter, node: Node) -> None:
    """Read elements as sizes of what follows: each is copied to where the executor looks."""
    emit.alias(node.output, emit.view(node.operand(0)))
    wide = emit.view(node.operand(len(node.inputs) - 1))
    for place in node.attrs["places"]:
        emit_copy(emit, node, emit.scratch(8), wide.at(8 * place), (1,), (1,), (1,), 8)
        emit.finds(_known((node.output.contents or ())[place]), 0)


_AT_ONCE = 8
"""Sizes that one call of the kernel writes."""


def _emit_sizes(emit: Emitter, node: Node, value: Value) -> None:
    contents, width = value.contents or (), element_size(value)
    for start in range(0, len(contents), _AT_ONCE):
        part = [_known(size) for size in contents[start : start + _AT_ONCE]]
        padded = enumerate([*part, *[0] * (_AT_ONCE - len(part))])
        params = {"type": TYPES[value.dtype], "count": len(part), **{f"value{i}": size for i, size in padded}}
        emit.call("sizes", [emit.view(value).at(start * width)], params, node)


_COUNTED = ("float32", "float64", "int32", "int64")


def _known_count(node: Node) -> Verdict:
    step = node.operand(2)
    follows = node.output.sizes is not None and (step.is_const or step.contents is not None)
    return follows or reject("the number of its elements does not follow from sizes")


@FAMILY.lower("Range", check=all_of(dtypes(*_COUNTED), _known_count), layout=LayoutRule.ROW_MAJOR)
def range_(emit: Emitter, node: Node) -> None:
    """Emit an arithmetic progression."""
    (count,) = sized_type(node.output)[1]
    params = {"type": TYPES[node.output.dtype], "count": count}
    emit.call("range", [node.output, node.operand(0), node.operand(2)], params, node)


@FAMILY.lower("ConstantOfShape", check=all_of(movable, settled(0)), layout=LayoutRule.ROW_MAJOR)
def constant_of_shape(emit: Emitter, node: Node) -> None:
    """Fill the result with one value, as soon as somebody reads more than some of it."""
    value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(-1)[:1]
    shape = sized_type(node.output)[1]

    def fill() -> None:
        pattern, params = _bits(value), nd_params((product(shape),), stride=(1,))
        emit.call("fill", [node.output], {"element_size": value.itemsize, "pattern": pattern, **params}, node)

    emit.postpone(node.output, Strided(emit.constant(value), (0,) * len(shape), repeated=True), fill)


@FAMILY.lower(*named("view"), "Identity", check=all_of(movable, settled(1)), layout=LayoutRule.ROW_MAJOR)
def reshape(emit: Emitter, node: Node) -> None:
    """Read the same elements by other strides: a row-major reshape moves nothing."""
    source = node.operand(0)
    where = emit.where(source)
    steps = reshaped(sized_type(source)[1], where.strides, sized_type(node.output)[1])
    if steps is None:
        emit.alias(node.output, emit.view(source))
    else:
        leave(emit, node, node.output, Strided(where.view, steps, where.repeated))


def _whole_bytes(node: Node) -> Verdict:
    """Tell whether bytes alone tell elements apart: a number of fewer bits lies in a byte with its sign."""
    source, result = node.operand(0).dtype, node.output.dtype
    if result == "bool" != source:
        return reject(f"bytes of {source} may be other than the two of bool")
    partial = [dtype for dtype in (source, result) if bits(dtype) != 8 * numpy_dtype(dtype).itemsize]
    if partial:
        return reject(f"elements of {partial[0]} are not whole bytes")
    return bits(source) == bits(result) or reject(f"{source} and {result} are not of the same size")


@FAMILY.lower("BitCast", check=all_of(movable, known_rank, _whole_bytes), layout=LayoutRule.ROW_MAJOR)
def bit_cast(emit: Emitter, node: Node) -> None:
    """Read the same bytes as another type."""
    leave(emit, node, node.output, emit.where(node.operand(0)))


@FAMILY.lower("Transpose", check=all_of(movable, known_rank), layout=LayoutRule.TRANSPOSE)
def transpose(emit: Emitter, node: Node) -> None:
    """Exchange strides; a copy follows where somebody needs the elements in the result's own order."""
    if emit.is_placed(node.output):
        return  # the producer has written the transposed result
    source = node.operand(0)
    where = emit.where(source)
    perm = node.attrs.get("perm", [*reversed(range(len(where.strides)))])
    leave(emit, node, node.output, Strided(where.view, tuple(where.strides[p] for p in perm), where.repeated))


@FAMILY.lower("Concat", check=all_of(movable, known_rank), layout=LayoutRule.FOLLOW)
def concat(emit: Emitter, node: Node) -> None:
    """Copy every operand into its slice of the result, but for those that have been computed there."""
    result, shape = sized_type(node.output)
    axis = int(node.attrs["axis"]) % len(shape)
    to, size = strides(result), element_size(node.output)
    start: Size = 0
    for value in node.inputs:
        assert value is not None
        _, part = sized_type(value)
        place, where = emit.view(node.output).at(start * to[axis] * size), emit.where(value)
        if not (where.view.is_at(place) and same_steps(part, where.strides, to)):
            emit_copy(emit, node, place, where.view, part, to, where.strides, size)
        start = start + part[axis]


@FAMILY.lower("Split", check=all_of(movable, known_rank, settled(1)), layout=LayoutRule.FOLLOW)
def split(emit: Emitter, node: Node) -> None:
    """Make every result a slice of the operand."""
    source = node.operand(0)
    where, (_, shape) = emit.where(source), sized_type(source)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    step = where.strides[axis] * element_size(source)
    start: Size = 0
    for value in node.outputs:
        if value.name:
            leave(emit, node, value, Strided(where.view.at(start * step), where.strides, where.repeated))
        start = start + sized_type(value)[1][axis]


@FAMILY.lower("Slice", check=all_of(movable, known_rank, settled(1, 2, 3, 4)), layout=LayoutRule.FOLLOW)
def slice_(emit: Emitter, node: Node) -> None:
    """Scale the strides from the first element on; steps that may be negative read backwards and are copied at once."""
    source = node.operand(0)
    _, shape = sized_type(source)
    result, part = sized_type(node.output)
    lowest: list[Size] = []
    step: list[Size] = []
    for (start, _, by), size, length in zip(
        movement.slices_of(Facts(node), len(shape)) or (), shape, part, strict=True
    ):
        assert start is not None
        assert by is not None
        # The kernel wants the lowest element; with a negative step that is the one read last.
        lowest.append(movement.slice_bound(start, by, size) + minimum(0, by) * (length - 1))
        step.append(by)
    where, bytes_each = emit.where(source), element_size(source)
    runs_forwards = all(is_positive(by) for by in step)
    offset = _offset(lowest, where.strides)
    offset = if_zero(product(part), 0, offset) if not runs_forwards or 0 in part else offset
    place, steps = where.view.at(offset * bytes_each), tuple(s * by for s, by in zip(where.strides, step, strict=True))
    if runs_forwards:
        leave(emit, node, node.output, Strided(place, steps, where.repeated))
    else:
        emit_copy(emit, node, emit.view(node.output), place, part, strides(result), steps, bytes_each)


def _offset(places: Sequence[Size], steps: Sequence[Size]) -> Size:
    """Return how many elements lie before a place."""
    offset: Size = 0
    for place, step in zip(places, steps, strict=True):
        offset = offset + place * step
    return offset


@FAMILY.lower("Expand", check=all_of(movable, known_rank, settled(1)), layout=LayoutRule.ROW_MAJOR)
def expand(emit: Emitter, node: Node) -> None:
    """Leave the elements where they are, and read them with stride 0 along repeated dimensions."""
    source = node.operand(0)
    where, wanted = emit.where(source), sized_type(node.output)[1]
    steps = broadcast_steps(sized_type(source)[1], where.strides, wanted)
    leave(emit, node, node.output, Strided(where.view, tuple(steps), repeated=True))


_PADDING = codes("tc_padding", "TC_PAD_")
"""Codes of padding modes, such as ``EDGE``."""


def _pad_mode(node: Node) -> str:
    return str(node.attrs.get("mode", "constant")).upper()


def _pad_check(node: Node) -> Verdict:
    value = node.optional_operand(2)
    if value is None or value.is_const or (value.static_shape is not None and product(value.static_shape) == 1):
        return True
    return reject(f'whether operand 2 ("{value.name}") holds a value is not known')


@FAMILY.lower("Pad", check=all_of(movable, known_rank, settled(1, 3), _pad_check), layout=LayoutRule.FOLLOW)
def pad(emit: Emitter, node: Node) -> None:
    """Fill the result, then copy the operand into its place; or extend it by elements of its own."""
    source = node.operand(0)
    type_, shape = sized_type(source)
    result, whole = sized_type(node.output)
    pads, size = movement.pads_of(Facts(node), len(shape)), element_size(source)
    before, after = [_known(first) for first, _ in pads], [_known(last) for _, last in pads]
    if _pad_mode(node) != "CONSTANT":
        order = memory_order(type_.layout, len(shape))
        params = eight("size", [shape[d] for d in order], 1)
        params |= eight("before", [before[d] for d in order], 0) | eight("after", [after[d] for d in order], 0)
        emit.call(
            "pad", [node.output, source], {"element_size": size, "mode": _PADDING[_pad_mode(node)], **params}, node
        )
        return
    to, origin = strides(result), strides(type_)
    if any(not isinstance(p, int) or p > 0 for p in (*before, *after)):
        _fill(emit, node, product(whole))
    kept = [maximum(n + minimum(b, 0) + minimum(a, 0), 0) for n, b, a in zip(shape, before, after, strict=True)]
    skip = _offset([maximum(b, 0) for b in before], to) * size
    cut = _offset([maximum(-b, 0) for b in before], origin) * size
    emit_copy(emit, node, emit.view(node.output).at(skip), emit.view(source).at(cut), kept, to, origin, size)


def _fill(emit: Emitter, node: Node, count: Size) -> None:
    """Write the padding value everywhere."""
    value, size = node.optional_operand(2), element_size(node.output)
    if value is None or value.is_const:
        params = nd_params((count,), stride=(1,))
        emit.call("fill", [node.output], {"element_size": size, "pattern": _pattern(node), **params}, node)
    else:
        emit_copy(emit, node, emit.view(node.output), emit.view(value), (count,), (1,), (0,), size)


def _known(size: Size | None) -> Size:
    assert size is not None
    return size


def _pattern(node: Node) -> int:
    """Return the padding value as the bits of one element, as a signed 64-bit number."""
    dtype = node.operand(0).dtype
    value = node.const(2)
    number = node.attrs.get("value", 0) if value is None else value.reshape(-1)[0]
    return _bits(np.asarray(number).astype(numpy_dtype(dtype)))


def _bits(element: np.ndarray) -> int:
    return int.from_bytes(element.tobytes().ljust(8, b"\0"), "little", signed=True)


_REPEATS_SINCE = 6
_LARGEST_CONSTANT = 1 << 22
"""An identity matrix with more elements is made in each run, so that a small model stays one."""


def _tile_check(node: Node) -> Verdict:
    if node.version < _REPEATS_SINCE:
        return reject("Tile before opset 6 repeats along one axis")
    repeats = node.operand(1).contents or ()
    dims = len(repeats) + sum(times not in (0, 1) for times in repeats)
    return dims <= MAX_RANK or reject(f"the copy has {dims} dimensions, more than {MAX_RANK}")


@FAMILY.lower("Tile", check=all_of(movable, known_rank, settled(1), _tile_check), layout=LayoutRule.FOLLOW)
def tile(emit: Emitter, node: Node) -> None:
    """Copy with a dimension of stride 0 for every repetition; what has one element along it is broadcast."""
    source = node.operand(0)
    type_, shape = sized_type(source)
    steps = strides(tensor(node.output.type))
    repeats = [_known(times) for times in node.operand(1).contents or ()]
    if all(1 in pair for pair in zip(shape, repeats, strict=True)):
        expand(emit, node)
        return
    emit_copy(
        emit, node, emit.view(node.output), emit.view(source), [*repeats, *shape],
        [*(n * s for n, s in zip(shape, steps, strict=True)), *steps], [*(0 for _ in shape), *strides(type_)],
        element_size(source),
    )  # fmt: skip


def _blocks(node: Node, channels: Size, small: Sequence[Size], large: Sequence[Size]) -> tuple[list[Size], list[Size]]:
    """Return the strides of both tensors over batch, channel, line, line in block, column, column in block.

    Args:
        node: DepthToSpace or SpaceToDepth.
        channels: Of the wide tensor.
        small: Strides of the deep tensor, which has more channels and fewer pixels.
        large: Strides of the wide one.
    """
    block = int(node.attrs["blocksize"])
    by_column_first = node.attrs.get("mode", "DCR") in ("DCR", b"DCR")
    channel, line, column = (1, block * channels, channels) if by_column_first else (block * block, block, 1)
    deep = [small[0], channel * small[1], small[2], line * small[1], small[3], column * small[1]]
    wide = [large[0], large[1], block * large[2], large[2], block * large[3], large[3]]
    return deep, wide


@FAMILY.lower("DepthToSpace", "SpaceToDepth", check=all_of(movable, known_rank), layout=LayoutRule.FOLLOW)
def exchange_blocks(emit: Emitter, node: Node) -> None:
    """Copy six dimensions: a block's lines and columns lie in the channels on one side, in the image on the other."""
    source, block = node.operand(0), int(node.attrs["blocksize"])
    (type_, shape), (result, target) = sized_type(source), sized_type(node.output)
    to_space = node.op == "DepthToSpace"
    n, channels, height, width = (target[0], target[1], *shape[2:]) if to_space else (*shape[:2], *target[2:])
    pair = (strides(type_), strides(result))
    deep, wide = _blocks(node, channels, *(pair if to_space else pair[::-1]))
    to, origin = (wide, deep) if to_space else (deep, wide)
    emit_copy(
        emit, node, emit.view(node.output), emit.view(source), [n, channels, height, block, width, block], to, origin,
        element_size(source),
    )  # fmt: skip


@FAMILY.lower("Trilu", check=all_of(movable, known_rank, settled(1)), layout=LayoutRule.ROW_MAJOR)
def trilu(emit: Emitter, node: Node) -> None:
    """Choose between the operand and zero; the mask is a band, read one place further left in every line."""
    source, given = node.operand(0), node.optional_operand(1)
    type_, shape = sized_type(source)
    rows, columns = shape[-2:]
    if 0 in shape:
        return
    diagonal = 0 if given is None else _known((given.contents or ())[0])
    line = StridedInput(_band(emit, node, rows, columns, diagonal), "bool", (*(0 for _ in shape[:-2]), -1, 1))
    zero = StridedInput(emit.constant(np.zeros(1, numpy_dtype(type_.dtype))), type_.dtype, (0,) * len(shape))

    def build(steps: Steps, node: Node) -> Ref:
        return steps.where(steps.read_strided(line), steps.read(source), steps.read_strided(zero))

    emit_fusion_group(emit, [node], [node.output], build)


def _band(emit: Emitter, node: Node, rows: Size, columns: Size, diagonal: Size) -> View:
    """Return where it lies which diagonals, from the lowest one on, a Trilu keeps."""
    upper, whole = int(node.attrs.get("upper", 1)), maximum(rows + columns - 1, 0)
    below = maximum(minimum(diagonal + rows - upper, whole), 0)
    parts = [(below, 1 - upper), (whole - below, upper)]
    if isinstance(below, int) and isinstance(whole, int) and whole <= _LARGEST_CONSTANT:
        return emit.constant(np.repeat([bool(kept) for _, kept in parts], [below, whole - below]))
    band = emit.scratch(whole)
    start: Size = 0
    for count, kept in parts:
        params = nd_params((count,), stride=(1,))
        emit.call("fill", [band.at(start)], {"element_size": 1, "pattern": kept, **params}, node)
        start = start + count
    return band


@FAMILY.lower("EyeLike", check=all_of(movable, known_rank), layout=LayoutRule.ROW_MAJOR)
def eye_like(emit: Emitter, node: Node) -> None:
    """Make the result a constant where it is known and small; else fill it with zeros, and the diagonal with ones.

    A result of the region is filled in any case: copying a constant takes longer.
    """
    type_, (rows, columns) = sized_type(node.output)
    shift = int(node.attrs.get("k", 0))
    stays = node.output not in emit.graph.outputs
    if stays and isinstance(rows, int) and isinstance(columns, int) and rows * columns <= _LARGEST_CONSTANT:
        eye = np.eye(rows, columns, min(max(shift, -rows), columns))
        emit.alias(node.output, emit.constant(eye.astype(numpy_dtype(type_.dtype))))
        return
    size = element_size(node.output)
    place, one = emit.view(node.output), _bits(np.ones(1, numpy_dtype(type_.dtype)))
    zeros, ones = ({"element_size": size, "pattern": pattern} for pattern in (0, one))
    emit.call("fill", [place], {**zeros, **nd_params((rows * columns,), stride=(1,))}, node)
    across, down = max(shift, 0), max(-shift, 0)
    count = maximum(minimum(rows - down, columns - across), 0)
    start = minimum(across, columns) + minimum(down, rows) * columns
    diagonal = nd_params((count,), stride=(columns + 1,))
    emit.call("fill", [place.at(start * size)], {**ones, **diagonal}, node)
