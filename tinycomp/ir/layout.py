"""Memory orders of tensors: what the names in ``TensorType.layout`` mean."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.types import ROW_MAJOR, TensorType
from tinycomp.symbolic import Size

CHANNELS_LAST = {3: "NWC", 4: "NHWC", 5: "NDHWC"}
"""The channels-last layout of a tensor of logical order N, C, spatial dimensions, by rank."""

_ORDERS: dict[str, tuple[int, ...]] = {name: (0, *range(2, rank), 1) for rank, name in CHANNELS_LAST.items()}


def memory_order(layout: str, rank: int) -> tuple[int, ...]:
    """Return the logical dimensions from slowest to fastest varying in memory.

    >>> memory_order("NHWC", 4)
    (0, 2, 3, 1)
    """
    return tuple(range(rank)) if layout == ROW_MAJOR else _ORDERS[layout]


def layout_of(order: Sequence[int]) -> str | None:
    """Return the layout with this memory order, or None if it has no name."""
    rank = len(order)
    if tuple(order) == tuple(range(rank)):
        return ROW_MAJOR
    name = CHANNELS_LAST.get(rank)
    return name if name is not None and _ORDERS[name] == tuple(order) else None


def strides(type_: TensorType) -> tuple[Size, ...]:
    """Return the distance in elements between neighbours along each logical dimension.

    >>> strides(TensorType("float32", (1, 3, 4, 5), "NHWC"))
    (60, 1, 15, 3)
    """
    shape = type_.sizes
    assert shape is not None, type_
    result: list[Size] = [0] * len(shape)
    step: Size = 1
    for dim in reversed(memory_order(type_.layout, len(shape))):
        result[dim] = step
        step *= shape[dim]
    return tuple(result)


def reshaped(shape: Sequence[Size], steps: Sequence[Size], wanted: Sequence[Size]) -> tuple[Size, ...] | None:
    """Return the strides of a reshaped array, or None if its elements would have to move.

    >>> reshaped((2, 6), (100, 1), (2, 2, 3))
    (100, 3, 1)
    >>> reshaped((2, 6), (100, 1), (12,)) is None
    True
    """
    if 0 in shape or 0 in wanted:
        return None
    groups: list[list[Size]] = []  # sizes and strides of what can be walked as one
    for size, step in zip(shape, steps, strict=True):
        if size == 1:
            continue
        if groups and groups[-1][1] == step * size:
            groups[-1] = [groups[-1][0] * size, step]
        else:
            groups.append([size, step])
    result: list[Size] = []
    for size in reversed(wanted):
        if size == 1:
            result.append(1)
            continue
        if not groups or groups[-1][0] % size != 0:
            return None
        result.append(groups[-1][1])
        groups[-1] = [groups[-1][0] // size, groups[-1][1] * size]
        if groups[-1][0] == 1:
            groups.pop()
    return tuple(reversed(result))
