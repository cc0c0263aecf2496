"""What is known of a node before it runs: for the checks of operators and the type rules of plain nodes.

Inference computes types; much of what it lets through would fail in the first run, or, worse, in native code that
trusts its shapes. A check reads types, constants and attributes only, and refuses what cannot be right whatever the
inputs are. Checks run whenever a node is typed: at import, behind passes, and for concrete sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from tinycomp.errors import TypeInferenceError, did_you_mean
from tinycomp.ir.graph import Node
from tinycomp.ir.proto import MAX_RANK
from tinycomp.ir.types import Dim, TensorType
from tinycomp.ops.numeric import Array
from tinycomp.symbolic import Size, broadcast

Shape = tuple[Dim, ...]
Operand = tuple[str, Shape]
"""The dtype and dimensions of a dense tensor that lies row by row."""


@dataclass(slots=True)
class Facts:
    """A node and what its types, constants and attributes say.

    Attributes:
        node: The node.
    """

    node: Node

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
        return self.node.const(index)

    def ints(self, index: int, attribute: str) -> list[int] | None:
        """Return integers that are an attribute in some versions and a constant operand in others; None if unknown."""
        values = self.node.attrs.get(attribute)
        if values is None:
            array = self.const(index)
            values = None if array is None else array.reshape(-1)
        return None if values is None else [int(v) for v in values]

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

    def require_shape(self, index: int) -> None:
        """Refuse an operand whose elements are the sizes of a result and that has more than a tensor has dimensions."""
        count = self.dim(index, 0)
        if count is not None and count > MAX_RANK:
            self.fail("too many dimensions", expected=f"up to {MAX_RANK} sizes", found=self._type(index))

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
        value = self.node.optional_operand(index)
        return "absent" if value is None else str(value.type)


def _differ(small: Dim, large: Dim) -> bool:
    return isinstance(small, int) and isinstance(large, int) and small not in (1, large)


def _axis_range(rank: int, negative: bool) -> str:
    return f"an axis in [{-rank if negative else 0}, {rank - 1}]" if rank else "no axis, since the tensor is a scalar"


Check = Callable[[Facts], None]
"""Refuses a node that can never run: see :meth:`Facts.fail`."""


def one_of(**choices: Sequence[object]) -> Check:
    """Return the check that attributes, where they are given, are one of a few words or numbers each."""

    def check(facts: Facts) -> None:
        for name, known in choices.items():
            value = facts.attr(name)
            # Operators before opset 6 name dtypes by text; inference knows those.
            if value is None or value in known or (name in ("to", "dtype") and isinstance(value, str)):
                continue
            words = [str(k) for k in known]
            shown = words if len(words) < 12 else [*words[:3], "…", words[-1]]
            hint = did_you_mean(str(value), words) if isinstance(value, str) else ""
            facts.fail(f"unknown {name}", expected=f"one of {', '.join(shown)}", found=repr(value), hint=hint)

    return check


def axis_in_range(default: int) -> Check:
    """Return the check that the attribute ``axis`` lies in the first operand."""

    def check(facts: Facts) -> None:
        facts.require_axis(int(facts.attr("axis", default)), facts.rank(0))

    return check


def axes_in_range(operand: int, *, fresh: bool = False) -> Check:
    """Return the check of ``axes``, an attribute or the operand of that number; ``fresh`` axes count in the result."""

    def check(facts: Facts) -> None:
        axes, rank = facts.ints(operand, "axes"), facts.rank(0)
        if axes is None or rank is None:
            return
        whole = rank + len(axes) if fresh else rank
        for axis in axes:
            facts.require_axis(axis, whole, "an entry of axes")
        facts.require_distinct(axes, whole)

    return check


def is_known(dim: Dim) -> TypeGuard[int]:
    """Tell whether a dimension is a number."""
    return isinstance(dim, int)


def known_sizes(dims: Shape) -> tuple[int, ...] | None:
    """Return the dimensions if all are numbers, else None."""
    sizes = tuple(filter(is_known, dims))
    return sizes if len(sizes) == len(dims) else None


def may_be_equal(a: Dim, b: Dim) -> bool:
    """Tell whether two dimensions may be equal."""
    return a == b or not (is_known(a) and is_known(b))


def broadcast_shape(a: Shape, b: Shape) -> Shape | None:
    """Return the shape of what broadcasts from ``a`` and ``b``, or None if they do not surely fit."""
    if a == b:
        return a
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    return tuple([y if x == 1 else x for x, y in pairs]) if all(x == y or 1 in (x, y) for x, y in pairs) else None


def broadcast_sizes(*shapes: Sequence[Size | None] | None) -> tuple[Size | None, ...] | None:
    """Return the shape that shapes broadcast to, given that they fit; None where a rank is not known."""
    result: list[Size | None] = []
    for shape in shapes:
        if shape is None:
            return None
        missing = max(len(shape) - len(result), 0)
        result = [*shape[:missing], *result]
        start = len(result) - len(shape)
        result[start:] = [_broadcast_size(a, b) for a, b in zip(result[start:], shape, strict=True)]
    return tuple(result)


def _broadcast_size(a: Size | None, b: Size | None) -> Size | None:
    if a is None or b is None:
        known = b if a is None else a
        return known if isinstance(known, int) and known != 1 else None
    return broadcast(a, b)


def type_of_first(node: Node, operands: Sequence[Operand]) -> Operand | None:
    """Return the type of the first operand: the rule for plain nodes of elementwise operators."""
    return operands[0]
