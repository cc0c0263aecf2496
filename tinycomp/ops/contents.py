"""The elements of small integer tensors that follow from sizes: what ``Shape(x)`` and arithmetic on it hold.

Elements that are moved are followed by moving their places with the operator's own kernel; arithmetic is done on the
expressions themselves. An element of which nothing is known stays unknown through both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.ir.graph import MOST_CONTENTS, Node, Value
from tinycomp.ir.types import TensorType, Type, tensor
from tinycomp.ops.record import ContentsRule, OpRecord
from tinycomp.symbolic import Expression, Size, UndecidedError, product

Contents = tuple[Size | None, ...]

INTEGERS = ("int32", "int64", "bool")
"""The element types of tensors that may have contents."""


def moved(operands: int) -> ContentsRule:
    """Return what gives the contents of an operator that moves elements, which its leading ``operands`` hold."""
    return lambda node, types, record: _moved(node, record, len(types), operands)


def computed(function: Callable[..., Size]) -> ContentsRule:
    """Return what gives the contents of an element-wise operator that computes ``function``."""
    return lambda node, types, record: [_elementwise(node, tensor(types[0]), function)]


def reduced(function: Callable[[Sequence[Size]], Size]) -> ContentsRule:
    """Return what gives the contents of an operator that reduces a vector to one number."""

    def rule(node: Node, types: Sequence[Type], record: OpRecord | None) -> list[Contents | None]:
        type_, contents = tensor(types[0]), node.operand(0).contents
        if not contents or node.operand(0).rank != 1 or product(type_.static_shape or ()) != 1:
            return [None]
        return [(_element(lambda *parts: function(parts), contents, type_.dtype),)]

    return rule


def contents_by(
    rule: ContentsRule, node: Node, types: Sequence[Type], record: OpRecord | None
) -> Sequence[Contents | None]:
    """Return the contents that an operator's rule gives to a node's results, of these types, the first of integers."""
    shape = tensor(types[0]).static_shape
    if shape is None or product(shape) > MOST_CONTENTS:
        return [None] * len(types)
    return rule(node, types, record)


def elements_of(value: Value | None) -> Contents | None:
    """Return what is known of an operand's elements; a tensor of known shape has unknown ones at least."""
    if value is None:
        return None
    contents, shape = value.contents, value.static_shape
    if contents is None and shape is not None and value.dtype in INTEGERS and product(shape) <= MOST_CONTENTS:
        return (None,) * int(np.prod(shape, dtype=np.int64))
    return contents


def _moved(node: Node, record: OpRecord | None, results: int, operands: int) -> list[Contents | None]:
    data, rest = node.inputs[:operands], node.inputs[operands:]
    parts = [elements_of(value) for value in data]
    constants = [None if value is None else _constant(value) for value in rest]
    unknown: list[Contents | None] = [None] * results
    if record is None or record.kernel is None or not any(v is not None and v.contents for v in data):
        return unknown
    if any(value is not None and array is None for value, array in zip(rest, constants, strict=True)):
        return unknown
    places: list[np.ndarray] = []
    elements: list[Size | None] = []
    for value, part in zip(data, parts, strict=True):
        if value is None or part is None or value.static_shape is None:
            return unknown
        places.append(np.arange(len(elements), len(elements) + len(part)).reshape(value.static_shape))
        elements += part
    try:
        moved = record.bind(node.attrs, results)(*places, *constants)
    except Exception:  # operands that do not fit are for the run to report
        return unknown
    arrays = moved if isinstance(moved, tuple) else (moved,)
    return [tuple([elements[place] for place in np.asarray(a).reshape(-1).tolist()]) for a in arrays]


def _constant(value: Value) -> np.ndarray | None:
    """Return an operand that says how to move elements, if every part of it is a number."""
    if value.const is not None:
        return value.const
    contents, shape = value.contents, value.static_shape
    if contents is None or shape is None or not all(isinstance(c, int) for c in contents):
        return None
    return np.array(contents, np.int64).reshape(shape)


def _elementwise(node: Node, type_: TensorType, function: Callable[..., Size]) -> Contents | None:
    known = [value.contents for value in node.inputs if value is not None and value.static_shape is not None]
    if known and len(known) == len(node.inputs) and all(held is not None and len(held) == 1 for held in known):
        return (_element(function, [held[0] for held in known if held is not None], type_.dtype),)
    arrays = [_as_array(value) for value in node.inputs if value is not None]
    if not arrays or any(array is None for array in arrays):
        return None
    try:
        result = np.frompyfunc(lambda *parts: _element(function, parts, type_.dtype), len(arrays), 1)(*arrays)
    except ValueError:  # operands that do not fit are for the run to report
        return None
    return tuple(np.asarray(result, object).reshape(-1).tolist())


def _element(function: Callable[..., Size], parts: Sequence[Size | None], dtype: str) -> Size | None:
    """Return one element of a result, None where it is not known or its type does not hold it."""
    if None in parts:
        return None
    try:
        element = function(*parts)
    except (UndecidedError, ZeroDivisionError):
        return None
    if isinstance(element, Expression):
        return element
    return int(element) if dtype == "bool" or _holds(dtype, element) else None


def _holds(dtype: str, element: int) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= element <= limits.max)


def _as_array(value: Value) -> Any:
    shape, contents = value.static_shape, value.contents
    if shape is None or contents is None:
        return None
    array = np.empty(len(contents), object)
    array[:] = contents
    return array.reshape(shape)
