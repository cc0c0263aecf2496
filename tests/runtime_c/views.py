"""Parameters of kernels over strided views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DIMENSIONS = 8


def eight(name: str, values: Sequence[int], missing: int) -> dict[str, int]:
    """Name eight values; outer dimensions that are not given take the value `missing`."""
    padded = [missing] * (DIMENSIONS - len(values)) + list(values)
    return {f"{name}{i}": int(value) for i, value in enumerate(padded)}


def strides(name: str, view: np.ndarray) -> dict[str, int]:
    """Return a view's strides in elements."""
    return eight(name, [stride // view.itemsize for stride in view.strides], 0)


def lowest(view: np.ndarray) -> np.ndarray:
    """Return, flat, the elements from the view's lowest one in memory to the end of the array that it is a view of."""
    base = view
    while isinstance(base.base, np.ndarray):
        base = base.base
    start = view.__array_interface__["data"][0]
    start += sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True) if stride < 0)
    flat = base.reshape(-1)
    return flat[(start - flat.__array_interface__["data"][0]) // view.itemsize :]
