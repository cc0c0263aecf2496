"""The graph: values, nodes, and the few operations that change them.

The edges of a :class:`Graph` are ``node.inputs``. Every value also knows its producer and its users; these are derived
from the inputs. Only :meth:`Graph.add`, :meth:`Graph.erase`, :meth:`Graph.replace_uses`, :meth:`Graph.set_input`,
:meth:`Graph.outline` and :meth:`Graph.inline` change them, and :func:`tinycomp.ir.verify.verify` derives them again and
compares. Passes read the dependencies from :attr:`Graph.edges`, or from the digraph :attr:`Graph.connectivity` where
they use algorithms of networkx; :meth:`Graph.to_networkx` returns a copy of it whose nodes have attributes.

A graph needs type inference and a printer, which would be circular imports here; ``tinycomp.ir`` installs both.

Nesting has one form: a node owns *bodies*, closed graphs whose inputs are the node's operands. A composite, a region
and a model-local function have the single body ``"body"``; If has two. Outer values that a body of any other node (If,
Loop, …) captures are trailing operands of the node (``node.captures`` counts them) and trailing inputs of every body.
"""

from __future__ import annotations

import heapq
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from tinycomp.errors import VerifyError
from tinycomp.index import named
from tinycomp.ir.schemas import since_version
from tinycomp.ir.types import UNKNOWN, UNKNOWN_DTYPE, Dim, TensorType, Type, type_of
from tinycomp.lazy import LazyModule
from tinycomp.remark import Remark
from tinycomp.symbolic import Range, Size

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = LazyModule("networkx")  # most graphs are sorted and free of tangles, and never need it

COMPOSITE = "tinycomp.composite"
REGION = "tinycomp.region"
TINYCOMP = "tinycomp"
CONVERSION = "tinycomp.layout"
"""Domain of the functions that convert between a layout and row-major, see :mod:`tinycomp.ir.blocked`."""

Attr = Any
"""A plain Python value: int, float, str, bytes, a list of one of these, an ndarray, or a Type."""


