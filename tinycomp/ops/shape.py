"""Operators that read or change only the shape: Reshape to Size, and the operators that pass their input through."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.ir.infer import infer_types
from tinycomp.ir.types import TensorType, Type
from tinycomp.ops.contents import elements_of
from tinycomp.ops.facts import Facts, Operand, axes_in_range, is_known
from tinycomp.ops.numeric import Array, fix_axes, fix_axis, ints
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.symbolic import Size, has_elements, if_zero, maximum, product

FAMILY = OpFamily("shape")
_VIEW = {"movement", "cheap"}


def resolve_reshape(old: Sequence[int], wanted: Sequence[int], allowzero: bool) -> tuple[int, ...]:
    """Return the shape that Reshape gives, with 0 and -1 filled in.

    Raises:
        ExecutionError: If the request is contradictory or does not hold the same number of elements.
    """

    def bad(reason: str) -> ExecutionError:
        return ExecutionError(
            reason, where="Reshape", expected=f"a shape of {math.prod(old)} elements, as {tuple(old)} has",
            found=str(tuple(wanted)),
        )  # fmt: skip

    new, copied = list(wanted), set[int]()
    if not allowzero:
        copied = {i for i, d in enumerate(new) if d == 0}
        if any(d == 0 and i >= len(old) for i, d in enumerate(new)):
            raise bad("a 0 copies a dimension that the input does not have")
        new = [old[i] if d == 0 else d for i, d in enumerate(new)]
    if new.count(-1) > 1 or any(d < -1 for d in new):
        raise bad("more than one -1, or a negative size")
    if -1 in new:
        # A dimension that is copied does not count on either side, and so may be 0.
        rest = math.prod(d for i, d in enumerate(new) if d != -1 and i not in copied)
        total = math.prod(d for i, d in enumerate(old) if i not in copied)
        if not rest or total % rest:
            raise bad("the size for -1 cannot be found")
        new[new.index(-1)] = total // rest
    if math.prod(new) != math.prod(old):
        raise bad("the number of elements differs")
    return tuple(new)


@FAMILY.op("Reshape", since=5, traits=_VIEW)
def reshape(x: Array, shape: Array, *, allowzero: int = 0) -> Array:
    """Return the elements in another shape; 0 copies the input's dimension (unless ``allowzero``), -1 is the rest."""
    return x.reshape(resolve_reshape(x.shape, ints(shape), bool(allowzero)))


