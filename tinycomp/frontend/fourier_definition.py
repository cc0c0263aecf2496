"""What DFT and STFT compute: products with matrices of roots of unity.

A long transform is two short ones with factors in between, the four-step form of Cooley and Tukey's algorithm
(Bailey, "FFTs in external or hierarchical memory", 1990): its work is that of products of matrices, which targets do
best. Lengths without divisors of that kind are one product, and so are those that only a run knows, whose roots a run
computes. An axis that comes in at run time is one of those that give the declared result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition, is_float32, shape_of, sizes_of
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.schemas import known_opsets
from tinycomp.ir.types import compatible
from tinycomp.ops.numeric import Array
from tinycomp.ops.typing import infer_node_types

_DIRECT = 192
"""Up to this length one product is faster than two with factors in between."""
_LONGEST = 2048
"""The longest side of a matrix; a longer one would take more memory than it is worth."""
_AXIS_OPERAND = 20
_Complex = tuple[Value, Value | None]
"""Real and imaginary parts, the latter None where they are 0."""


def _root(rows: int, columns: int, count: int, sign: int) -> tuple[Array, Array]:
    """Return exp(sign 2 pi i r c / count) for rows r and columns c, as cosines and sines."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % count * (2 * np.pi / count)
    return np.cos(turns).astype(np.float32), (sign * np.sin(turns)).astype(np.float32)


def _factors(n: int) -> tuple[int, int]:
    """Return the two factors of ``n`` that differ least, the larger one first."""
    small = next(d for d in range(int(n**0.5), 0, -1) if n % d == 0)
    return n // small, small


def _times(body: Body, op: str, x: _Complex, factor: tuple[Array, Array], left: bool = False) -> _Complex:
    """Multiply by a constant: from the right, or from the left."""

    def product(part: Value, constant: Array) -> Value:
        return body(op, *((body.const(constant), part) if left else (part, body.const(constant))))

    (re, im), (cosines, sines) = x, factor
    if im is None:
        return product(re, cosines), product(re, sines)
    real = body("Sub", product(re, cosines), product(im, sines))
    return real, body("Add", product(re, sines), product(im, cosines))


def _transformed(body: Body, x: _Complex, n: int, kept: int, sign: int) -> _Complex | None:
    """Transform the last axis, which has ``n`` elements, and keep the first results."""
    if n > _LONGEST**2:
        return None  # nor is it worth looking for factors
    a, b = _factors(n)
    if n <= _DIRECT or b == 1:
        return None if n > _LONGEST else _times(body, "MatMul", x, _root(n, kept, n, sign))
    if a > _LONGEST:
        return None
    rank = x[0].rank or 0
    re, im = (None if v is None else body.resized(v, [*sizes_of(v, range(rank - 1)), a, b]) for v in x)
    assert re is not None
    columns = _times(body, "MatMul", (re, im), _root(a, a, a, sign), left=True)
    turned = _times(body, "Mul", columns, _root(a, b, n, sign))
    rows = _times(body, "MatMul", turned, _root(b, b, b, sign))
    parts = []
    for v in rows:
        assert v is not None
        order = [*range(rank - 1), rank, rank - 1]
        part = body.merged(body("Transpose", v, perm=order), [*[1] * (rank - 1), 2])
        parts.append(body("Slice", part, *map(body.ints, (0, kept, rank - 1))) if kept < n else part)
    return parts[0], parts[1]


def _parts(body: Body, x: Value) -> _Complex | None:
    """Return the parts of numbers whose last axis holds one or two of them."""
    shape = x.shape
    if not shape or shape[-1] not in (1, 2):
        return None
    last = body.ints(-1)
    if shape[-1] == 1:
        return body("Squeeze", x, last), None
    real, imaginary = (body("Gather", x, body.const(np.int64(i)), axis=len(shape) - 1) for i in range(2))
    return real, imaginary


def _joined(body: Body, x: _Complex) -> Value:
    re, im = x
    assert im is not None
    return body("Concat", *(body("Unsqueeze", part, body.ints(-1)) for part in (re, im)), axis=-1)


