"""Graphs that define an operator by others, and the types of numbers that quantised operators know."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.schemas import known_opsets
from tinycomp.ir.types import UNKNOWN_DTYPE, numpy_dtype
from tinycomp.ops.numeric import Array, integer_range
from tinycomp.ops.typing import infer_node_types
from tinycomp.records import dataclass

BYTES = frozenset({"int8", "uint8"})
INTEGERS = BYTES | {"int16", "uint16", "int2", "int4", "uint2", "uint4"}
"""What numbers are stored as, but for biases in int32."""
FLOAT8 = frozenset({"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})
SMALL_FLOATS = FLOAT8 | {"float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"}
REALS = frozenset({"float16", "bfloat16", "float32"})


@dataclass
class Body:
    """A graph that grows by one operator at a time.

    Attributes:
        graph: What has grown so far.
    """

    graph: Graph

    def __call__(self, op: str, *operands: Value | None, **attrs: Any) -> Value:
        """Add an operator with one result and return that; attributes that are None are absent."""
        return self.several(1, op, *operands, **attrs)[0]

    def several(self, outputs: int, op: str, *operands: Value | None, **attrs: Any) -> tuple[Value, ...]:
        """Add an operator with several results and return those."""
        present = len(operands)
        while present and operands[present - 1] is None:
            present -= 1
        given = {name: value for name, value in attrs.items() if value is not None}
        return self.graph.add(op, operands[:present], given, outputs=outputs).outputs

    def extra(self, domain: str, op: str, *operands: Value, **attrs: Any) -> Value:
        """Add an operator of another domain with one result and return that."""
        return self.graph.add(op, operands, attrs, domain=domain, version=1).output

    def require_opset(self, version: int) -> None:
        """Add what follows in this version of ONNX's operators at least."""
        self.graph.opsets[""] = max(self.graph.opsets[""], version)

    def ints(self, *values: int) -> Value:
        """Return a constant vector of int64."""
        return self.const(np.array(values, np.int64))

    def float32(self, value: float) -> Value:
        """Return a constant float32."""
        return self.const(np.float32(value))

    def like(self, x: Value, value: float) -> Value:
        """Return a constant that is rounded to float32 and then to the type of ``x``."""
        if x.dtype == UNKNOWN_DTYPE:
            return self("CastLike", self.float32(value), x)
        return self.const(np.float32(value).astype(numpy_dtype(x.dtype)))

    def const(self, array: Any) -> Value:
        """Return a constant."""
        return self.graph.add_const(np.asarray(array))

    def cast(self, x: Value, dtype: str, **options: int) -> Value:
        """Return ``x`` in another type; the options are attributes of the Cast."""
        return x if x.dtype == dtype else self("Cast", x, to=NUMBER_BY_DTYPE[dtype], **options)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Return ``x`` in another shape, in which one size may be -1."""
        return self("Reshape", x, self.const(np.array(shape, np.int64)))

    def resized(self, x: Value, sizes: Sequence[int | tuple[Value, int]]) -> Value:
        """Return ``x`` in another shape; a size is a number, or that of an axis of some value."""
        if all(isinstance(size, int) for size in sizes):
            return self.reshape(x, [size for size in sizes if isinstance(size, int)])
        parts = [
            self.ints(size) if isinstance(size, int) else self("Shape", size[0], start=size[1], end=size[1] + 1)
            for size in sizes
        ]
        return self("Reshape", x, self("Concat", *parts, axis=0))

    def choice(
        self,
        number: Value,
        captured: Sequence[Value],
        branches: Sequence[Callable[[Body, Sequence[Value]], Value | None]],
    ) -> Value | None:
        """Return what the branch of this number gives, of which the last stands for all others.

        A branch adds operators to a body, given the captured values there; None if one of them gives nothing.
        """
        if len(branches) == 1:
            return branches[0](self, captured)
        values, one = [number, *captured], self.const(np.int64(1))
        then = self._branch(values, lambda body, own: branches[0](body, own[1:]))
        other = self._branch(
            values, lambda body, own: body.choice(body("Sub", own[0], body.const(one.const)), own[1:], branches[1:])
        )
        if then is None or other is None:
            return None
        condition = self("Equal", number, self.const(np.int64(0)))
        bodies = {"then_branch": then, "else_branch": other}
        return self.graph.add("If", [condition, *values], bodies=bodies, captures=len(values), outputs=1).output

    def _branch(self, values: Sequence[Value], add: Callable[[Body, Sequence[Value]], Value | None]) -> Graph | None:
        """Return a body of control flow in which other values stand for those captured."""
        inner = Body(Graph("branch", infer=infer_node_types, opsets=dict(self.graph.opsets)))
        formals = [inner.graph.add_input(inner.graph.fresh(v.name or "x"), v.type) for v in values]
        result = add(inner, formals)
        if result is None:
            return None
        inner.graph.set_outputs([result])
        return inner.graph

    def merged(self, x: Value, counts: Sequence[int]) -> Value:
        """Return ``x`` with groups of so many neighbouring axes as one axis each; an empty group is one of size 1."""
        if (shape := x.static_shape) is not None:
            ends = np.cumsum([0, *counts])
            return self.reshape(x, [math.prod(shape[a:b]) for a, b in itertools.pairwise(ends)])
        for place, count in enumerate(counts):  # one at a time, since only one size may be left open
            if count != 1:
                rest = sizes_of(x, range(place + count, x.rank or 0))
                x = self.resized(x, [*[0] * place, -1 if count else 1, *rest])
        return x

    def stored(self, x: Value, zero: Value | None, dtype: str) -> Value:
        """Return float multiples of a scale as stored integers: rounded, moved by a float zero point, saturated."""
        rounded = self("Round", x)
        if zero is not None:
            rounded = self("Add", rounded, zero)
        ends = [self.const(np.float32(v)) for v in integer_range(numpy_dtype(dtype))]
        return self.cast(self("Clip", rounded, *ends), dtype)

    def stored_float(self, x: Value, zero: Value | None, dtype: str, saturate: int) -> Value:
        """Return multiples of a scale as small floats."""
        return self.cast(x if zero is None else self("Add", x, zero), dtype, saturate=saturate)


@dataclass(frozen=True)
class Definition:
    """What an operator computes, in others.

    Attributes:
        define: Adds the operators to a body, given the node and the values that stand for its operands, with None for
            those that are absent; returns a value for each result that is used, or None where types and shapes are
            none that it covers.
        needed: Tells whether a node may need the definition: most nodes of some operators are a target's own affair.
    """

    define: Callable[[Body, Node, Sequence[Value | None]], Value | Sequence[Value] | None]
    needed: Callable[[Node], bool] = lambda node: True


_MOST_OPERANDS = 9
_LONGEST_TABLE = 1 << 20
_CANNOT = (ModelError, ArithmeticError, LookupError, TypeError, ValueError)
"""What a definition raises that cannot compute with an attribute, such as no groups at all or a stride for one axis of
two: it does not cover the node, and the kernel says what is wrong."""


def defined(node: Node, definition: Definition) -> Graph | None:
    """Return what the node computes; one input for every operand that is there, one output for each result in use.

    Returns:
        None where types or shapes are none that the definition covers.
    """
    body = Body(Graph(node.op, infer=infer_node_types, opsets={"": known_opsets()[""]}))
    operands = [
        None if v is None else body.graph.add_input(body.graph.fresh(v.name or "x"), v.type) for v in node.inputs
    ]
    operands += [None] * max(_MOST_OPERANDS - len(operands), 0)
    try:
        result = definition.define(body, node, operands)
    except _CANNOT:
        return None
    if result is None:
        return None
    body.graph.set_outputs([result] if isinstance(result, Value) else list(result))
    return body.graph


def numbers_below(count: int) -> Array:
    """Return 0, 1, … as int64, for a table in a definition.

    Raises:
        ValueError: If a table of a declared size would take much memory; the definition then does not cover the node.
    """
    if count > _LONGEST_TABLE:
        raise ValueError(f"a table of {count} elements")
    return np.arange(count)


def sizes_of(x: Value, axes: Sequence[int]) -> list[int | tuple[Value, int]]:
    """Return sizes of ``x`` for :meth:`Body.resized`.

    Raises:
        ModelError: If its rank is not known; the definition then does not cover the node.
    """
    shape = x.shape
    if shape is None:
        raise ModelError("the rank is unknown", where=f'value "{x.name}"', expected="a known rank", found=str(x.type))
    found: list[int | tuple[Value, int]] = []
    for axis in axes:
        size = shape[axis]
        found.append(size if isinstance(size, int) else (x, axis))
    return found


def shape_of(value: Value | None) -> tuple[int, ...] | None:
    """Return a static shape, or None if there is no value or its shape is not known."""
    return None if value is None else value.static_shape


def is_float32(node: Node) -> bool:
    """Tell whether the first operand is float32."""
    return dtype_of(node.operand(0)) == "float32"


def dtype_of(value: Value | None) -> str:
    """Return the name of a type, empty for no value."""
    return "" if value is None else value.dtype
