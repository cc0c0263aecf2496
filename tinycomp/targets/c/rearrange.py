"""Repeating elements and exchanging blocks on the C target: strided copies in more dimensions than the tensor has."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ir.layout import strides
from tinycomp.ir.types import numpy_dtype, tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.targets.c.element_program import Ref, Steps, StridedInput, emit_chain
from tinycomp.targets.c.emit import Emitter
from tinycomp.targets.c.movement import element_size, emit_copy, movable
from tinycomp.targets.c.rules import MAX_RANK, Rules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, constant, first, operand, static_type

FAMILY = Rules()

_REPEATS_SINCE = 6


def _tile_check(node: Node) -> Verdict:
    if node.version < _REPEATS_SINCE:
        return reject("Tile before opset 6 repeats along one axis")
    repeats = operand(node, 1)
    assert repeats is not None
    assert repeats.const is not None
    dims = repeats.const.size + int(np.count_nonzero(repeats.const > 1))
    return dims <= MAX_RANK or reject(f"the copy has {dims} dimensions, more than {MAX_RANK}")


@FAMILY.lower("Tile", check=all_of(movable, known_rank, constant(1), _tile_check), layout=LayoutRule.FOLLOW)
def tile(emit: Emitter, node: Node) -> None:
    """Copy with a dimension of stride 0 for every repetition."""
    source = first(node)
    type_, shape = static_type(source)
    result, whole = static_type(node.output)
    repeats = [n // own if own else 0 for n, own in zip(whole, shape, strict=True)]
    steps = strides(result)
    emit_copy(
        emit, node, emit.view(node.output), emit.view(source), [*repeats, *shape],
        [*(n * s for n, s in zip(shape, steps, strict=True)), *steps], [*(0 for _ in shape), *strides(type_)],
        element_size(source),
    )  # fmt: skip


def _blocks(node: Node, channels: int, small: tuple[int, ...], large: tuple[int, ...]) -> tuple[list[int], ...]:
    """Strides of the deep and of the wide tensor over batch, channel, line, line in block, column, column in block.

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
    source, block = first(node), int(node.attrs["blocksize"])
    (type_, shape), (result, target) = static_type(source), static_type(node.output)
    to_space = node.op == "DepthToSpace"
    n, channels, height, width = (target[0], target[1], *shape[2:]) if to_space else (*shape[:2], *target[2:])
    pair = (strides(type_), strides(result))
    deep, wide = _blocks(node, channels, *(pair if to_space else pair[::-1]))
    to, origin = (wide, deep) if to_space else (deep, wide)
    emit_copy(
        emit, node, emit.view(node.output), emit.view(source), [n, channels, height, block, width, block], to, origin,
        element_size(source),
    )  # fmt: skip


@FAMILY.lower("Trilu", check=all_of(movable, known_rank, constant(1)), layout=LayoutRule.ROW_MAJOR)
def trilu(emit: Emitter, node: Node) -> None:
    """Choose between the operand and zero; the mask is a band, read one place further left in every line."""
    source, shift = first(node), operand(node, 1)
    type_, shape = static_type(source)
    rows, columns = shape[-2:]
    if 0 in shape:
        return
    diagonal = int(shift.const.reshape(-1)[0]) if shift is not None and shift.const is not None else 0
    offsets = np.arange(1 - rows, columns)
    band = offsets >= diagonal if node.attrs.get("upper", 1) else offsets <= diagonal
    line = StridedInput(emit.constant(band), "bool", (*(0 for _ in shape[:-2]), -1, 1))
    zero = StridedInput(emit.constant(np.zeros(1, numpy_dtype(type_.dtype))), type_.dtype, (0,) * len(shape))

    def build(steps: Steps, node: Node) -> Ref:
        return steps.where(steps.read_strided(line), steps.read(source), steps.read_strided(zero))

    emit_chain(emit, [node], [node.output], build)


@FAMILY.lower("EyeLike", check=all_of(movable, known_rank), layout=LayoutRule.ROW_MAJOR)
def eye_like(emit: Emitter, node: Node) -> None:
    """The result is a constant, once the shape is known."""
    type_, (rows, columns) = static_type(node.output)
    shift = min(max(int(node.attrs.get("k", 0)), -rows), columns)
    emit.alias(node.output, emit.constant(np.eye(rows, columns, shift).astype(numpy_dtype(tensor(type_).dtype))))