MOST_CONTENTS = 64
"""Most elements of an integer tensor whose elements are tracked as sizes."""


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

    @property
    def dtype(self) -> str:
        """The element type of a tensor; ``"?"`` where it is unknown, and for the other kinds of values."""
        type_ = self.type
        return type_.dtype if isinstance(type_, TensorType) else UNKNOWN_DTYPE

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The dimensions of a tensor; None where even the rank is unknown, and for the other kinds of values."""
        type_ = self.type
        return type_.shape if isinstance(type_, TensorType) else None

    @property
    def rank(self) -> int | None:
        """The number of dimensions of a tensor; None where it is unknown, and for the other kinds of values."""
        shape = self.shape
        return None if shape is None else len(shape)

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The dimensions of a tensor if every one is a number, else None."""
        type_ = self.type
        return type_.static_shape if isinstance(type_, TensorType) else None

    @property
    def sizes(self) -> tuple[Size, ...] | None:
        """The dimensions of a tensor as numbers and expressions; None where one is not known."""
        type_ = self.type
        return type_.sizes if isinstance(type_, TensorType) else None

    @property
    def contents(self) -> tuple[Size | None, ...] | None:
        """The elements, in order, of a small tensor of integers as far as they follow from sizes or are constant."""
        if self.const is None:
            type_ = self.type
            if not isinstance(type_, TensorType):
                return None
            is_empty = self.producer is None and type_.dtype in ("int32", "int64") and 0 in (type_.shape or ())
            return () if is_empty else type_.contents
        if self.const.size > MOST_CONTENTS or self.const.dtype.kind not in "ib":
            return None
        return tuple([int(element) for element in self.const.reshape(-1).tolist()])

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
    def possible_bodies(self) -> dict[str, Graph]:
        """The bodies that a run may enter, which is one for an If whose condition is constant or follows from sizes."""
        if self.op != "If" or self.domain or not self.inputs or self.inputs[0] is None:
            return self.bodies
        value = self.inputs[0]
        known = value.contents or () if value.const is None else value.const.reshape(-1).tolist()
        if len(known) != 1 or not isinstance(known[0], int):
            return self.bodies
        key = "then_branch" if known[0] else "else_branch"
        return {key: self.bodies[key]} if key in self.bodies else self.bodies

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
        return "body" in self.bodies and (self.domain != "" or self.op not in _CONTROL_FLOW)

    @property
    def output(self) -> Value:
        """The first result."""
        return self.outputs[0]

    @property
    def label(self) -> str:
        """Return the name to use in messages, which is the source name if there is one."""
        if self.sources:
            return self.sources[0] if len(self.sources) == 1 else f"{self.sources[0]}…{self.sources[-1]}"
        return next((v.name for v in self.outputs if v.name), self.op)

    @property
    def qualified_op(self) -> str:
        """Operator with its domain, such as ``Conv`` or ``com.vendor::Op``."""
        return f"{self.domain}::{self.op}" if self.domain else self.op

    def operand(self, index: int) -> Value:
        """Return the operand at ``index``, which must be there.

        Raises:
            VerifyError: If the node has no such operand.
        """
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise VerifyError(f"operand {index} is absent", where=repr(self), expected="a value")
        return value

    def optional_operand(self, index: int) -> Value | None:
        """Return the operand at ``index``, or None if it is absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def const(self, index: int) -> np.ndarray | None:
        """Return the array of the operand at ``index`` if that is a constant, else None."""
        value = self.inputs[index] if index < len(self.inputs) else None
        return None if value is None else value.const

    def operators(self) -> list[Node]:
        """Return the operators that the node stands for: itself, or those in a composite, region or called function.

        Control flow that a target has claimed stands for the operators in its bodies, too. A conversion between layouts
        stands for none.
        """
        if not self.bodies:  # as nearly always
            return [] if self.domain == CONVERSION else [self]
        operators: list[Node] = []
        stack = [self]
        while stack:
            node = stack.pop()
            if node.domain == CONVERSION:
                continue
            if not node.is_call:
                operators.append(node)
            if node.is_call or node.target is not None:
                for body in reversed(node.bodies.values()):
                    stack.extend(reversed(body.nodes))
        return operators

    def used_outputs(self) -> list[Value]:
        """Return the results that have a name, that is, that are not skipped."""
        return [v for v in self.outputs if v.name]

    def __repr__(self) -> str:
        return f"<Node {self.qualified_op} {self.label}>"


_CONTROL_FLOW = frozenset(named("control_flow"))


def connect(value: Value | None, node: Node) -> None:
    """Note that one more operand slot of ``node`` reads ``value``."""
    if value is not None:
        value.users[node] = value.users.get(node, 0) + 1


def disconnect(value: Value | None, node: Node) -> None:
    """Note that one operand slot of ``node`` no longer reads ``value``."""
    if value is not None:
        value.users[node] -= 1
        if not value.users[node]:
            del value.users[node]


def stable_order(members: Collection[Node]) -> list[Node]:
    """Return nodes in topological order; among independent ones the earlier in the model comes first.

    Args:
        members: The nodes to order by the links among themselves; a set or a mapping, for fast membership tests.

    Raises:
        VerifyError: If the links have a cycle; the message shows it.
    """
    by_place = sorted(members, key=_place_of)
    return by_place if _is_ordered(by_place, members) else _searched_order(members)


_place_of = operator.attrgetter("position", "serial")


def _is_ordered(nodes: list[Node], members: Collection[Node]) -> bool:
    """Tell whether every node comes after its producers; in most graphs, sorting by position is enough for that."""
    seen: set[Node | None] = {None}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.producer not in seen and value.producer in members:
                return False
        seen.add(node)
    return True


def _searched_order(members: Collection[Node]) -> list[Node]:
    """Do as ``nx.lexicographical_topological_sort``, without importing networkx, which takes longer than a model."""
    waits = dict.fromkeys(members, 0)
    for _, user in _edges(members):
        waits[user] += 1
    number = {node: i for i, node in enumerate(members)}
    ready = [(_place_of(node), number[node], node) for node, count in waits.items() if not count]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        *_, node = heapq.heappop(ready)
        order.append(node)
        for user in _users(node):
            if user in members:
                waits[user] -= 1
                if not waits[user]:
                    heapq.heappush(ready, (_place_of(user), number[user], user))
    if len(order) == len(members):
        return order
    cycle = nx.find_cycle(links_among(members))
    path = " -> ".join(edge[0].label for edge in cycle)
    raise VerifyError(f"the graph has a cycle: {path} -> {cycle[0][0].label}")


def _edges(members: Collection[Node]) -> Iterator[tuple[Node, Node]]:
    return ((node, user) for node in members for user in _users(node) if user in members)


def _users(node: Node) -> Mapping[Node, int]:
    """Return how many operand slots of each user read results of ``node``."""
    if len(node.outputs) == 1:
        return node.outputs[0].users
    users: Counter[Node] = Counter()
    for value in node.outputs:
        users.update(value.users)
    return users


def links_among(members: Collection[Node]) -> nx.DiGraph[Node]:
    """Return the links among nodes; the attribute ``slots`` counts the operand slots of each.

    Args:
        members: The nodes; a set or a mapping, for fast membership tests.
    """
    links: nx.DiGraph[Node] = nx.DiGraph()
    links.add_nodes_from(members)
    links.add_edges_from(
        (node, user, {"slots": slots}) for node in members for user, slots in _users(node).items() if user in members
    )
    return links


def reachable(links: nx.DiGraph[Node], sources: Iterable[Node]) -> set[Node]:
    """Return the sources that are in ``links``, and all nodes reachable from them, in one walk.

    ``nx.descendants`` takes one source only, and asks for the size of the graph, for which a view counts its nodes.
    """
    return set(itertools.chain.from_iterable(nx.bfs_layers(links, {node for node in sources if node in links})))


_Vertex = TypeVar("_Vertex")


def tangles(edges: Iterable[tuple[_Vertex, _Vertex]], first: Mapping[_Vertex, _Vertex]) -> list[set[_Vertex]]:
    """Return the strongly connected components with more than one vertex of a quotient of a digraph.

    Args:
        edges: The edges of the digraph.
        first: For every vertex, the one that represents its group in the quotient.
    """
    ends = ((first[vertex], first[user]) for vertex, user in edges)
    between = [(one, other) for one, other in ends if one is not other]
    if not between:  # importing networkx takes longer than a small model
        return []
    quotient: nx.DiGraph[_Vertex] = nx.DiGraph()
    quotient.add_edges_from(between)
    return [component for component in nx.strongly_connected_components(quotient) if len(component) > 1]


InferTypes = Callable[[Node], Sequence[Type]]
"""Output types of a node from its operands, attributes and bodies."""

__all__ = ["COMPOSITE", "REGION", "TINYCOMP", "Attr", "Graph", "InferTypes", "Node", "Value"]


class Graph:
    """A typed dataflow graph.

    Args:
        name: Name of the graph, or symbol of the function.
        infer: Output types of a node; the default knows ONNX's operators.
        opsets: Opset version by domain, used for nodes added without a version.

    Attributes:
        defaults: Values of inputs that may be left out, by input name.
        bounds: The least and the most that sizes may be, by symbol; empty in bodies.
        settled: Which nodes have decided sizes of inputs, and why, by input; empty in bodies.
        default_inference: Output types of a node, for graphs that are not told how to infer them.
        printer: The textual form of a graph.
    """

    default_inference: ClassVar[InferTypes]
    printer: ClassVar[Callable[[Graph], str]]

    def __init__(
        self, name: str = "main", *, infer: InferTypes | None = None, opsets: Mapping[str, int] | None = None
    ) -> None:
        self.name = name
        self.infer = infer or Graph.default_inference
        self.opsets = dict(opsets or {})
        self.metadata: dict[str, str] = {}
        self.remarks: list[Remark] = []
        self.inputs: list[Value] = []
        self.defaults: dict[str, np.ndarray] = {}
        self.bounds: dict[str, Range] = {}
        self.settled: dict[str, str] = {}
        self.output_names: tuple[str, ...] = ()
        self._outputs: tuple[Value, ...] = ()
        self._output_counts: dict[Value, int] = {}
        self._values: dict[str, Value] = {}
        self._members: dict[Node, None] = {}
        self._serial = itertools.count()
        self._fresh: dict[str, int] = {}
        self._order: list[Node] | None = None
        self._links: nx.DiGraph[Node] | None = None

    # Reading -------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> list[Node]:
        """All nodes in a stable topological order.

        Raises:
            VerifyError: If the graph has a cycle.
        """
        if self._order is None:
            self._order = stable_order(self._members)
        return list(self._order)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The results, in order; one value may stand more than once."""
        return self._outputs

    @property
    def values(self) -> Mapping[str, Value]:
        """Every named value by name."""
        return self._values

    @property
    def constants(self) -> list[Value]:
        """Every constant value."""
        return [v for v in self._values.values() if v.const is not None]

    @property
    def edges(self) -> Iterator[tuple[Node, Node]]:
        """Every pair of a node and a user of its results, in the order of :attr:`connectivity`."""
        return _edges(self._members)

    @property
    def connectivity(self) -> nx.DiGraph[Node]:
        """The digraph of nodes and their users, rebuilt after a change of the graph; do not change it.

        The attribute ``slots`` of an edge counts the operand slots that it stands for.
        """
        if self._links is None:
            self._links = links_among(self._members)
        return self._links

    def to_networkx(self) -> nx.DiGraph[Node]:
        """Return a new digraph of nodes and their users, to analyse and to draw.

        Every node has the attributes ``label``, ``op``, ``domain``, ``target`` and ``region`` (None where there is
        none), ``sources`` (names of nodes of the model) and ``types`` (of its results, as strings). Every edge has
        ``values`` (the names of the values read) and ``slots`` (how many operand slots read them). The nodes of bodies
        are not in it.

        >>> import networkx as nx
        >>> from tinycomp.ir.text.parser import parse_graph
        >>> graph = parse_graph('graph @g opset {"" = 17} (%x: float32[2]) -> (%z) { %y = Neg(%x) %z = Add(%y, %y) }')
        >>> links = graph.to_networkx()
        >>> [(links.nodes[node]["op"], links.nodes[node]["types"]) for node in nx.topological_sort(links)]
        [('Neg', ('float32[2]',)), ('Add', ('float32[2]',))]
        >>> [edge for *_, edge in links.edges(data=True)]
        [{'slots': 2, 'values': ('y',)}]
        """
        links = self.connectivity.copy()
        for node, facts in links.nodes(data=True):
            facts.update(label=node.label, op=node.op, domain=node.domain, target=node.target, region=node.region)
            facts.update(sources=node.sources, types=tuple(str(value.type) for value in node.outputs))
        for node, user, facts in links.edges(data=True):
            facts["values"] = tuple(value.name for value in node.outputs if user in value.users)
        return links

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, node: object) -> bool:
        return node in self._members

    def is_output(self, value: Value) -> bool:
        """Tell whether ``value`` is a result of the graph."""
        return value in self._output_counts

    def is_dead(self, node: Node) -> bool:
        """Tell whether nobody reads a result of ``node``."""
        for value in node.outputs:  # noqa: SIM110 (a generator would cost)
            if value.users or value in self._output_counts:
                return False
        return True

    def use_count(self, value: Value) -> int:
        """Return how many operand slots and graph outputs read ``value``."""
        return sum(value.users.values()) + self._output_counts.get(value, 0)

    def predecessors(self, node: Node) -> Iterator[Node]:
        """Return the nodes that produce an operand of ``node``."""
        return iter(dict.fromkeys(v.producer for v in node.inputs if v is not None and v.producer is not None))

    def successors(self, node: Node) -> Iterator[Node]:
        """Return the nodes that read a result of ``node``."""
        return iter(dict.fromkeys([user for value in node.outputs for user in value.users]))

    def fresh(self, base: str) -> str:
        """Return a value name that is not taken, starting from ``base``."""
        if base and base not in self._values:
            return base
        return self._numbered(base or "v")

    def _numbered(self, base: str) -> str:
        """Return ``base_1``, ``base_2``, … on successive calls, skipping names that are taken."""
        count = self._fresh.get(base, 0) + 1
        while f"{base}_{count}" in self._values:
            count += 1
        self._fresh[base] = count
        return f"{base}_{count}"

    def _fresh_names(self, base: str, count: int) -> list[str]:
        return [self._numbered(base) if i else self.fresh(base) for i in range(count)]

    def walk(self) -> Iterator[tuple[Graph, Node]]:
        """Yield every node of this graph and of all bodies below it, with the graph that holds it."""
        stack: list[Graph] = [self]
        while stack:
            graph = stack.pop()
            for node in graph.nodes:
                yield graph, node
                if node.bodies:
                    stack.extend(node.bodies.values())

    # Building ------------------------------------------------------------------------------------------------------

    def add_input(self, name: str, type_: Type) -> Value:
        """Append a graph input."""
        value = self._declare(Value(name, type_))
        self.inputs.append(value)
        return value

    def add_const(self, array: np.ndarray, name: str = "") -> Value:
        """Add a constant; ``name`` is made unique. The array must not be changed afterwards."""
        return self._declare(Value(self.fresh(name or "const"), type_of(array), const=array))

    def set_outputs(self, values: Sequence[Value], names: Sequence[str] | None = None) -> None:
        """Set the results of the graph; ``names`` default to the value names."""
        self._outputs = tuple(values)
        self.output_names = tuple(v.name for v in values) if names is None else tuple(names)
        self._output_counts = {}
        for value in self._outputs:
            self._output_counts[value] = self._output_counts.get(value, 0) + 1

    def add(
        self,
        op: str,
        inputs: Iterable[Value | None],
        attrs: Mapping[str, Attr] | None = None,
        *,
        domain: str = "",
        version: int | None = None,
        outputs: int | Sequence[str] = 1,
        types: Sequence[Type] | None = None,
        bodies: Mapping[str, Graph] | None = None,
        captures: int = 0,
        target: str | None = None,
        sources: Iterable[str] = (),
        at: Node | None = None,
    ) -> Node:
        """Insert a node and infer the types of its results at once.

        Args:
            op: Operator name.
            inputs: Operands of this graph, None for an absent optional one.
            attrs: Attributes as plain Python values.
            domain: Operator domain.
            version: Since-version; by default the one in force in the graph's opset.
            outputs: How many results, or their names (an empty name is a skipped result).
            types: Types of the results; inferred when None.
            bodies: Nested graphs.
            captures: How many trailing operands are captured values.
            target: The target that claims the node.
            sources: Names of the source nodes.
            at: A node whose position (and sources, unless given) the new one takes over.

        Returns:
            The node; ``node.output`` is its first result.

        Raises:
            TypeInferenceError: If the operands do not fit the operator.
        """
        node = Node(op, domain, self._version(op, domain) if version is None else version, tuple(inputs))
        node.attrs = dict(attrs or {})
        node.bodies = dict(bodies or {})
        node.captures = captures
        node.target = target
        node.sources = tuple(sources) or (at.sources if at is not None else ())
        node.serial = next(self._serial)
        node.position = at.position if at is not None else node.serial
        names = self._fresh_names(op.lower(), outputs) if isinstance(outputs, int) else list(outputs)
        node.outputs = tuple([Value(name, _PENDING, node) for name in names])
        found = self.infer(node) if types is None else types
        for value, type_ in zip(node.outputs, found, strict=False):
            value.type = type_
        self._insert(node)
        return node

    def _insert(self, node: Node) -> None:
        for value in node.outputs:
            if value.name:
                self._declare(value)
        self._members[node] = None
        for operand in node.inputs:  # as connect does
            if operand is not None:
                operand.users[node] = operand.users.get(node, 0) + 1
        self._order = self._links = None

    # Changing ------------------------------------------------------------------------------------------------------

    def erase(self, node: Node) -> None:
        """Remove a node whose results nobody reads.

        Raises:
            VerifyError: If a result is still in use.
        """
        for value in node.outputs:
            if value.users or self.is_output(value):
                raise VerifyError(f'cannot erase: its result "{value.name}" is still in use', where=repr(node))
        for operand in node.inputs:
            disconnect(operand, node)
        for value in node.outputs:
            self._values.pop(value.name, None)
            value.producer = None
        del self._members[node]
        self._edited()

    def erase_unused(self, value: Value) -> None:
        """Forget a constant that nobody reads."""
        assert value.const is not None
        assert not self.use_count(value)
        del self._values[value.name]

    def remove_input(self, value: Value) -> None:
        """Forget a graph input that nobody reads."""
        assert value in self.inputs
        assert not self.use_count(value)
        self.inputs.remove(value)
        self.defaults.pop(value.name, None)
        del self._values[value.name]

    def set_input(self, node: Node, index: int, value: Value | None) -> None:
        """Make operand ``index`` of ``node`` read ``value``; types are not inferred again."""
        old = node.inputs[index]
        if old is value:
            return
        node.inputs = (*node.inputs[:index], value, *node.inputs[index + 1 :])
        disconnect(old, node)
        connect(value, node)
        self._edited()

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make every user of ``old``, and every graph output that is ``old``, read ``new``."""
        if old is new:
            return
        for node, count in old.users.items():
            node.inputs = tuple(new if v is old else v for v in node.inputs)
            new.users[node] = new.users.get(node, 0) + count
        old.users.clear()
        if self.is_output(old):
            self.set_outputs([new if v is old else v for v in self._outputs], self.output_names)
        self._edited()

    def insert(self, op: str, value: Value, attrs: Mapping[str, Attr] | None = None, *, domain: str = "") -> Node:
        """Put an operator of one operand between ``value`` and everything that reads it, graph outputs included.

        >>> from tinycomp.ir.types import TensorType
        >>> graph = Graph(opsets={"": 17})
        >>> x = graph.add_input("x", TensorType("float32", (2,)))
        >>> graph.set_outputs([graph.add("Relu", [x]).output])
        >>> node = graph.insert("Identity", x)
        >>> [n.op for n in graph.nodes]
        ['Identity', 'Relu']
        """
        node = self.add(op, [value], attrs, domain=domain, at=value.producer)
        self.replace_uses(value, node.output)
        self.set_input(node, 0, value)
        return node

    def rename(self, value: Value, name: str) -> None:
        """Give ``value`` a name that is not taken."""
        assert name not in self._values, name
        del self._values[value.name]
        value.name = name
        self._declare(value)

    def infer_again(self, node: Node) -> bool:
        """Infer the types of a node's results anew after its operands changed; return whether any differs."""
        changed = False
        for value, type_ in zip(node.outputs, self.infer(node), strict=False):
            changed |= value.type != type_
            value.type = type_
        return changed

    def outline(
        self,
        nodes: Iterable[Node],
        op: str,
        *,
        domain: str,
        target: str | None = None,
        params: Sequence[Value] | None = None,
        bind_constants: bool = True,
        attrs: Mapping[str, Attr] | None = None,
    ) -> Node:
        """Move ``nodes`` into the body of one new node that stands in their place.

        The body keeps the names of values. Its parameters are the distinct outside values in order of first use, its
        results the distinct values used outside in order of production. The set must be convex;
        :func:`tinycomp.ir.verify.verify` finds the cycle that a wrong set creates.

        Args:
            nodes: The nodes to move.
            op: Operator name of the new node.
            domain: Its domain, :data:`COMPOSITE` or :data:`REGION`.
            target: Its target.
            params: Outside values that become the first parameters, in this order; the others follow.
            bind_constants: Whether constants not among ``params`` go into the body instead of becoming parameters.
            attrs: Attributes of the new node.

        Returns:
            The new node.
        """
        inside = set(nodes)
        members = stable_order(inside)
        body = Graph(op, infer=self.infer, opsets=self.opsets)
        wanted = _parameters(members, inside, params, bind_constants)
        made = [v for n in members for v in n.outputs]
        results = [v for v in made if v in self._output_counts or not inside.issuperset(v.users)]
        mapping: dict[Value, Value] = {v: body.add_input(v.name, v.type) for v in wanted}
        mapping |= {v: Value(v.name, v.type, v.producer) for v in results}
        _lift_out(self, members, inside)
        for node in members:
            _settle(node, body, mapping)
        body._order = members
        body.set_outputs([mapping[v] for v in results])
        for value in wanted:
            self._values.setdefault(value.name, value)
        node = Node(op, domain, 1, tuple(wanted))
        node.outputs = tuple(results)
        node.bodies = {"body": body}
        node.attrs = dict(attrs or {})
        node.target = target
        node.sources = tuple(dict.fromkeys([s for n in members for s in n.sources]))
        node.position = members[-1].position
        node.serial = next(self._serial)
        for value in results:
            value.producer = node
        self._insert(node)
        return node

    def inline(self, node: Node) -> list[Node]:
        """Replace a composite, region or function node by the contents of its body; the inverse of :meth:`outline`."""
        body = node.body
        mapping = {
            formal: actual for formal, actual in zip(body.inputs, node.inputs, strict=True) if actual is not None
        }
        outer_names = {b.name: v.name for b, v in zip(body.outputs, node.outputs, strict=True) if v.name and b.producer}
        for value in node.used_outputs():
            del self._values[value.name]
        copies = []
        for inner in body.nodes:
            copy = _copy_node(inner, self, mapping, outer_names)
            copy.sources = copy.sources or node.sources
            if not (node.is_composite or node.is_region):
                copy.position = node.position
            copies.append(copy)
        for value, result in zip(node.outputs, body.outputs, strict=True):
            if result not in mapping:
                mapping[result] = _copy_const(result, self)
            self.replace_uses(value, mapping[result])
        for operand in node.inputs:
            disconnect(operand, node)
        del self._members[node]
        self._edited()
        return copies

    def clone(self) -> Graph:
        """Return a deep copy that shares only the arrays of constants."""
        copy = Graph(self.name, infer=self.infer, opsets=self.opsets)
        copy.metadata = dict(self.metadata)
        copy.defaults = dict(self.defaults)
        copy.bounds, copy.settled = dict(self.bounds), dict(self.settled)
        copy.remarks = list(self.remarks)
        copy._fresh = dict(self._fresh)
        mapping = {value: Value(value.name, value.type, None, value.const) for value in self.values.values()}
        copy.inputs = [mapping[value] for value in self.inputs]
        copy._order = [_twin(node, copy, mapping) for node in self.nodes]
        copy._members = dict.fromkeys(copy._order)
        copy._values = {value.name: value for value in mapping.values() if value.name}
        copy.set_outputs([mapping[v] for v in self.outputs], self.output_names)
        return copy

    def dissolve(self) -> None:
        """Empty the graph and all bodies below it, so that their memory is free at once.

        Values and nodes refer to each other; a graph that is merely dropped waits for the garbage collector.
        """
        graphs = [self]
        for graph in graphs:
            for node in graph._members:
                graphs.extend(node.bodies.values())
                for value in node.outputs:
                    value.producer = None
                    value.users.clear()
            for value in graph._values.values():
                value.users.clear()
            graph._members.clear()
            graph._values.clear()
            graph._edited()

    def __str__(self) -> str:
        return Graph.printer(self)

    # Internals -----------------------------------------------------------------------------------------------------

    def _version(self, op: str, domain: str) -> int:
        return since_version(op, domain, self.opsets.get(domain))

    def _declare(self, value: Value) -> Value:
        if value.name in self._values:
            raise VerifyError(f'the value name "{value.name}" is taken', where=f"graph {self.name}")
        self._values[value.name] = value
        return value

    def _edited(self) -> None:
        """Drop the cached order and connectivity after a change."""
        self._order = None
        self._links = None


