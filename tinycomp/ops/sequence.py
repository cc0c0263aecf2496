"""Sequences, which are Python lists, and optionals, which are a value or None."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.proto import DTYPE_BY_NUMBER
from tinycomp.ir.types import UNKNOWN, UNKNOWN_DTYPE, OptionalType, SequenceType, Type, join, present, tensor
from tinycomp.ops.movement import concat
from tinycomp.ops.numeric import Array, fix_axis, ints, scalar_int
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, sizes_of
from tinycomp.symbolic import Size

FAMILY = OpFamily("sequence")


def _position(position: Array | None, low: int, high: int, default: int, where: str) -> int:
    """Return a position counted from the front of a list, where ``low`` to ``high`` are allowed."""
    if position is None:
        return default
    value = scalar_int(position)
    if not low <= value <= high:
        raise ExecutionError(
            "position out of bounds", where=where, expected=f"a position in [{low}, {high}]", found=str(value)
        )
    return value if value >= 0 else value - low


@FAMILY.op("SequenceConstruct")
def sequence_construct(*inputs: Array) -> list[Array]:
    """Return a sequence of the inputs."""
    return list(inputs)


@FAMILY.op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Array]:
    """Return a sequence without elements."""
    return []


@FAMILY.op("SequenceLength")
def sequence_length(sequence: Sequence[Array]) -> Array:
    """Return the number of elements."""
    return np.array(len(sequence), np.int64)


@FAMILY.op("SequenceAt")
def sequence_at(sequence: Sequence[Array], position: Array) -> Array:
    """Return the element at a position, which counts from the end if negative.

    Raises:
        ExecutionError: If there is no such element.
    """
    return sequence[_position(position, -len(sequence), len(sequence) - 1, 0, "SequenceAt")]


@FAMILY.op("SequenceInsert")
def sequence_insert(sequence: Sequence[Array], tensor: Array, position: Array | None = None) -> list[Array]:
    """Return the sequence with a tensor before a position, or at the end.

    Raises:
        ExecutionError: If the position does not lie in [-n, n].
    """
    at = _position(position, -len(sequence), len(sequence), len(sequence), "SequenceInsert")
    return [*sequence[:at], tensor, *sequence[at:]]


@FAMILY.op("SequenceErase")
def sequence_erase(sequence: Sequence[Array], position: Array | None = None) -> list[Array]:
    """Return the sequence without the element at a position, or without the last.

    Raises:
        ExecutionError: If there is no such element.
    """
    last = len(sequence) - 1
    at = _position(position, -len(sequence), last, last, "SequenceErase")
    return [*sequence[:at], *sequence[at + 1 :]]


@FAMILY.op("SplitToSequence")
def split_to_sequence(x: Array, split: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Array]:
    """Return pieces along ``axis``: of one size (the last may be smaller), of given sizes, or single elements.

    Raises:
        ExecutionError: If the sizes do not fit the axis.
    """
    fixed = fix_axis(axis, x.ndim, "SplitToSequence")
    total = x.shape[fixed]
    if split is None:
        pieces = np.split(x, range(1, total), fixed) if total else []
        return pieces if keepdims else [piece.squeeze(fixed) for piece in pieces]
    if split.ndim == 0:
        size = scalar_int(split)
        sizes = [size] * (total // size) + ([total % size] if total % size else []) if size > 0 else []
    else:
        sizes = ints(split)
    if sum(sizes) != total or any(s < 0 for s in sizes):
        raise ExecutionError(
            f"the sizes do not split axis {fixed}",
            where="SplitToSequence",
            expected=f"sizes that sum to {total}",
            found=str(split.tolist()),
        )
    return list(np.split(x, np.cumsum(sizes)[:-1], fixed)) if sizes else []


@FAMILY.op("ConcatFromSequence")
def concat_from_sequence(sequence: Sequence[Array], *, axis: int, new_axis: int = 0) -> Array:
    """Join the elements along an axis, or stack them along a new one.

    Raises:
        ExecutionError: If the sequence is empty or the shapes differ.
    """
    if not sequence:
        raise ExecutionError("the sequence is empty", where="ConcatFromSequence", expected="one element or more")
    fixed = fix_axis(axis, sequence[0].ndim + bool(new_axis), "ConcatFromSequence")
    elements = [np.expand_dims(x, fixed) for x in sequence] if new_axis else sequence
    first = elements[0]
    for x in elements:
        if (*x.shape[:fixed], *x.shape[fixed + 1 :]) != (*first.shape[:fixed], *first.shape[fixed + 1 :]):
            raise ExecutionError(
                f"the elements differ outside axis {fixed}", where="ConcatFromSequence",
                expected=str(list(first.shape)), found=str(list(x.shape)),
            )  # fmt: skip
    return np.asarray(concat(*elements, axis=fixed))


@FAMILY.op("Optional")
def optional(element: Any = None, *, type: Any = None) -> Any:  # noqa: A002
    """Return an optional that holds the input, or nothing."""
    return element


@FAMILY.op("OptionalHasElement")
def optional_has_element(element: Any = None) -> Array:
    """Tell whether there is an element."""
    return np.array(element is not None)


@FAMILY.op("OptionalGetElement")
def optional_get_element(element: Any) -> Any:
    """Return the element of an optional.

    Raises:
        ExecutionError: If there is none.
    """
    if element is None:
        raise ExecutionError("the optional is empty", where="OptionalGetElement", expected="an element")
    return element


def _element(facts: Facts) -> Type:
    """Return the type of the elements of the first operand."""
    type_ = facts.type(0)
    return type_.element if isinstance(type_, SequenceType) else UNKNOWN


def _require_dtype(facts: Facts, index: int, wanted: str) -> None:
    found = facts.dtype(index)
    if UNKNOWN_DTYPE not in (found, wanted):
        facts.require(found == wanted, "a sequence has elements of one type", expected=wanted, found=found)


@FAMILY.infer("SequenceConstruct")
def _constructed(facts: Facts) -> Results:
    facts.require(facts.count > 0, "a sequence is constructed of nothing", expected="an operand", found="none")
    for index in range(1, facts.count):
        _require_dtype(facts, index, facts.dtype(0))
    return [SequenceType(functools.reduce(join, map(facts.type, range(facts.count))))]


@FAMILY.infer("SequenceEmpty")
def _empty(facts: Facts) -> Results:
    return [SequenceType(facts.tensor(DTYPE_BY_NUMBER[facts.require_one_of("dtype", (*DTYPE_BY_NUMBER,), 1)], None))]


@FAMILY.infer("SequenceInsert")
def _inserted(facts: Facts) -> Results:
    _require_dtype(facts, 1, tensor(_element(facts)).dtype)
    return [SequenceType(join(_element(facts), facts.type(1)))]


@FAMILY.infer("SequenceErase")
def _erased(facts: Facts) -> Results:
    return [facts.type(0)]


@FAMILY.infer("SequenceAt")
def _at(facts: Facts) -> Results:
    return [_element(facts)]


@FAMILY.infer("SequenceLength")
def _length(facts: Facts) -> Results:
    return [facts.tensor("int64", ())]


@FAMILY.infer("ConcatFromSequence")
def _concatenated(facts: Facts) -> Results:
    element, new = tensor(_element(facts)), bool(facts.attr("new_axis", 0))
    if element.shape is None:
        return [facts.tensor(element.dtype, None)]
    dims = [*sizes_of(element.shape)]
    axis = facts.require_axis(int(facts.attr("axis")), len(dims) + new)
    dims[axis : axis + (not new)] = [None]
    return [facts.tensor(element.dtype, dims)]


@FAMILY.infer("SplitToSequence")
def _split(facts: Facts) -> Results:
    shape, axis = facts.shape(0), facts.require_axis(int(facts.attr("axis", 0)), facts.rank(0))
    if shape is None:
        return [SequenceType(facts.tensor(facts.dtype(0), None))]
    dims: list[Size | None] = list(shape)
    lengths = facts.ints(1) if facts.has(1) else [1]
    whole, part = dims[axis], None if lengths is None or len(set(lengths)) != 1 else lengths[0]
    is_vector = facts.rank(1) == 1
    divides = is_vector or part == 1 or (isinstance(whole, int) and bool(part) and whole % (part or 1) == 0)
    dims[axis] = part if divides else None
    if not facts.has(1) and not facts.attr("keepdims", 1):
        del dims[axis]
    return [SequenceType(facts.tensor(facts.dtype(0), dims))]


@FAMILY.infer("Optional")
def _optional(facts: Facts) -> Results:
    return [OptionalType(facts.type(0) if facts.has(0) else facts.attr("type", UNKNOWN))]


@FAMILY.infer("OptionalGetElement")
def _got(facts: Facts) -> Results:
    return [present(facts.type(0))]


@FAMILY.infer("OptionalHasElement")
def _has(facts: Facts) -> Results:
    return [facts.tensor("bool", ())]


FAMILY.trait(
    "handle", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
)  # fmt: skip
