"""Operators that read or change only the shape: Reshape to Size, and the operators that pass their input through."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NoReturn

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ops.contents import moved
from tinycomp.ops.numeric import Array, ints
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Demand, Facts, Results, Sizes, known_of, shape_text, sizes_of
from tinycomp.symbolic import (
    Expression,
    Size,
    has_elements,
    if_zero,
    is_positive,
    marked_axes,
    maximum,
    minimum,
    product,
)

FAMILY = OpFamily("shape")
_VIEW = {"movement", "cheap"}


def reshaped(before: Sizes, wanted: Sizes, allowzero: bool) -> tuple[Sizes, Size | None, Size | None]:
    """Return the shape that Reshape gives, with what 0 and -1 stand for, whatever is known of both shapes.

    Returns:
        The sizes, and how many elements the operand and the result have, what -1 stands for and the dimensions that a
        0 copies left out: these do not count on either side, and so may be 0.
    """
    sizes, there, counted = list(wanted), list(before), list(wanted)
    for axis, asked in enumerate(wanted[: len(before)] if not allowzero else ()):
        own = before[axis]
        if asked is not None and (asked == 0 or has_elements(asked)):
            sizes[axis] = None if own is None else if_zero(asked, own, asked)
            there[axis] = 1 if asked == 0 else None if own is None else if_zero(asked, 1, own)
            counted[axis] = if_zero(asked, 1, asked)
    total = _total(there)
    if -1 in wanted:  # then no element is -1
        known = _total([1 if size == -1 else size for size in counted])
        rest = _rest(total, known)
        return tuple([rest if size == -1 else size for size in sizes]), total, known
    if counted.count(None) == 1 and not has_elements(*counted):  # which follows, whatever it is
        rest = _rest(total, _total([size for size in counted if size is not None]))
        return tuple([rest if size is None else old for old, size in zip(sizes, counted, strict=True)]), total, None
    known = _total(counted)
    if has_elements(*counted):  # of which one may be -1
        known = _total([None if size is None else if_zero(size + 1, 1, size) for size in counted])
        sizes = [_or_rest(size, total, known) if has_elements(size) else size for size in sizes]
    return tuple(sizes), total, known


def _total(sizes: Iterable[Size | None]) -> Size | None:
    known = list(sizes)
    return None if None in known else product([size for size in known if size is not None])


def _rest(total: Size | None, known: Size | None) -> Size | None:
    return None if total is None or known is None or known == 0 else total // known


def _or_rest(size: Size | None, total: Size | None, known: Size | None) -> Size | None:
    """Return a size that elements of a tensor ask for, or what is left if they ask for -1."""
    if size is None or total is None or known is None:
        return None
    return if_zero(size + 1, total // maximum(known, 1), size)


@FAMILY.op("Reshape", since=5, traits=_VIEW)
def reshape(x: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """Return the elements in another shape; 0 copies the input's dimension (unless ``allowzero``), -1 is the rest."""
    sizes, _, _ = reshaped(x.shape, tuple(ints(shape)), bool(allowzero))
    return x.reshape(sizes)  # type: ignore[arg-type]  # numbers give numbers


@FAMILY.infer("Reshape", sizing=(1,), contents=moved(1))
def _reshape_rule(facts: Facts) -> Results:
    facts.require_rank(1, 1, "the shape")
    facts.require_few(1)
    before, given, allowzero = facts.shape(0), facts.attr("shape"), bool(facts.attr("allowzero", 0))
    wanted = facts.elements(1) if given is None else tuple(given)
    if wanted is None:
        return [facts.tensor(facts.dtype(0), None)]
    _require_sizes(facts, wanted)
    if before is None:
        known = [None if size == -1 or has_elements(size) or (size == 0 and not allowzero) else size for size in wanted]
        return [facts.tensor(facts.dtype(0), known)]
    if not allowzero:
        _require_copies(facts, before, wanted)
    sizes, there, asked = reshaped(before, wanted, allowzero)
    if there is not None and asked is not None:
        _require_elements(facts, before, wanted, sizes, there, asked)
    return [facts.tensor(facts.dtype(0), _completed(before, sizes))]


def _completed(before: Sizes, sizes: Sizes) -> Sizes:
    """Replace the one size that elements ask for by what the others leave of the number of elements."""
    known = [size for size in sizes if isinstance(size, int)]
    rest = _rest(_total(before), product(known)) if len(known) + 1 == len(sizes) else None
    return tuple([rest if isinstance(rest, int) and not isinstance(size, int) else size for size in sizes])


