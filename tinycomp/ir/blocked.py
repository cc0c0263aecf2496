"""Blocked layouts such as ``NCHW8c``: tensors as a device keeps them, which are tensors of another shape.

A name has a letter for every axis in the order of memory, N for the batch, C for the channels, then D, H and W; ``8c``
behind them is a last axis with 8 channels, a number alone rounds the last axis up to a multiple. What is added is zero.
"""

from __future__ import annotations

import re

from tinycomp.errors import TargetError
from tinycomp.ir.graph import CONVERSION, Node
from tinycomp.ir.types import Dim
from tinycomp.records import dataclass

PACK, UNPACK = "Pack", "Unpack"
_AXES = {2: "NC", 3: "NCW", 4: "NCHW", 5: "NCDHW"}
_NAME = re.compile(r"([A-Z]{2,5})(?:(\d+)([a-z]?))?\Z")


@dataclass(frozen=True)
class BlockedLayout:
    """Hold what the name of a layout means.

    Attributes:
        name: The name.
        order: The logical axes in the order of memory.
        axis: The logical axis that is cut into blocks or rounded up; None for none.
        block: The size of a block, or what the axis is rounded up to a multiple of.
        splits: Whether the blocks are an axis of their own, the last.
    """

    name: str
    order: tuple[int, ...]
    axis: int | None = None
    block: int = 1
    splits: bool = False

    @classmethod
    def parse(cls, name: str) -> BlockedLayout:
        """Return what a name means.

        Raises:
            TargetError: If it is none.

        >>> BlockedLayout.parse("NCHW8c")
        BlockedLayout(name='NCHW8c', order=(0, 1, 2, 3), axis=1, block=8, splits=True)
        >>> BlockedLayout.parse("NHWC16").shape((1, 20, 7, 7))
        (1, 7, 7, 32)
        """
        found = _NAME.match(name) if isinstance(name, str) else None
        letters, number, letter = found.groups() if found is not None else ("", None, None)
        logical = _AXES.get(len(letters), "")
        axis = (letter or letters[-1]).upper() if number else None
        if sorted(letters) != sorted(logical) or not logical or number == "0" or (axis and axis not in logical):
            raise TargetError(
                "not a layout", expected="axes in the order of memory and a block, such as NCHW8c or NHWC16",
                found=repr(name),
            )  # fmt: skip
        order = tuple(map(logical.index, letters))
        return cls(name, order, logical.index(axis) if axis else None, int(number or 1), bool(letter))

    def fits(self, shape: tuple[Dim, ...] | None) -> bool:
        """Tell whether tensors of a shape can be brought into this layout: the sizes from its axis on are known."""
        if shape is None or len(shape) != len(self.order):
            return False
        return self.axis is None or all(isinstance(size, int) for size in shape[self.axis :])

    def padded(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return a shape whose axis is a multiple of the block."""
        return tuple(
            -(-size // self.block) * self.block if index == self.axis and isinstance(size, int) else size
            for index, size in enumerate(shape)
        )

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the shape in memory of a tensor with a logical shape that fits."""
        assert self.fits(shape), shape
        padded = self.padded(shape)
        if self.axis is None or not self.splits:
            return tuple(padded[index] for index in self.order)
        size = padded[self.axis]
        assert isinstance(size, int), shape
        outer = [size // self.block if index == self.axis else padded[index] for index in self.order]
        return (*outer, self.block)

    @property
    def permutation(self) -> list[int]:
        """Return the axes in the order of memory, once the blocks stand behind their axis."""
        if self.axis is None or not self.splits:
            return list(self.order)
        return [*(index + (index > self.axis) for index in self.order), self.axis + 1]


def conversion_of(node: Node) -> tuple[str, str] | None:
    """Return what a node does to layouts: ``("Pack", name)`` or ``("Unpack", name)``; None if it is no conversion.

    Where a target has asked for a layout, the body of a region begins and ends with these. A device that keeps the
    layout needs no instruction for them.
    """
    if node.domain != CONVERSION:
        return None
    kind, _, name = node.op.partition("_")
    return kind, name
