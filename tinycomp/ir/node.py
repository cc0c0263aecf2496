"""Values and nodes: what a graph is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.ir.types import Type

if TYPE_CHECKING:
    from tinycomp.ir.graph import Graph

COMPOSITE = "tinycomp.composite"
REGION = "tinycomp.region"
TINYCOMP = "tinycomp"

Attr = Any
"""A plain Python value: int, float, str, bytes, a list of one of these, an ndarray, or a Type."""


class Value:
    """A tensor (or sequence, optional, map) that flows along the edges; compared by identity.

    Attributes:
        name: Unique in its graph; empty for an output that the model skips.
        type: Always present.
        producer: The node that makes it; None for graph inputs and constants.
        const: The array of a constant, else None. Constants are never changed in place.
        users: How many operand slots of each node read it.
    """

    __slots__ = ("const", "name", "producer", "type", "users")

    def __init__(self, name: str, type_: Type, producer: Node | None = None, const: np.ndarray | None = None) -> None:
        self.name = name
        self.type = type_
        self.producer = producer
        self.const = const
        self.users: dict[Node, int] = {}

    @property
    def is_const(self) -> bool:
        """Whether the value is known at compile time."""
        return self.const is not None

    def __repr__(self) -> str:
        return f"<Value {self.name or '_'}: {self.type}>"


class Node:
    """One operator application; compared by identity.

    Attributes:
        op: Operator name, composite name, or region symbol.
        domain: Operator domain; ``""`` is ONNX's own.
        version: The operator's since-version in its domain.
        inputs: Operands in order, None for an absent optional one; captured values come last.
        outputs: Results in order.
        attrs: Plain Python values.
        bodies: Nested graphs by attribute name.
        captures: How many trailing operands are captured values.
        target: The target that has claimed the node, or None.
        region: Number of the region that the node will be outlined with, or None; meaningful until partitioning.
        sources: Names of the nodes of the user's model that this node came from.
        position: Where the node stands among independent nodes; kept through rewrites.
    """

    __slots__ = (
        "attrs", "bodies", "captures", "domain", "inputs", "op", "outputs", "position", "region", "serial",
        "sources", "target", "version",
    )  # fmt: skip

    def __init__(self, op: str, domain: str, version: int, inputs: tuple[Value | None, ...]) -> None:
        self.op = op
        self.domain = domain
        self.version = version
        self.inputs = inputs
        self.outputs: tuple[Value, ...] = ()
        self.attrs: dict[str, Attr] = {}
        self.bodies: dict[str, Graph] = {}
        self.captures = 0
        self.target: str | None = None
        self.region: int | None = None
        self.sources: tuple[str, ...] = ()
        self.position = 0
        self.serial = 0

    @property
    def body(self) -> Graph:
        """The only body of a composite, region or function.

        Raises:
            KeyError: If the node has no body of that kind.
        """
        return self.bodies["body"]

    @property
    def is_composite(self) -> bool:
        """Whether the node is an atom made by composite merging."""
        return self.domain == COMPOSITE

    @property
    def is_region(self) -> bool:
        """Whether the node is a partitioned region."""
        return self.domain == REGION

    @property
    def is_call(self) -> bool:
        """Whether the node does exactly what its single body does (composite, region, model-local function)."""
        return "body" in self.bodies and (self.domain != "" or self.op not in _BODY_OPS)

    @property
    def output(self) -> Value:
        """The first result."""
        return self.outputs[0]

    @property
    def label(self) -> str:
        """The name to use in messages: the source name if there is one."""
        if self.sources:
            return self.sources[0] if len(self.sources) == 1 else f"{self.sources[0]}…{self.sources[-1]}"
        return next((v.name for v in self.outputs if v.name), self.op)

    @property
    def qualified_op(self) -> str:
        """Operator with its domain, such as ``Conv`` or ``com.vendor::Op``."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    def used_outputs(self) -> list[Value]:
        """Return the results that have a name, that is, that are not skipped."""
        return [v for v in self.outputs if v.name]

    def __repr__(self) -> str:
        return f"<Node {self.qualified_op} {self.label}>"


_BODY_OPS = frozenset({"Loop", "Scan", "SequenceMap"})


def connect(value: Value | None, node: Node) -> None:
    """Note that one more operand slot of ``node`` reads ``value``."""
    if value is not None:
        value.users[node] = value.users.get(node, 0) + 1


def disconnect(value: Value | None, node: Node) -> None:
    """Note that one operand slot of ``node`` less reads ``value``."""
    if value is not None:
        value.users[node] -= 1
        if not value.users[node]:
            del value.users[node]
