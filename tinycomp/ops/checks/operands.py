"""Operands that do not fit each other: what does not broadcast, zero points of products, tuples of indices, boxes."""

from __future__ import annotations

from collections.abc import Callable

from tinycomp.ops.facts import Facts

_BROADCASTS_SINCE = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"), 7),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), 8),
}


def _equal_shapes(facts: Facts) -> None:
    """Before operators broadcast by themselves, operands had one shape, unless the attribute asked for more."""
    shape = facts.shape(0)
    if shape is None or facts.node.version >= _BROADCASTS_SINCE[facts.node.op] or facts.attr("broadcast", 0):
        return
    for index in range(1, len(facts.node.inputs)):
        other = facts.sizes(index)
        if other is not None and (
            len(other) != len(shape) or any(isinstance(d, int) and d != n for d, n in zip(shape, other, strict=True))
        ):
            facts.fail(
                "the operands differ in shape, which this version does not broadcast",
                expected=f"shape {list(shape)}", found=list(other),
                hint=f"Use opset {_BROADCASTS_SINCE[facts.node.op]} or later.",
            )  # fmt: skip


def _zero_points(facts: Facts) -> None:
    """A zero point is one number, one per row of the first operand or column of the second, or broadcasts to either."""
    for index, axis in ((0, -2), (1, -1)):
        shape, point = facts.shape(index), facts.sizes(index + 2)
        if shape is None or point is None:
            continue
        if len(point) == 1 and len(shape) > 1:
            if point != (1,):
                facts.require_size(index + 2, 0, facts.dim(index, axis), "the zero point")
        else:
            facts.require_broadcast(index + 2, (*shape[:-1], 1) if index == 0 else shape, "the zero point")


def _gather_nd(facts: Facts) -> None:
    batch, rank, depth = int(facts.attr("batch_dims", 0)), facts.rank(0), facts.dim(1, -1)
    ranks = [r for r in (rank, facts.rank(1)) if r is not None]
    if batch < 0 or any(batch >= r for r in ranks):
        facts.fail(
            "batch_dims is out of range", expected=f"0 or more, and less than the ranks {ranks} of the operands",
            found=batch,
        )  # fmt: skip
    if rank is not None and depth is not None and not 1 <= depth <= rank - batch:
        facts.fail("the tuples of indices have a wrong length", expected=f"1 to {rank - batch}", found=depth)


def _suppressed(facts: Facts) -> None:
    facts.require_size(0, 2, 4, "a box")
    facts.require_size(1, 0, facts.dim(0, 0), "the scores' batch")
    facts.require_size(1, 2, facts.dim(0, 1), "a class of scores")


CHECKS: dict[str, Callable[[Facts], None]] = {
    **dict.fromkeys(_BROADCASTS_SINCE, _equal_shapes),
    "GatherND": _gather_nd,
    "MatMulInteger": _zero_points,
    "NonMaxSuppression": _suppressed,
}