def _require_sizes(facts: Facts, wanted: Sizes) -> None:
    """Demand sizes of 0 or more and at most one -1."""
    count: Size = wanted.count(-1)
    is_shape = count < 2 and all(size >= -1 for size in wanted if isinstance(size, int))
    facts.require(is_shape, "not a shape", expected="sizes of 0 or more and at most one -1", found=list(wanted))
    for size in wanted:
        if isinstance(size, Expression):
            facts.require_at_least(size, -1 if has_elements(size) else 0, "a size of the shape is negative")
            count = count + (if_zero(size + 1, 1, 0) if has_elements(size) else 0)
    facts.demand(minimum(1 - count, 0), f"more than one size of {shape_text(wanted)} is -1")


def _require_copies(facts: Facts, before: Sizes, wanted: Sizes) -> None:
    """Demand that a 0 stands where the operand has a dimension."""
    for axis, asked in enumerate(wanted):
        own = before[axis] if axis < len(before) else 1
        if asked == 0 and axis >= len(before):
            facts.fail("a 0 copies a dimension that is not there", expected=f"zeros among the first {len(before)}",
                       found=list(wanted))  # fmt: skip
        if isinstance(asked, Expression) and own is not None and (axis >= len(before) or not has_elements(asked)):
            text = f"a 0 of {shape_text(wanted)} copies a dimension that has another size or is not there"
            facts.demand(0 if own == asked else if_zero(asked, own, 0), text)


def _require_elements(facts: Facts, before: Sizes, wanted: Sizes, sizes: Sizes, there: Size, asked: Size) -> None:
    """Demand that the result has as many elements as the operand, and that there is one number that -1 stands for."""
    text = f"{shape_text(before)} and {shape_text(wanted)} have different numbers of elements"
    if -1 in wanted:
        missing = there if asked == 0 else there % asked
        if asked == 0 or (isinstance(missing, int) and missing):
            _other_number(facts, before, wanted)
        facts.demand(missing, text)
    elif not has_elements(*wanted):
        missing = there - asked
        if isinstance(missing, Expression):
            facts.demands.append(Demand(missing, text, (there, asked)))
        elif missing:
            _other_number(facts, before, wanted)
    elif (after := _total(sizes)) is not None:
        facts.demand(product([size for size in before if size is not None]) - after, text)
        least = minimum(*[size for size in wanted if size is not None])
        facts.demand(
            if_zero(asked, if_zero(least + 1, 1, 0), 0), f"-1 of {shape_text(wanted)} could be anything beside a 0"
        )


def _other_number(facts: Facts, before: Sizes, wanted: Sizes) -> NoReturn:
    copied = not facts.attr("allowzero", 0)
    found = [own if size == 0 and copied else size for size, own in zip_longest(wanted, before[: len(wanted)])]
    facts.fail("the sizes do not fit", expected=f"{_total(before)} elements as in {list(before)}",
               found=f"shape {found}")  # fmt: skip


@FAMILY.op("Flatten", traits=_VIEW)
def flatten(x: Array, *, axis: int = 1) -> Array:
    """Return a matrix whose rows run over the axes before ``axis``."""
    split = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:split]), math.prod(x.shape[split:]))


@FAMILY.infer("Flatten", contents=moved(1))
def _flatten_rule(facts: Facts) -> Results:
    shape, axis = facts.shape(0), int(facts.attr("axis", 1))
    if shape is None:
        return [facts.tensor(facts.dtype(0), (None if axis else 1, None))]
    facts.require(-len(shape) <= axis <= len(shape), "axis is out of range",
                  expected=f"an axis in [{-len(shape)}, {len(shape)}]", found=axis)  # fmt: skip
    axis += len(shape) if axis < 0 else 0
    return [facts.tensor(facts.dtype(0), (_total(shape[:axis]), _total(shape[axis:])))]


def _squeeze(x: Array, axes: Sequence[int] | None) -> Array:
    dropped = [i for i, d in enumerate(x.shape) if d == 1] if axes is None else [axis % x.ndim for axis in axes]
    return x.reshape(tuple(d for i, d in enumerate(x.shape) if i not in dropped))


def _unsqueeze(x: Array, axes: Sequence[int]) -> Array:
    return x.reshape(tuple(_with_ones(x.shape, [axis % (x.ndim + len(axes)) for axis in axes])))  # type: ignore[arg-type]


def _with_ones(shape: Sizes, axes: Sequence[int]) -> Sizes:
    """Return a shape with further dimensions of 1, which have these numbers in the result."""
    kept = iter(shape)
    return tuple([1 if axis in axes else next(kept) for axis in range(len(shape) + len(axes))])