_PENDING = UNKNOWN


def _parameters(
    members: list[Node], inside: set[Node], params: Sequence[Value] | None, bind_constants: bool
) -> list[Value]:
    wanted = dict.fromkeys(params or ())
    for node in members:
        for value in node.inputs:
            if value is None or value.producer in inside:
                continue
            if not (value.is_const and bind_constants):
                wanted.setdefault(value)
    return list(wanted)


def _lift_out(graph: Graph, members: list[Node], inside: set[Node]) -> None:
    """Take ``members`` out of the graph, but not their results that others read, nor the values that they read."""
    for node in members:
        del graph._members[node]
        for value in dict.fromkeys(node.inputs):
            if value is not None and value.producer not in inside:
                del value.users[node]
                if value.is_const and not graph.use_count(value):
                    graph._values.pop(value.name, None)
        for value in node.outputs:
            graph._values.pop(value.name, None)
    graph._edited()


def _settle(node: Node, body: Graph, mapping: dict[Value, Value]) -> None:
    """Put a node that was lifted out into ``body``; ``mapping`` gives inner values for those shared with the graph."""
    operands = []
    for value in node.inputs:
        if value is not None and value.is_const and value not in mapping:
            mapping[value] = _copy_const(value, body)
        inner = value if value is None else mapping.get(value, value)
        if inner is not None and inner is not value:
            assert value is not None
            connect(inner, node)
            value.users.pop(node, None)
        operands.append(inner)
    node.inputs = tuple(operands)
    node.outputs = tuple([mapping.get(v, v) for v in node.outputs])
    node.serial = next(body._serial)
    body._members[node] = None
    for value in node.outputs:
        if value.name:
            body._declare(value)


