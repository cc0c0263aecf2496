"""What is known of a node before it runs, in the form that checks ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import Dim, TensorType
from tinycomp.ops.numeric import Array


@dataclass(frozen=True)
class Facts:
    """A node and what its types, constants and attributes say.

    Attributes:
        node: The node.
    """

    node: Node

    def operand(self, index: int) -> Value | None:
        """Return an operand, or None where it is absent."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def shape(self, index: int) -> tuple[Dim, ...] | None:
        """Return the shape of an operand, or None where even the rank is unknown."""
        operands = self.node.inputs
        value = operands[index] if index < len(operands) else None
        return value.type.shape if value is not None and isinstance(value.type, TensorType) else None

    def rank(self, index: int) -> int | None:
        """Return the number of dimensions of an operand, or None."""
        shape = self.shape(index)
        return None if shape is None else len(shape)

    def dim(self, index: int, axis: int) -> int | None:
        """Return one size of an operand, or None where it is not a known number."""
        shape = self.shape(index)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        size = shape[axis]
        return size if isinstance(size, int) else None

    def sizes(self, index: int) -> tuple[int, ...] | None:
        """Return the shape of an operand if every size is a known number."""
        shape = self.shape(index)
        if shape is None or not all(isinstance(d, int) for d in shape):
            return None
        return tuple(d for d in shape if isinstance(d, int))

    def const(self, index: int) -> Array | None:
        """Return the value of a constant operand."""
        value = self.operand(index)
        return None if value is None else value.const

    def ints(self, index: int, attribute: str) -> list[int] | None:
        """Return integers that are an attribute in some versions and a constant operand in others; None if unknown."""
        found = self.node.attrs.get(attribute)
        if found is None:
            array = self.const(index)
            found = None if array is None else array.reshape(-1)
        return None if found is None else [int(v) for v in found]

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute."""
        return self.node.attrs.get(name, default)

    def fail(self, message: str, *, expected: str = "", found: object = "", hint: str = "") -> NoReturn:
        """Refuse the node.

        Raises:
            TypeInferenceError: Always.
        """
        raise TypeInferenceError(
            message,
            where=f"node {self.node.label} ({self.node.qualified_op}, version {self.node.version})",
            expected=expected,
            found=str(found),
            hint=hint,
        )

    def require_axis(self, axis: int, rank: int | None, what: str = "axis", *, negative: bool = True) -> None:
        """Refuse an axis that does not lie in a tensor of ``rank`` dimensions."""
        if rank is not None and not (-rank if negative else 0) <= axis < rank:
            self.fail(f"{what} is out of range", expected=_axis_range(rank, negative), found=axis)

    def require_distinct(self, axes: Sequence[int], rank: int | None, what: str = "axes") -> None:
        """Refuse axes that are named twice, counted from either end."""
        fixed = list(axes) if rank is None else [a % rank if rank else a for a in axes]
        if len(set(fixed)) < len(fixed):
            self.fail(f"{what} names an axis twice", expected="distinct axes", found=list(axes))

    def require_size(self, index: int, axis: int, size: int | None, what: str) -> None:
        """Refuse an operand whose size along ``axis`` is known and not ``size``."""
        known = self.dim(index, axis)
        if size is not None and known is not None and known != size:
            self.fail(f"{what} has the wrong size", expected=str(size), found=f"{known} in {self._type(index)}")

    def require_vector(self, index: int, size: int | None, what: str) -> None:
        """Refuse an operand that is present and not a vector of ``size`` elements."""
        rank = self.rank(index)
        if rank is None:
            return
        if rank != 1:
            self.fail(f"{what} is not a vector", expected="one dimension", found=self._type(index))
        self.require_size(index, 0, size, what)

    def require_broadcast(self, index: int, to: Sequence[Dim], what: str) -> None:
        """Refuse an operand that does not broadcast to a shape without changing it."""
        shape = self.shape(index)
        if shape is None:
            return
        pairs = zip(reversed(shape), reversed(to), strict=False)
        if len(shape) > len(to) or any(_differ(a, b) for a, b in pairs):
            self.fail(f"{what} does not broadcast to its tensor", expected=f"shape {list(to)} or one that broadcasts "
                      "to it", found=self._type(index))  # fmt: skip

    def _type(self, index: int) -> str:
        value = self.operand(index)
        return "absent" if value is None else str(value.type)


def _differ(small: Dim, large: Dim) -> bool:
    return isinstance(small, int) and isinstance(large, int) and small not in (1, large)


def _axis_range(rank: int, negative: bool) -> str:
    return f"an axis in [{-rank if negative else 0}, {rank - 1}]" if rank else "no axis, since the tensor is a scalar"