@FAMILY.op("Squeeze", since=13, traits=_VIEW)
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Drop axes of size 1: those named, or all."""
    return _squeeze(x, None if axes is None else ints(axes))


@FAMILY.op("Squeeze", since=1, traits=_VIEW)
def squeeze_attribute(x: Array, *, axes: Sequence[int] | None = None) -> Array:
    """Squeeze as before opset 13, with the axes as an attribute."""
    return _squeeze(x, axes)


@FAMILY.infer("Squeeze", sizing=(1,), contents=moved(1))
def _squeeze_rule(facts: Facts) -> Results:
    shape, given = facts.shape(0), facts.attr("axes")
    if shape is None:
        return [facts.tensor(facts.dtype(0), None)]
    if given is None and not facts.has(1):
        is_decided = all(isinstance(dim, int) or (dim is not None and is_positive(dim - 1)) for dim in shape)
        return [facts.tensor(facts.dtype(0), tuple([dim for dim in shape if dim != 1]) if is_decided else None)]
    axes = facts.elements(1) if given is None else given
    if axes is None or None in axes:
        return [facts.tensor(facts.dtype(0), None if axes is None else _less(facts, shape, len(axes)))]
    facts.require_axes_or_elements(known_of(axes), len(shape))
    marks = marked_axes(known_of(axes), len(shape))
    for axis, (mark, dim) in enumerate(zip(marks, shape, strict=True)):
        text = f"axis {axis} of {shape_text(shape)} cannot be dropped"
        if isinstance(mark, int):
            facts.require_equal(dim if mark else 1, 1, text)
        elif dim is not None:
            facts.demand(if_zero(mark, 0, dim - 1), text)
    return [facts.tensor(facts.dtype(0), [_kept(shape, marks, place) for place in range(len(shape) - len(axes))])]


def _less(facts: Facts, shape: Sizes, count: int) -> Sizes:
    """Return a shape of which it is not known which ``count`` dimensions are dropped."""
    facts.require(count <= len(shape), "more axes than there are", expected=f"up to {len(shape)}", found=count)
    return (None,) * (len(shape) - count)


def _kept(shape: Sizes, marks: Sequence[Size], place: int) -> Size | None:
    """Return the dimension before which ``place`` others have no mark, and which has none itself."""
    found: Size | None = 0
    for axis in range(len(shape) - 1, place - 1, -1):
        dim, dropped = shape[axis], sum(marks[:axis], start=0)
        is_it = if_zero(marks[axis], if_zero(dropped - (axis - place), 1, 0), 0)
        if is_it == 0:
            continue
        found = dim if is_it == 1 else None if dim is None or found is None else if_zero(is_it, found, dim)
    return found


@FAMILY.op("Unsqueeze", since=13, traits=_VIEW)
def unsqueeze(x: Array, axes: Array) -> Array:
    """Insert axes of size 1, named as axes of the result."""
    return _unsqueeze(x, ints(axes))


@FAMILY.op("Unsqueeze", since=1, traits=_VIEW)
def unsqueeze_attribute(x: Array, *, axes: Sequence[int]) -> Array:
    """Unsqueeze as before opset 13, with the axes as an attribute."""
    return _unsqueeze(x, axes)


@FAMILY.infer("Unsqueeze", sizing=(1,), contents=moved(1))
def _unsqueeze_rule(facts: Facts) -> Results:
    shape, given = facts.shape(0), facts.attr("axes")
    axes = facts.elements(1) if given is None else given
    if shape is None or axes is None:
        return [facts.tensor(facts.dtype(0), None)]
    rank = len(shape) + len(axes)
    if None in axes:
        return [facts.tensor(facts.dtype(0), (None,) * rank)]
    facts.require_axes_or_elements(known_of(axes), rank)
    marks = marked_axes(known_of(axes), rank)
    return [facts.tensor(facts.dtype(0), [_inserted(shape, marks, place) for place in range(rank)])]


def _inserted(shape: Sizes, marks: Sequence[Size], place: int) -> Size | None:
    """Return 1 for a dimension with a mark, else that which as many others without one come before."""
    found: Size | None = 1
    ahead = sum(marks[:place], start=0)
    for axis, dim in enumerate(shape[: place + 1]):
        is_it = if_zero(marks[place], if_zero(ahead - (place - axis), 1, 0), 0)
        if is_it == 0:
            continue
        found = dim if is_it == 1 else None if dim is None or found is None else if_zero(is_it, found, dim)
    return found


@FAMILY.op("Shape", since=15, traits={"cheap"})
def shape_(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Return the dimensions from ``start`` to ``end``, both clamped to the rank."""
    return np.array(x.shape[start:end], np.int64)


