"""What is known of integer tensors that are computed from shapes, element by element.

An element of ``Shape(x)`` is known where that dimension of ``x`` is static, although the other elements are not. The
knowledge follows the element through operators that move elements, and through element-wise integer arithmetic: the
operator's own kernel runs once on the elements (any number where unknown) and once on the flags that say which are
known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ops import OPS, bind

_MOST_ELEMENTS = 64
_INTEGERS = ("int32", "int64")
_UNKNOWN = 1
"""Stands for unknown elements: neutral enough not to divide by zero."""
_DATA_OPERANDS = {"Concat": 1 << 30}
"""How many leading operands carry elements; operators that move elements have one where nothing else is said."""
_SOURCES = frozenset({"Shape", "Size"})
"""What knowledge begins with."""
_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Neg", "Abs", "Sum", "Cast"})
_MOVEMENT = frozenset(
    {"Concat", "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape", "Identity", "Flatten", "Transpose", "Expand",
     "Tile"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Partial:
    elements: np.ndarray
    known: np.ndarray


@dataclass
class KnownDims:
    """Collect knowledge while a graph is visited in topological order."""

    _partial: dict[Value, _Partial] = field(default_factory=dict)

    def observe(self, node: Node) -> np.ndarray | None:
        """Learn what is known of the result of ``node``; return it if every element is known from shapes."""
        if not (self._partial or node.op in _SOURCES) or node.domain or len(node.outputs) != 1 or not node.output.name:
            return None
        if node.op in _SOURCES:
            partial = _shape(node) if node.op == "Shape" else _size(node)
        else:
            partial = self._follow(node) if node.op in _ARITHMETIC or node.op in _MOVEMENT else None
        if partial is None:
            return None
        self._partial[node.output] = partial
        return partial.elements if partial.known.all() else None

    def reshape_target(self, node: Node) -> np.ndarray | None:
        """Return a constant for the second operand of a Reshape, where that is computed and known but for one element.

        The open element becomes -1: whatever it is at run time, the number of elements says the same. A zero among the
        others would make that ambiguous, as would a second -1.
        """
        value = node.optional_operand(1) if node.op == "Reshape" and not node.domain else None
        partial = None if value is None or value.is_const else self._partial.get(value)
        if partial is None or partial.known.ndim != 1 or (~partial.known).sum() != 1:
            return None
        if (partial.elements[partial.known] < 1).any():
            return None
        return np.where(partial.known, partial.elements, -1).astype(np.int64)

    def _follow(self, node: Node) -> _Partial | None:
        if not any(v in self._partial for v in node.inputs if v is not None):
            return None
        moves = node.op in _MOVEMENT
        count = _DATA_OPERANDS.get(node.op, 1) if moves else len(node.inputs)
        data = [self._lookup(value) for value in node.inputs[:count]]
        rest = [None if value is None else value.const for value in node.inputs[count:]]
        unknown = any(v is not None and a is None for v, a in zip(node.inputs[count:], rest, strict=True))
        if unknown or node.output.dtype not in _INTEGERS:
            return None
        parts = [part for part in data if part is not None]
        if len(parts) != len(data):
            return None
        return _moved(node, parts, rest) if moves else _computed(node, parts)

    def _lookup(self, value: Value | None) -> _Partial | None:
        """Return the elements of an operand: constant, partly known, or unknown with a static shape."""
        if value is None or value.dtype not in _INTEGERS:
            return None
        if value.const is not None:
            array = value.const if value.const.size <= _MOST_ELEMENTS else None
            return None if array is None else _Partial(array, np.ones(array.shape, np.bool_))
        shape = value.static_shape
        if value in self._partial or shape is None or math.prod(shape) > _MOST_ELEMENTS:
            return self._partial.get(value)
        dtype = np.dtype(value.dtype)
        return _Partial(np.full(shape, _UNKNOWN, dtype), np.zeros(shape, np.bool_))


def _shape(node: Node) -> _Partial | None:
    shape = node.operand(0).shape
    if shape is None:
        return None
    dims = shape[node.attrs.get("start", 0) : node.attrs.get("end")]
    elements = [d if isinstance(d, int) else _UNKNOWN for d in dims]
    return _Partial(np.array(elements, np.int64), np.array([isinstance(d, int) for d in dims], np.bool_))


def _size(node: Node) -> _Partial | None:
    shape = node.operand(0).static_shape
    return None if shape is None else _Partial(np.array(math.prod(shape), np.int64), np.array(True))


def _moved(node: Node, data: list[_Partial], rest: list[Any]) -> _Partial | None:
    elements = _run(node, [part.elements for part in data] + rest)
    flags = _run(node, [part.known.astype(np.int64) for part in data] + rest)
    return None if elements is None or flags is None else _Partial(elements, flags != 0)


def _computed(node: Node, data: list[_Partial]) -> _Partial | None:
    elements = _run(node, [part.elements for part in data])
    try:
        known = np.array(np.all(np.broadcast_arrays(*(part.known for part in data)), axis=0))
    except ValueError:
        return None
    return None if elements is None or known.shape != elements.shape else _Partial(elements, known)


def _run(node: Node, operands: list[Any]) -> np.ndarray | None:
    """Run the operator's kernel; operands that do not fit are for run time to report."""
    record = OPS.find(node.op, node.domain, node.version)
    if record is None or record.kernel is None:
        return None
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(bind(node)[0](*operands)[0], order="C")
    except Exception:
        return None
    return result if result.size <= _MOST_ELEMENTS else None