@FAMILY.plain_type("Reshape", most=2, dtypes=None)
def _reshaped_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, x = operands[0]
    known = list(filter(is_known, x))
    wanted = node.const(1) if len(operands) == 2 else None
    if wanted is None or wanted.ndim != 1 or not (x and wanted.size) or node.attrs.get("allowzero"):
        return None
    sizes = wanted.tolist()
    if min(sizes) < -1 or any(s == 0 and axis >= len(x) for axis, s in enumerate(sizes)):
        return None
    if len(known) < len(x):
        return _reshaped_unknown(operands[0], sizes)
    copied = {axis for axis, size in enumerate(sizes) if size == 0}
    rest = math.prod(size for size in sizes if size > 0)
    sizes = [known[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = math.prod(n for axis, n in enumerate(known) if axis not in copied) // rest
    return (dtype, tuple(sizes)) if min(sizes) >= 0 and math.prod(sizes) == math.prod(known) else None


def _reshaped_unknown(operand: Operand, sizes: Sequence[int]) -> Operand | None:
    """Return the type where not all sizes of the operand are known, and so neither is the one that -1 stands for."""
    if sizes.count(-1) > 1 or (-1 in sizes and 0 in sizes):
        return None
    dtype, x = operand
    return dtype, tuple([None if s == -1 else x[axis] if s == 0 else s for axis, s in enumerate(sizes)])


@FAMILY.check("Reshape")
def _check_reshape(facts: Facts) -> None:
    if (facts.rank(1) or 1) != 1:
        facts.fail("the shape is not a vector", expected="one dimension", found=f"{facts.rank(1)}")
    facts.require_shape(1)
    wanted, sizes = facts.ints(1, "shape"), facts.sizes(0)
    if wanted is None or sizes is None:
        return
    if any(d < -1 for d in wanted) or wanted.count(-1) > 1:
        facts.fail("not a shape", expected="sizes of 0 or more and at most one -1", found=wanted)
    if not facts.attr("allowzero", 0):
        if any(d == 0 and i >= len(sizes) for i, d in enumerate(wanted)):
            facts.fail("a 0 copies a dimension that is not there", expected=f"zeros among the first {len(sizes)}",
                       found=wanted)  # fmt: skip
        copied = {i for i, d in enumerate(wanted) if d == 0}
    else:
        copied = set()
    total = math.prod(size for i, size in enumerate(sizes) if i not in copied)
    known = math.prod(d for i, d in enumerate(wanted) if d != -1 and i not in copied)
    if total != known if -1 not in wanted else known == 0 or total % known:
        found = [sizes[i] if i in copied else d for i, d in enumerate(wanted)]
        facts.fail("the sizes do not fit", expected=f"{math.prod(sizes)} elements as in {list(sizes)}",
                   found=f"shape {found}")  # fmt: skip


@FAMILY.op("Flatten", traits=_VIEW)
def flatten(x: Array, *, axis: int = 1) -> Array:
    """Return a matrix whose rows run over the axes before ``axis``."""
    split = axis if axis == x.ndim else fix_axis(axis, max(x.ndim, 1), "Flatten")
    return x.reshape(math.prod(x.shape[:split]), math.prod(x.shape[split:]))


@FAMILY.plain_type("Flatten", since=11, dtypes=None)
def _flattened_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    known, axis = list(filter(is_known, x)), node.attrs.get("axis", 1)
    if len(known) < len(x) or not -len(x) <= axis <= len(x):
        return None
    axis += len(x) if axis < 0 else 0
    return dtype, (math.prod(known[:axis]), math.prod(known[axis:]))


def _squeeze(x: Array, axes: Sequence[int] | None) -> Array:
    if axes is None:
        return x.reshape(tuple(d for d in x.shape if d != 1))
    dropped = fix_axes(axes, x.ndim, "Squeeze")
    for axis in dropped:
        if x.shape[axis] != 1:
            raise ExecutionError(
                f"axis {axis} cannot be dropped", where="Squeeze", expected="size 1", found=str(x.shape[axis])
            )
    return x.reshape(tuple(d for i, d in enumerate(x.shape) if i not in dropped))


def _unsqueeze(x: Array, axes: Sequence[int]) -> Array:
    rank = x.ndim + len(axes)
    inserted = fix_axes(axes, rank, "Unsqueeze")
    dims = iter(x.shape)
    return x.reshape(tuple(1 if i in inserted else next(dims) for i in range(rank)))


@FAMILY.op("Squeeze", since=13, traits=_VIEW)
def squeeze(x: Array, axes: Array | None = None) -> Array:
    """Drop axes of size 1: those named, or all."""
    return _squeeze(x, None if axes is None else ints(axes))


def _squeezed_type(node: Node) -> list[Type]:
    """Count negative axes from the end in every version, as the kernel does: onnx's inference overlooks old ones."""
    x, axes = node.operand(0), node.attrs.get("axes")
    shape = x.shape
    if shape is None or axes is None:
        return list(infer_types(node))
    dropped = fix_axes(axes, len(shape), "Squeeze")
    return [TensorType(x.dtype, tuple(d for i, d in enumerate(shape) if i not in dropped))]


@FAMILY.op("Squeeze", since=1, traits=_VIEW, type_rule=_squeezed_type)
def squeeze_attribute(x: Array, *, axes: Sequence[int] | None = None) -> Array:
    """Squeeze as before opset 13, with the axes as an attribute."""
    return _squeeze(x, axes)


FAMILY.check("Squeeze")(axes_in_range(1))


@FAMILY.op("Unsqueeze", since=13, traits=_VIEW)
def unsqueeze(x: Array, axes: Array) -> Array:
    """Insert axes of size 1, named as axes of the result."""
    return _unsqueeze(x, ints(axes))


@FAMILY.op("Unsqueeze", since=1, traits=_VIEW)
def unsqueeze_attribute(x: Array, *, axes: Sequence[int]) -> Array:
    """Unsqueeze as before opset 13, with the axes as an attribute."""
    return _unsqueeze(x, axes)


FAMILY.check("Unsqueeze")(axes_in_range(1, fresh=True))


@FAMILY.op("Shape", since=15, traits={"cheap"})
def shape_(x: Array, *, start: int = 0, end: int | None = None) -> Array:
    """Return the dimensions from ``start`` to ``end``, both clamped to the rank."""
    return np.array(x.shape[start:end], np.int64)


@FAMILY.op("Shape", since=1, traits={"cheap"})
def shape_whole(x: Array) -> Array:
    """Return the shape as before opset 15."""
    return np.array(x.shape, np.int64)


@FAMILY.plain_type("Shape", dtypes=None)
def _shape_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((_, x),) = operands
    return "int64", (len(x[node.attrs.get("start", 0) : node.attrs.get("end")]),)


@FAMILY.op("Size", traits={"cheap"})
def size(x: Array) -> Array:
    """Return the number of elements."""
    return np.array(x.size, np.int64)


@FAMILY.op("Identity", traits={"structural", "movement", "cheap", "elementwise"})
def identity(x: Any) -> Any:
    """Return the input itself, of any type."""
    return x


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


@FAMILY.sizes("Reshape")
def _reshaped_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    wanted, before = elements_of(node.operand(1)), shapes[0]
    if wanted is None:
        return [None]
    if before is not None and None not in before and has_elements(*wanted):
        return [_open_sizes(before, wanted, bool(node.attrs.get("allowzero")))]
    copied = set[int]()
    if not node.attrs.get("allowzero") and before is not None:
        copied = {i for i, size in enumerate(wanted) if size == 0 and i < len(before)}
        wanted = tuple([before[i] if size == 0 and i < len(before) else size for i, size in enumerate(wanted)])
    elif not node.attrs.get("allowzero"):  # what a 0 copies is not known
        wanted = tuple([None if size == 0 else size for size in wanted])
    open_ = [i for i, size in enumerate(wanted) if size is None or size == -1]
    if len(open_) != 1 or before is None:
        return [tuple([None if size == -1 else size for size in wanted])]
    others = [size for i, size in enumerate(wanted) if i != open_[0] and i not in copied]
    own = [size for i, size in enumerate(before) if i not in copied]
    rest = _total(own) // _total(others) if None not in (*own, *others) else None
    return [(*wanted[: open_[0]], rest, *wanted[open_[0] + 1 :])]


def _open_sizes(before: Sizes, wanted: Sequence[Size | None], allowzero: bool) -> Sizes:
    """Return the sizes that elements of a tensor ask for; any of them may turn out to be 0 or -1."""
    given: list[Size | None] = list(wanted)
    for axis, own in enumerate(before[: len(wanted)] if not allowzero else ()):
        asked = given[axis]
        given[axis] = None if asked is None or own is None else if_zero(asked, own, asked)
    known = [size for size in given if size is not None]
    if len(known) < len(given):
        return tuple([None if size == -1 else size for size in given])
    # A dimension that is copied does not count on either side, and so may be 0.
    asked_for = [size for size in wanted if size is not None]
    sizes = [size for size in before if size is not None]
    counted = [size if allowzero else if_zero(size, 1, size) for size in asked_for]
    there = [n if allowzero or i >= len(asked_for) else if_zero(asked_for[i], 1, n) for i, n in enumerate(sizes)]
    rest = product(there) // maximum(product([if_zero(size + 1, 1, size) for size in counted]), 1)
    return tuple([if_zero(size + 1, rest, size) for size in known])


def _total(sizes: Iterable[Size | None]) -> Size:
    return product([size for size in sizes if size is not None])


@FAMILY.sizes("Flatten")
def _flat_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x = shapes[0]
    if x is None:
        return [None]
    axis = int(node.attrs.get("axis", 1))
    axis += len(x) if axis < 0 else 0
    return [tuple([None if None in part else _total(part) for part in (x[:axis], x[axis:])])]


@FAMILY.sizes("Squeeze")
def _squeezed_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, axes = shapes[0], _axes(node)
    if x is None or axes is None:
        return [None]
    gone = {axis % len(x) for axis in axes}
    return [tuple([size for axis, size in enumerate(x) if axis not in gone])]


@FAMILY.sizes("Unsqueeze")
def _unsqueezed_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, axes = shapes[0], _axes(node)
    if x is None or axes is None:
        return [None]
    fresh = {axis % (len(x) + len(axes)) for axis in axes}
    kept = iter(x)
    return [tuple([1 if axis in fresh else next(kept) for axis in range(len(x) + len(axes))])]


def _axes(node: Node) -> list[int] | None:
    given = node.const(1)
    if given is not None:
        return [int(axis) for axis in given.reshape(-1)]
    return list(node.attrs["axes"]) if "axes" in node.attrs else None


FAMILY.trait("view", "Flatten", "Reshape", "Squeeze", "Unsqueeze")
FAMILY.trait("selection", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze")