def _dft(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x, length = operands[0], _known_or_given(body, node, operands, 1)
    if x is None or not x.rank or x.rank < 2:
        return None
    axis = _axis(node)
    if axis is not None:
        return _along(body, node, x, length, axis % x.rank)
    given = operands[2]
    candidates = [each for each in range(x.rank - 1) if _may_be_along(node, each)]
    if given is None or not candidates:
        return None
    # Axes out of range, and those that do not give the declared result, have no number: their index is out of range.
    rank, numbers = x.rank, {axis: number for number, axis in enumerate(candidates)}
    slots = body.ints(*[numbers.get(each % rank, len(candidates)) for each in range(-rank, rank)])
    at = body("Gather", slots, body("Add", body.cast(body.reshape(given, []), "int64"), body.const(np.int64(rank))))
    number = body("Gather", body.ints(*range(len(candidates))), at)
    if len(candidates) == 1:
        x = body("Gather", body("Unsqueeze", x, body.ints(0)), number)

    def along(each: int) -> Callable[[Body, Sequence[Value]], Value | None]:
        def add(inner: Body, own: Sequence[Value]) -> Value | None:
            given = length if length is None or length.const is None else inner.const(length.const)
            return _along(inner, node, own[0], own[1] if len(own) > 1 else given, each)

        return add

    captured = [x] if length is None or length.const is not None else [x, length]
    return body.choice(number, captured, [along(each) for each in candidates])


def _may_be_along(node: Node, axis: int) -> bool:
    """Tell whether a transform along an axis may give the shape that the result has."""
    trial = Body(Graph("trial", infer=infer_node_types, opsets={"": known_opsets()[""]}))
    x = trial.graph.add_input("x", node.operand(0).type)
    length = node.optional_operand(1)
    own = None if length is None else trial.graph.add_input("n", length.type) if length.const is None else length
    if own is not None and own.const is not None:
        own = trial.const(own.const)
    y = _along(trial, node, x, own, axis)
    return y is not None and compatible(y.type, node.output.type)


def _along(body: Body, node: Node, x: Value, length: Value | None, axis: int) -> Value | None:
    """Define a transform along a known axis."""
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    rank = x.rank or 0
    there = (x.shape or ())[axis]
    if axis == rank - 1:
        return None
    n = _length(length)
    if n is None and length is None:
        n = there if isinstance(there, int) else None
        if inverse and onesided:
            n = None if n is None else 2 * (n - 1)
    if n is None:
        return None if inverse and onesided else _along_unknown(body, x, length, axis, inverse, onesided)
    read = n // 2 + 1 if inverse and onesided else n
    if n < 1 or not isinstance(there, int):
        return None
    if read < there:
        x = body("Slice", x, *map(body.ints, (0, read, axis)))
    elif read > there:
        x = body("Pad", x, body.ints(*[0] * rank, *(read - there if d == axis else 0 for d in range(rank))))
    moved, back = _last(body, x, axis)
    if moved is None:
        return None
    if inverse and onesided:
        y = _real_inverse(body, moved, n)
        return None if y is None else body("Unsqueeze", _turned(body, y, back), body.ints(-1))
    found = _transformed(body, moved, n, n // 2 + 1 if onesided else n, 1 if inverse else -1)
    if found is None:
        return None
    y = _back(body, found, back)
    return body("Mul", y, body.float32(1 / n)) if inverse else y


def _last(body: Body, x: Value, axis: int) -> tuple[_Complex | None, list[int]]:
    """Return the parts of ``x`` with an axis as the last one, and the order that takes it back."""
    parts = _parts(body, x)
    rank = (x.rank or 0) - 1
    order = [*(d for d in range(rank) if d != axis), axis]
    if parts is None:
        return None, order
    re, im = (None if v is None else _turned(body, v, order) for v in parts)
    assert re is not None
    return (re, im), [order.index(d) for d in range(rank)]


def _back(body: Body, x: _Complex, order: Sequence[int]) -> Value:
    re, im = x
    return _joined(body, (_turned(body, re, order), None if im is None else _turned(body, im, order)))


def _real_inverse(body: Body, x: _Complex, n: int) -> Value | None:
    """Return the real numbers whose transform begins with ``x``: what follows in it mirrors what is there."""
    if n > _LONGEST:
        return None
    count = n // 2 + 1
    turns = np.outer(np.arange(count), np.arange(n)) % n * (2 * np.pi / n)
    twice = np.where((np.arange(count) == 0) | (2 * np.arange(count) == n), 1, 2)[:, None] / n
    cosines, sines = (twice * np.cos(turns)).astype(np.float32), (twice * np.sin(turns)).astype(np.float32)
    y = body("MatMul", x[0], body.const(cosines))
    return y if x[1] is None else body("Sub", y, body("MatMul", x[1], body.const(sines)))


def _known_or_given(body: Body, node: Node, operands: Sequence[Value | None], index: int) -> Value | None:
    """Return an operand, or the constant that it is in the node."""
    known = node.const(index)
    return operands[index] if known is None else body.const(known)


def _length(given: Value | None) -> int | None:
    return None if given is None or given.const is None else int(given.const.reshape(-1)[0])


def _along_unknown(
    body: Body, x: Value, length: Value | None, axis: int, inverse: bool, onesided: bool
) -> Value | None:
    """Define a transform of a length that a run knows."""
    there = body("Shape", x, start=axis, end=axis + 1)
    n = there if length is None else body.reshape(body.cast(length, "int64"), [1])
    if length is not None:
        x = body("Slice", x, body.ints(0), n, body.ints(axis))
        missing = body("Max", body("Sub", n, there), body.ints(0))
        x = body("Pad", x, body("Concat", body.ints(0), missing, axis=0), None, body.ints(axis))
    moved, back = _last(body, x, axis)
    if moved is None:
        return None
    found = _with_roots(body, moved, n, 1 if inverse else -1, onesided)
    y = _back(body, found, back)
    return body("Div", y, body.cast(n, "float32")) if inverse else y


def _with_roots(body: Body, x: _Complex, n: Value, sign: int, onesided: bool) -> _Complex:
    """Transform the last axis, of a length in a vector of one, by roots that are computed."""
    n = body.reshape(n, [])
    zero, one = body.const(np.int64(0)), body.const(np.int64(1))
    kept = body("Add", body("Div", n, body.const(np.int64(2))), one) if onesided else n
    rows, columns = (body("Range", zero, count, one) for count in (n, kept))
    places = body("Mod", body("Mul", body("Unsqueeze", rows, body.ints(1)), columns), n)
    whole = body("Div", body.const(np.float64(2 * np.pi)), body.cast(n, "float64"))
    turns = body("Mul", body.cast(places, "float64"), whole)
    cosines, sines = (body.cast(body(function, turns), "float32") for function in ("Cos", "Sin"))
    re, im = x
    if sign < 0:
        sines = body("Neg", sines)
    if im is None:
        return body("MatMul", re, cosines), body("MatMul", re, sines)
    real = body("Sub", body("MatMul", re, cosines), body("MatMul", im, sines))
    return real, body("Add", body("MatMul", re, sines), body("MatMul", im, cosines))


def _turned(body: Body, x: Value, order: Sequence[int]) -> Value:
    return x if list(order) == sorted(order) else body("Transpose", x, perm=list(order))


def _axis(node: Node) -> int | None:
    if node.version < _AXIS_OPERAND:
        return int(node.attrs.get("axis", 1))
    given = node.optional_operand(2)
    if given is None:
        return -2
    return None if given.const is None else int(given.const.reshape(-1)[0])


def _stft(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define it as the transform of frames, which are gathered and weighted by the window."""
    x, window = operands[0], operands[2]
    step, length = (_known_or_given(body, node, operands, index) for index in (1, 3))
    weights = shape_of(window)
    if x is None or x.rank not in (2, 3) or step is None or (length is None and window is None):
        return None
    n = _length(length) if length is not None else weights[0] if weights else None
    onesided = bool(node.attrs.get("onesided", 1))
    samples = (x.shape or ())[1]
    one = body.const(np.int64(1))
    count = body.const(np.int64(samples)) if isinstance(samples, int) else body("Gather", body("Shape", x), one)
    if n is not None and (n < 1 or (isinstance(samples, int) and samples < n) or weights not in (None, (n,))):
        return None
    parts = _parts(body, x) if x.rank == 3 else (x, None)
    places = _frames(body, count, n, step, length)
    if parts is None or places is None:
        return None
    re, im = (None if v is None else body("Gather", v, places, axis=1) for v in parts)
    assert re is not None
    if window is not None:
        re, im = body("Mul", re, window), None if im is None else body("Mul", im, window)
    if n is None:
        assert length is not None
        return _joined(body, _with_roots(body, (re, im), body.cast(length, "int64"), -1, onesided))
    found = _transformed(body, (re, im), n, n // 2 + 1 if onesided else n, -1)
    return None if found is None else _joined(body, found)


def _frames(body: Body, samples: Value, n: int | None, step: Value, length: Value | None) -> Value | None:
    """Return the places of the samples of every frame; a signal that is too short has one, which ends behind it."""
    by = _length(step)
    if by is not None and by < 1:
        return None
    if n is not None:
        wide = body.const(np.int64(n))
    elif length is not None:
        wide = body.reshape(body.cast(length, "int64"), [])
    else:
        return None
    steps = body.reshape(body.cast(step, "int64"), [])
    zero, one = body.const(np.int64(0)), body.const(np.int64(1))
    last = body("Div", body("Max", body("Sub", samples, wide), zero), steps)
    firsts = body("Mul", body("Range", zero, body("Add", last, one), one), steps)
    return body("Add", body("Unsqueeze", firsts, body.ints(1)), body("Range", zero, wide, one))


DEFINITIONS = MappingProxyType({"DFT": Definition(_dft, is_float32), "STFT": Definition(_stft, is_float32)})
