"""Axes: inside the tensor, and none of them twice."""

from __future__ import annotations

from collections.abc import Callable

from tinycomp.ops.facts import Facts

Check = Callable[[Facts], None]


def _axis(default: int) -> Check:
    def check(facts: Facts) -> None:
        facts.require_axis(int(facts.attr("axis", default)), facts.rank(0))

    return check


def _several(operand: int, *, fresh: bool = False) -> Check:
    """Check ``axes``, an attribute or the operand of that number; ``fresh`` axes count in the result."""

    def check(facts: Facts) -> None:
        axes, rank = facts.ints(operand, "axes"), facts.rank(0)
        if axes is None or rank is None:
            return
        whole = rank + len(axes) if fresh else rank
        for axis in axes:
            facts.require_axis(axis, whole, "an entry of axes")
        facts.require_distinct(axes, whole)

    return check


def _cumsum(facts: Facts) -> None:
    axis = facts.const(1)
    if axis is not None and axis.size == 1:
        facts.require_axis(int(axis.reshape(-1)[0]), facts.rank(0))


def _reverse_sequence(facts: Facts) -> None:
    rank = facts.rank(0)
    batch, time = int(facts.attr("batch_axis", 1)), int(facts.attr("time_axis", 0))
    facts.require_axis(batch, rank, "batch_axis")
    facts.require_axis(time, rank, "time_axis")
    facts.require_distinct((batch, time), rank, "the pair of batch_axis and time_axis")


def _perm(facts: Facts) -> None:
    perm, rank = facts.attr("perm"), facts.rank(0)
    if perm is not None and rank is not None and sorted(perm) != list(range(rank)):
        facts.fail("perm is not a permutation", expected=f"each of 0 to {rank - 1} once", found=list(perm))


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")

CHECKS: dict[str, Check] = {
    **{f"Reduce{name}": _several(1) for name in _REDUCTIONS},
    "CumSum": _cumsum,
    "CumProd": _cumsum,
    "GatherElements": _axis(0),
    "LayerNormalization": _axis(-1),
    "LpNormalization": _axis(-1),
    "RMSNormalization": _axis(-1),
    "ReverseSequence": _reverse_sequence,
    "Scatter": _axis(0),
    "ScatterElements": _axis(0),
    "Squeeze": _several(1),
    "Transpose": _perm,
    "Unsqueeze": _several(1, fresh=True),
}