def _copy_node(node: Node, into: Graph, mapping: dict[Value, Value], names: Mapping[str, str] | None = None) -> Node:
    """Copy one node; operands come from ``mapping``, constants are copied on first use."""
    operands: list[Value | None] = []
    for value in node.inputs:
        if value is not None and value not in mapping:
            assert value.const is not None, f"{value!r} is not available in graph {into.name}"
            mapping[value] = _copy_const(value, into)
        operands.append(None if value is None else mapping[value])
    copy = _like(node, tuple(operands))
    copy.serial = next(into._serial)
    outputs = []
    for value in node.outputs:
        name = value.name and into.fresh((names or {}).get(value.name, value.name))
        outputs.append(Value(name, value.type, copy))
        mapping[value] = outputs[-1]
    copy.outputs = tuple(outputs)
    into._insert(copy)
    return copy


def _copy_const(value: Value, into: Graph) -> Value:
    held = into.values.get(value.name)
    if held is not None and held.const is value.const:
        return held
    assert value.const is not None
    return into._declare(Value(into.fresh(value.name or "const"), value.type, const=value.const))


def _twin(node: Node, into: Graph, mapping: dict[Value, Value]) -> Node:
    """Return a node's copy for a graph that has all its values, under the same names."""
    twin = _like(node, tuple([None if v is None else mapping[v] for v in node.inputs]))
    twin.serial = next(into._serial)
    twin.outputs = tuple([mapping[v] if v.name else Value("", v.type) for v in node.outputs])
    for value in twin.outputs:
        value.producer = twin
    for operand in twin.inputs:  # as connect does, without a call per operand
        if operand is not None:
            operand.users[twin] = operand.users.get(twin, 0) + 1
    return twin


def _like(node: Node, operands: tuple[Value | None, ...]) -> Node:
    """Return a copy of a node with other operands and no results."""
    copy = Node(node.op, node.domain, node.version, operands)
    copy.attrs = dict(node.attrs)
    if node.bodies:
        copy.bodies = {key: body.clone() for key, body in node.bodies.items()}
    copy.captures = node.captures
    copy.target = node.target
    copy.region = node.region
    copy.sources = node.sources
    copy.position = node.position
    return copy
