"""What the table of kernels' work is made of: the parameters of a call by name, and counts of operations and bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DIMS = range(8)
"""Of kernels over several dimensions."""

TYPE_BYTES = (4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8, *[1] * 13)
"""Bytes of an element, by ``enum tc_type``."""


@dataclass(frozen=True, slots=True)
class Count:
    """One kernel: its operations, and the bytes of its operands in the order of the signature."""

    flops: int
    operands: tuple[int, ...]
    done: int | None = None
    algorithm: str = ""


class CallParams:
    """The whole-number parameters of a call as attributes."""

    def __init__(self, params: Mapping[str, int | float]) -> None:
        self._params = params

    def __getattr__(self, name: str) -> int:
        return int(self._params[name])

    def product(self, *names: str) -> int:
        """The product of some parameters."""
        return math.prod(int(self._params[name]) for name in names)

    @property
    def volume(self) -> int:
        """The product of ``size0`` to ``size7``."""
        return self.product(*(f"size{i}" for i in DIMS))

    def distinct(self, strides: Mapping[str, str]) -> int:
        """The product of the sizes whose strides (the values) are not 0: what a repeated operand really holds."""
        names = list(strides.items())
        return distinct([int(self._params[s]) for s, _ in names], [int(self._params[s]) for _, s in names])


def distinct(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The elements that an operand holds whose stride is 0 where it is repeated."""
    return math.prod(size if stride else min(size, 1) for size, stride in zip(sizes, strides, strict=True))
