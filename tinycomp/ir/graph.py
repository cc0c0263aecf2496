"""The graph: values, nodes, and the few operations that change them.

A :class:`Graph` is connected by ``node.inputs``, the truth, and by the producer and the users that every value knows.
Only :meth:`Graph.add`, :meth:`Graph.erase`, :meth:`Graph.replace_uses`, :meth:`Graph.set_input`, :meth:`Graph.outline`
and :meth:`Graph.inline` touch them, and :func:`tinycomp.ir.verify.verify` rebuilds and compares. For algorithms of
networkx, :attr:`Graph.connectivity` is made of them when it is asked for.

Nesting has one form: a node owns *bodies*, closed graphs whose inputs are the node's operands. A composite, a region
and a model-local function have the single body ``"body"``; If has two. Outer values that a body of any other node (If,
Loop, …) captures are trailing operands of the node (``node.captures`` counts them) and trailing inputs of every body.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tinycomp.errors import VerifyError
from tinycomp.ir.node import COMPOSITE, REGION, TINYCOMP, Attr, Node, Value, connect, disconnect
from tinycomp.ir.order import links_among, stable_order
from tinycomp.ir.remarks import Remark
from tinycomp.ir.types import UNKNOWN, Type, type_of

if TYPE_CHECKING:
    import networkx as nx

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
    """

    def __init__(
        self, name: str = "main", *, infer: InferTypes | None = None, opsets: Mapping[str, int] | None = None
    ) -> None:
        if infer is None:
            from tinycomp.ir.infer import infer_types

            infer = infer_types
        self.name = name
        self.infer = infer
        self.opsets = dict(opsets or {})
        self.metadata: dict[str, str] = {}
        self.remarks: list[Remark] = []
        self.inputs: list[Value] = []
        self.defaults: dict[str, np.ndarray] = {}
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
    def connectivity(self) -> nx.DiGraph[Node]:
        """The node graph, for networkx algorithms, made anew after a change; do not change it."""
        if self._links is None:
            self._links = links_among(self._members)
        return self._links

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, node: object) -> bool:
        return node in self._members

    def is_output(self, value: Value) -> bool:
        """Whether ``value`` is a result of the graph."""
        return value in self._output_counts

    def is_dead(self, node: Node) -> bool:
        """Whether nobody reads a result of ``node``."""
        for value in node.outputs:  # noqa: SIM110 (a generator would cost)
            if value.users or value in self._output_counts:
                return False
        return True

    def use_count(self, value: Value) -> int:
        """Number of operand slots and graph outputs that read ``value``."""
        return sum(value.users.values()) + self._output_counts.get(value, 0)

    def predecessors(self, node: Node) -> Iterator[Node]:
        """Nodes that produce an operand of ``node``."""
        return iter(dict.fromkeys(v.producer for v in node.inputs if v is not None and v.producer is not None))

    def successors(self, node: Node) -> Iterator[Node]:
        """Nodes that read a result of ``node``."""
        return iter(dict.fromkeys([user for value in node.outputs for user in value.users]))

    def fresh(self, base: str) -> str:
        """Return a value name that is not taken, starting from ``base``."""
        if base and base not in self._values:
            return base
        return self._numbered(base or "v")

    def _numbered(self, base: str) -> str:
        """Return ``base_1``, ``base_2``, … on successive calls, leaving out names that are taken."""
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
        """Choose the results of the graph; ``names`` default to the value names."""
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
            at: A node whose place in the order (and sources, unless given) the new one takes.

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
        for operand in node.inputs:
            connect(operand, node)
        self._edited()

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

        The body keeps the names of values; parameters are the distinct outside values in order of first use
        (or ``params``, which must cover them), results the distinct values used outside, in order of production.
        The set must be convex; :func:`tinycomp.ir.verify.verify` finds a cycle that a wrong set makes.

        Args:
            nodes: The nodes to move.
            op: Operator name of the new node.
            domain: Its domain, :data:`COMPOSITE` or :data:`REGION`.
            target: Its target.
            params: Outside values in parameter order; others that the nodes read come behind.
            bind_constants: Whether constants not among ``params`` go into the body instead of becoming parameters.
            attrs: Attributes of the new node.

        Returns:
            The new node.
        """
        from tinycomp.ir.outline import outline

        return outline(self, nodes, op, domain, target, params, bind_constants, attrs)

    def inline(self, node: Node) -> list[Node]:
        """Replace a composite, region or function node by the contents of its body; the inverse of :meth:`outline`."""
        from tinycomp.ir.outline import inline

        return inline(self, node)

    def clone(self) -> Graph:
        """Return a deep copy that shares only the arrays of constants."""
        from tinycomp.ir.outline import clone

        return clone(self)

    def __str__(self) -> str:
        from tinycomp.ir.printer import print_graph

        return print_graph(self)

    # Internals -----------------------------------------------------------------------------------------------------

    def _version(self, op: str, domain: str) -> int:
        from tinycomp.ir.infer import since_version

        return since_version(op, domain, self.opsets.get(domain))

    def _declare(self, value: Value) -> Value:
        if value.name in self._values:
            raise VerifyError(f'the value name "{value.name}" is taken', where=f"graph {self.name}")
        self._values[value.name] = value
        return value

    def _edited(self) -> None:
        """Forget what is derived from the nodes and their operands."""
        self._order = None
        self._links = None


_PENDING = UNKNOWN