@FAMILY.op("Shape", since=1, traits={"cheap"})
def shape_whole(x: Array) -> Array:
    """Return the shape as before opset 15."""
    return np.array(x.shape, np.int64)


def _known_dims(node: Node, *_: object) -> list[Sizes | None]:
    x = node.optional_operand(0)
    shape = None if x is None else x.shape
    return [None if shape is None else sizes_of(shape[node.attrs.get("start", 0) : node.attrs.get("end")])]


@FAMILY.infer("Shape", contents=_known_dims)
def _shape_rule(facts: Facts) -> Results:
    shape = facts.shape(0)
    whole = None if shape is None else len(shape[facts.attr("start", 0) : facts.attr("end")])
    return [facts.tensor("int64", (whole,))]


@FAMILY.op("Size", traits={"cheap"})
def size(x: Array) -> Array:
    """Return the number of elements."""
    return np.array(x.size, np.int64)


def _known_count(node: Node, *_: object) -> list[Sizes | None]:
    x = node.optional_operand(0)
    sizes = None if x is None else x.sizes
    return [None if sizes is None else (product(sizes),)]


@FAMILY.infer("Size", contents=_known_count)
def _size_rule(facts: Facts) -> Results:
    return [facts.tensor("int64", ())]


@FAMILY.op("Identity", traits={"structural", "movement", "cheap", "elementwise"})
def identity(x: Any) -> Any:
    """Return the input itself, of any type."""
    return x


@FAMILY.infer("Identity", contents=moved(1))
def _identity_rule(facts: Facts) -> Results:
    return [facts.type(0)]


def _drop(x: Array, ratio: float, seed: int | None) -> tuple[Array, Array]:
    """Zero each element with probability ``ratio`` and scale the rest by 1 / (1 - ratio).

    The generator is the one that ONNX's tests take, so that a seed gives the elements that they expect.
    """
    kept = np.random.RandomState(seed).uniform(0, 1, x.shape) >= ratio
    scale = 1.0 / (1.0 - ratio) if ratio < 1.0 else 0.0
    return np.where(kept, x.astype(np.float64) * scale, 0.0).astype(x.dtype), kept


@FAMILY.op("Dropout", since=12, traits={"structural", "movement", "output_count", "elementwise"})
def dropout(
    x: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    outputs: int = 1,
) -> Any:
    """Return the input, unless ``training_mode`` is set; the second output says which elements were kept."""
    rate = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    training = training_mode is not None and bool(training_mode.reshape(-1)[0])
    y, kept = _drop(x, rate, seed) if training and rate else (x, None)
    if outputs == 1:
        return y
    return y, np.ones(x.shape, np.bool_) if kept is None else kept


@FAMILY.op("Dropout", since=10, traits={"structural", "movement", "output_count", "elementwise"})
def dropout_10(x: Array, *, ratio: float = 0.5, outputs: int = 1) -> Any:
    """Drop nothing, as at opset 10 for inference; the mask is boolean."""
    return x if outputs == 1 else (x, np.ones(x.shape, np.bool_))


@FAMILY.op("Dropout", since=7, traits={"structural", "movement", "output_count", "elementwise"})
def dropout_7(x: Array, *, ratio: float = 0.5, outputs: int = 1) -> Any:
    """Drop nothing, as before opset 10 for inference; the mask has the input's type."""
    return x if outputs == 1 else (x, np.ones(x.shape, x.dtype))


@FAMILY.op("Dropout", since=1, traits={"structural", "movement", "output_count", "elementwise"})
def dropout_1(
    x: Array, *, ratio: float = 0.5, is_test: int = 0, consumed_inputs: Any = None, outputs: int = 1
) -> Any:  # fmt: skip
    """Drop nothing, as before opset 7: taken as inference whatever ``is_test`` says."""
    return dropout_7(x, ratio=ratio, outputs=outputs)


_MASK_IS_BOOL = 10
"""Since this version of Dropout its second result is boolean."""


@FAMILY.infer("Dropout")
def _dropout_rule(facts: Facts) -> Results:
    facts.require_scalar(1, "the ratio")
    facts.require_scalar(2, "training_mode")
    dtype, shape = facts.dtype(0), facts.shape(0)
    return [facts.tensor(dtype, shape), facts.tensor("bool" if facts.version >= _MASK_IS_BOOL else dtype, shape)]


FAMILY.trait("measure", "Shape", "Size")
FAMILY.trait("view", "Flatten", "Reshape", "Squeeze", "Unsqueeze")
FAMILY.trait("selection", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
FAMILY.trait("strided", "Identity", "Squeeze", "Unsqueeze")
