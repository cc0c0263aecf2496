"""Types of plain nodes that move elements of any dtype, and of those that read shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import informs
from tinycomp.ops.record import ANY_NUMBER, Operand, PlainTypeRule, Shape, is_known

_INDICES = ("int32", "int64")


def _flatten(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    known, axis = list(filter(is_known, x)), node.attrs.get("axis", 1)
    if len(known) < len(x) or not -len(x) <= axis <= len(x):
        return None
    axis += len(x) if axis < 0 else 0
    return dtype, (math.prod(known[:axis]), math.prod(known[axis:]))


def _transpose(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    perm = node.attrs.get("perm", range(len(x))[::-1])
    return (dtype, tuple([x[axis] for axis in perm])) if x else None


def _concat(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, first = operands[0]
    axis = node.attrs.get("axis")
    if axis is None or not -len(first) <= axis < len(first):
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


def _reshape(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, x = operands[0]
    known = list(filter(is_known, x))
    shape = node.inputs[1] if len(operands) == 2 else None
    wanted = None if shape is None else shape.const
    if wanted is None or wanted.ndim != 1 or not (x and wanted.size) or node.attrs.get("allowzero"):
        return None
    sizes = wanted.tolist()
    if min(sizes) < -1 or any(s == 0 and axis >= len(x) for axis, s in enumerate(sizes)):
        return None
    if len(known) < len(x):
        return _reshape_of_unknown(operands[0], sizes)
    sizes = [known[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    rest = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and rest:
        sizes[sizes.index(-1)] = math.prod(known) // rest
    return (dtype, tuple(sizes)) if min(sizes) >= 0 and math.prod(sizes) == math.prod(known) else None


def _reshape_of_unknown(operand: Operand, sizes: Sequence[int]) -> Operand | None:
    """Where not all sizes of the operand are known, neither is the one that -1 stands for, unless zeros cancel them."""
    if sizes.count(-1) > 1 or (-1 in sizes and 0 in sizes):
        return None
    dtype, x = operand
    return dtype, tuple([None if s == -1 else x[axis] if s == 0 else s for axis, s in enumerate(sizes)])


def _shape(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((_, x),) = operands
    return "int64", (len(x[node.attrs.get("start", 0) : node.attrs.get("end")]),)


def _gather(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, x), (kind, indices) = operands
    axis = node.attrs.get("axis", 0)
    if kind not in _INDICES or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    return dtype, (*x[:axis], *indices, *x[axis + 1 :])


def _slice(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, x = operands[0]
    read = [_integers(value) for value in node.inputs[1:]]
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


def _integers(value: Value | None) -> list[int] | None:
    """Return the elements of a constant list of integers that inference reads."""
    if value is None or value.const is None or value.const.ndim != 1 or not informs(value):
        return None
    return value.const.tolist() if value.const.dtype.name in _INDICES else None


MOVEMENT: Mapping[str, PlainTypeRule] = {
    "Concat": PlainTypeRule(_concat, 1, ANY_NUMBER, since=11, dtypes=None),
    "Flatten": PlainTypeRule(_flatten, since=11, dtypes=None),
    "Gather": PlainTypeRule(_gather, 2, 2, dtypes=None),
    "Reshape": PlainTypeRule(_reshape, 1, 2, dtypes=None),
    "Shape": PlainTypeRule(_shape, dtypes=None),
    "Slice": PlainTypeRule(_slice, 3, 5, since=10, dtypes=None),
    "Transpose": PlainTypeRule(_transpose, dtypes=None),
}
