"""What Einsum computes: sums and products of matrices, two operands at a time, in the order that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from tinycomp.errors import ExecutionError
from tinycomp.frontend.definition_body import Body, Definition
from tinycomp.ir.graph import Node, Value
from tinycomp.ops.contraction import Labels, contraction_order, labels_of, output_labels, split_equation

_USUAL = 64
"""What a size that only a run knows counts for in the choice of an order."""
_HALVES = ("float16", "bfloat16")
_Operand = tuple[Value, Labels]


def _einsum(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    inputs = [v for v in operands if v is not None]
    if any(v.shape is None or None in v.shape for v in inputs):
        return None
    try:
        texts, right = split_equation(node.attrs["equation"], len(inputs))
    except ExecutionError:
        return None
    dtype = inputs[0].dtype
    inputs = [body.cast(v, "float32") if dtype in _HALVES else v for v in inputs]
    terms = [labels_of(text, v.rank or 0) for text, v in zip(texts, inputs, strict=True)]
    output = output_labels(right, terms)
    parts: dict[int, _Operand] = {}
    for i, (x, term) in enumerate(zip(inputs, terms, strict=True)):
        part = _distinct(body, *_without_ones(body, x, term, list(zip(inputs, terms, strict=True))))
        if part is None:
            return None
        parts[i] = part
    sizes: dict[str, int] = {}
    shapes: dict[str, object] = {}
    for x, labels in parts.values():
        for label, size in zip(labels, x.shape or (), strict=True):
            if shapes.setdefault(label, size) != size:
                return None
            sizes[label] = size if isinstance(size, int) else _USUAL
    if not set(output) <= sizes.keys():
        return None
    for place, (i, j) in enumerate(contraction_order([t for _, t in parts.values()], output, sizes), len(inputs)):
        a, b = parts.pop(i), parts.pop(j)
        needed = set(output).union(*(labels for _, labels in parts.values()))
        a, b = _summed(body, *a, needed.union(b[1])), _summed(body, *b, needed.union(a[1]))
        parts[place] = _contracted(body, a, b, needed)
    ((result, labels),) = parts.values()
    return body.cast(_turned(body, *_summed(body, result, labels, set(output)), output), dtype)


def _without_ones(
    body: Body, x: Value, term: Labels, everything: Sequence[tuple[Value, Labels]]
) -> tuple[Value, Labels]:
    """Take away axes of size 1 under the ellipsis where another operand has more: they are repeated along them."""
    longer = {
        label
        for other, labels in everything
        for label, size in zip(labels, other.shape or (), strict=True)
        if label.isdigit() and size != 1
    }
    shape = x.shape or ()
    away = [axis for axis, label in enumerate(term) if label in longer and shape[axis] == 1]
    if not away:
        return x, term
    return body("Squeeze", x, body.ints(*away)), [label for axis, label in enumerate(term) if axis not in away]


def _distinct(body: Body, x: Value, term: Labels) -> _Operand | None:
    """Take diagonals of repeated labels; None where a size is not known."""
    while len(set(term)) < len(term):
        label = next(label for label in term if term.count(label) > 1)
        first = term.index(label)
        second = term.index(label, first + 1)
        rest = [axis for axis in range(len(term)) if axis not in (first, second)]
        x = body("Transpose", x, perm=[*rest, first, second])
        term = [*(term[axis] for axis in rest), label]
        shape = x.static_shape
        if shape is None or shape[-1] != shape[-2]:
            return None
        flat = body.reshape(x, [*shape[:-2], shape[-1] ** 2])
        ends = (0, shape[-1] ** 2, len(term) - 1, shape[-1] + 1)
        x = body("Slice", flat, *map(body.ints, ends))
    return x, term


def _summed(body: Body, x: Value, labels: Labels, needed: set[str]) -> _Operand:
    """Sum over the labels that nobody needs."""
    away = [axis for axis, label in enumerate(labels) if label not in needed]
    if not away:
        return x, labels
    return body("ReduceSum", x, body.ints(*away), keepdims=0), [label for label in labels if label in needed]


def _turned(body: Body, x: Value, labels: Labels, wanted: Labels) -> Value:
    order = [labels.index(label) for label in wanted]
    return x if order == sorted(order) else body("Transpose", x, perm=order)


def _contracted(body: Body, left: _Operand, right: _Operand, needed: set[str]) -> _Operand:
    """Multiply two operands and sum over the labels that both have and nobody needs."""
    (a, of_a), (b, of_b) = left, right
    batch = [label for label in of_a if label in of_b and label in needed]
    inner = [label for label in of_a if label in of_b and label not in needed]
    rows = [label for label in of_a if label not in of_b]
    columns = [label for label in of_b if label not in of_a]
    if not inner:
        return _multiplied(body, left, right, [*batch, *rows, *columns])
    sizes = _places(left) | _places(right)
    a = _turned(body, a, of_a, [*batch, *rows, *inner])
    b = _turned(body, b, of_b, [*batch, *inner, *columns])
    lead = [len(batch)] if len(batch) > 1 else [1] * len(batch)
    a = body.merged(a, [*lead, len(rows), len(inner)])
    b = body.merged(b, [*lead, len(inner), len(columns)])
    product, result = body("MatMul", a, b), [*batch, *rows, *columns]
    if len(lead) == len(batch) and len(rows) == len(columns) == 1:
        return product, result
    return body.resized(product, [sizes[label] for label in result]), result


def _places(operand: _Operand) -> dict[str, int | tuple[Value, int]]:
    x, labels = operand
    shape = x.shape or ()
    return {label: size if isinstance(size := shape[axis], int) else (x, axis) for axis, label in enumerate(labels)}


def _multiplied(body: Body, left: _Operand, right: _Operand, result: Labels) -> _Operand:
    """Multiply two operands of which nothing is summed."""
    factors = []
    for x, labels in (left, right):
        own = [label for label in result if label in labels]
        x = _turned(body, x, labels, own)
        missing = [axis for axis, label in enumerate(result) if label not in labels]
        factors.append(body("Unsqueeze", x, body.ints(*missing)) if missing else x)
    return body("Mul", *factors), result


DEFINITIONS = MappingProxyType({"Einsum": Definition(_einsum)})
