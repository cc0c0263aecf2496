"""What DFT and STFT compute: products with matrices of roots of unity.

A long transform is two short ones with factors in between, the four-step form of Cooley and Tukey's algorithm
(Bailey, "FFTs in external or hierarchical memory", 1990): its work is that of products of matrices, which targets do
best. Lengths without divisors of that kind are one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition, is_float32, shape_of, sizes_of
from tinycomp.ir.graph import Node, Value
from tinycomp.ops.numeric import Array

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
    x = operands[0]
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    if x is None or not x.rank or (inverse and (onesided or node.version < _AXIS_OPERAND)):
        return None
    axis = _axis(node)
    length = node.optional_operand(1)
    if axis is None or (length is not None and length.const is None):
        return None
    axis %= x.rank
    there = (x.shape or ())[axis]
    if not isinstance(there, int) or axis == x.rank - 1:
        return None
    n = there if length is None or length.const is None else int(length.const.reshape(-1)[0])
    if n < 1:
        return None
    if n < there:
        x = body("Slice", x, *map(body.ints, (0, n, axis)))
    elif n > there:
        rank = x.rank or 0
        x = body("Pad", x, body.ints(*[0] * rank, *(n - there if d == axis else 0 for d in range(rank))))
    parts = _parts(body, x)
    if parts is None:
        return None
    rank = (x.rank or 0) - 1
    order = [*(d for d in range(rank) if d != axis), axis]
    back = [order.index(d) for d in range(rank)]
    moved = [None if v is None else _turned(body, v, order) for v in parts]
    assert moved[0] is not None
    found = _transformed(body, (moved[0], moved[1]), n, n // 2 + 1 if onesided else n, 1 if inverse else -1)
    if found is None:
        return None
    y = _joined(body, (_turned(body, found[0], back), None if found[1] is None else _turned(body, found[1], back)))
    return body("Mul", y, body.float32(1 / n)) if inverse else y


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
    x, step, window, length = operands[0], node.const(1), operands[2], node.const(3)
    shape, weights = shape_of(x), shape_of(window)
    if x is None or shape is None or len(shape) != 3 or step is None or (length is None and weights is None):
        return None
    n = int(length.reshape(-1)[0]) if length is not None else (weights or (0,))[0]
    by, onesided = int(step.reshape(-1)[0]), bool(node.attrs.get("onesided", 1))
    if n < 1 or by < 1 or shape[1] < n or (weights is not None and weights != (n,)):
        return None
    frames = np.arange(0, shape[1] - n + 1, by)[:, None] + np.arange(n)
    parts = _parts(body, x)
    if parts is None:
        return None
    taken = [None if v is None else body("Gather", v, body.const(frames), axis=1) for v in parts]
    if window is not None:
        taken = [None if v is None else body("Mul", v, window) for v in taken]
    assert taken[0] is not None
    found = _transformed(body, (taken[0], taken[1]), n, n // 2 + 1 if onesided else n, -1)
    return None if found is None else _joined(body, found)


DEFINITIONS = MappingProxyType({"DFT": Definition(_dft, is_float32), "STFT": Definition(_stft, is_float32)})
