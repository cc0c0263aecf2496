"""The invariants of the IR, checked by rebuilding what the graph keeps and comparing.

``verify`` visits every node, edge and value once, and never recurses: bodies wait in a list.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from tinycomp.errors import TypeInferenceError, VerifyError
from tinycomp.ir.graph import COMPOSITE, REGION, Graph, Node, Value
from tinycomp.ir.text.lexer import MAX_NESTING, caret
from tinycomp.ir.text.printer import Span, node_line
from tinycomp.ir.types import MapType, OptionalType, SequenceType, TensorType, compatible, type_of

_T = TypeVar("_T")
_C_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_C_KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while""".split()  # noqa: SIM905
)
_ATTR_KINDS = (bool, int, float, str, bytes, np.ndarray, TensorType, SequenceType, OptionalType, MapType)


def verify(graph: Graph, *, types: bool = True) -> None:
    """Check every invariant of ``graph`` and of the bodies below it.

    Args:
        graph: The graph.
        types: Whether to infer every type again and compare, except in branches that are never taken.

    Raises:
        VerifyError: At the first broken invariant; the message shows the node's line with a caret.
    """
    symbols: dict[str, Node] = {}
    seen: set[int] = {id(graph)}
    work = [(graph, 0, types)]
    while work:
        here, depth, typed = work.pop()
        if depth > MAX_NESTING:
            raise VerifyError("bodies are nested too deeply", where=f"graph {here.name}", expected=f"{MAX_NESTING}")
        _GraphCheck(here, typed, outermost=depth == 0).run()
        for node in here.nodes:
            _check_symbol(here, node, symbols)
            possible = node.possible_bodies
            for key, body in node.bodies.items():
                if id(body) in seen:
                    _broken(here, node, f"the body {body.name} belongs to two nodes", node_line(node).op)
                seen.add(id(body))
                work.append((body, depth + 1, typed and key in possible))


def _broken(graph: Graph, node: Node, message: str, span: Span, **parts: str) -> NoReturn:
    start, end = span
    raise VerifyError(
        message,
        where=f"graph {graph.name}, node {node.label}",
        snippet=caret(node_line(node).text, start, end - start),
        **parts,
    )


def _check_symbol(graph: Graph, node: Node, symbols: dict[str, Node]) -> None:
    if not node.is_region:
        return
    if not _C_IDENTIFIER.match(node.op) or node.op in _C_KEYWORDS:
        _broken(graph, node, f'the region symbol "{node.op}" is not an identifier of C', node_line(node).op)
    if node.op in symbols:
        _broken(graph, node, f'the region symbol "{node.op}" is taken', node_line(node).op)
    symbols[node.op] = node


class _GraphCheck:
    """The invariants of one graph, without its bodies; only the outermost graph is read by output name."""

    def __init__(self, graph: Graph, types: bool, outermost: bool) -> None:
        self.graph = graph
        self.outermost = outermost
        self.types = types
        self.users: dict[Value, dict[Node, int]] = {}
        self.slots: Counter[tuple[Node, Node]] = Counter()

    def run(self) -> None:
        self._names()
        for node in self.graph.connectivity:
            self._node(node)
        self._uses()
        self._edges()
        self._outputs()
        self._order()

    def _fail(self, message: str, **parts: str) -> NoReturn:
        raise VerifyError(message, where=f"graph {self.graph.name}", **parts)

    # Values --------------------------------------------------------------------------------------------------------

    def _names(self) -> None:
        inputs = set(self.graph.inputs)
        for name, value in self.graph.values.items():
            if not name or value.name != name:
                self._fail(f'the value listed as "{name}" has the name "{value.name}"')
            if value.producer is None and value.const is None and value not in inputs:
                self._fail(f'the value "{name}" has no producer', expected="a node, a constant or a graph input")
            if value.producer is not None and value.producer not in self.graph:
                self._fail(f'the producer of the value "{name}" is not in the graph', found=repr(value.producer))
            self._constant(value)
        for value in self.graph.inputs:
            if not self._owns(value) or value.producer is not None or value.const is not None:
                self._fail(f'the input "{value.name}" is not a plain value of the graph')
        unknown = self.graph.defaults.keys() - {v.name for v in self.graph.inputs}
        if unknown:
            self._fail(f"there are defaults for names that are not inputs: {sorted(unknown)}")

    def _constant(self, value: Value) -> None:
        if value.const is None:
            return
        if value.producer is not None:
            self._fail(f'the value "{value.name}" is a constant and has a producer')
        stored, row_major = type_of(value.const), getattr(value.type, "layout", "") == ""
        if row_major and not compatible(stored, value.type):
            self._fail(f'the constant "{value.name}" has another type', expected=str(value.type), found=str(stored))

    def _owns(self, value: Value) -> bool:
        return self.graph.values.get(value.name) is value

    def _uses(self) -> None:
        for name, value in self.graph.values.items():
            if value.users != self.users.get(value, {}):
                self._fail(
                    f'the users of the value "{name}" are out of date',
                    expected=_counts(self.users.get(value, {})),
                    found=_counts(value.users),
                    hint="Change operands by set_input or replace_uses only.",
                )

    def _edges(self) -> None:
        kept = {(a, b): int(data["slots"]) for a, b, data in self.graph.connectivity.edges(data=True)}
        for edge in kept.keys() | self.slots.keys():
            if kept.get(edge) != self.slots.get(edge):
                self._fail(
                    f"the edge {edge[0].label} -> {edge[1].label} is out of date",
                    expected=f"{self.slots.get(edge, 0)} slots",
                    found=f"{kept.get(edge, 0)} slots",
                )

    def _outputs(self) -> None:
        graph = self.graph
        for value in graph.outputs:
            if not self._owns(value):
                self._fail(f'the output "{value.name}" is not a value of the graph')
        names = graph.output_names
        if len(names) != len(graph.outputs):
            self._fail("the output names are not one per output", found=str(list(names)))
        if self.outermost and (len(set(names)) != len(names) or "" in names):
            self._fail("the output names are not distinct", found=str(list(names)))
        wanted = set(graph.outputs)
        for value in graph.values.values():
            if graph.is_output(value) != (value in wanted):
                self._fail(f'the count of the output "{value.name}" is out of date')

    def _order(self) -> None:
        """Check the order: a stale one shows as a node before its producer; a cycle raises by itself."""
        place = {node: i for i, node in enumerate(self.graph.nodes)}
        if place.keys() != set(self.graph.connectivity):
            self._fail("the order of nodes is out of date")
        for producer, user in self.slots:
            if place[producer] >= place[user]:
                self._fail(f"the order of nodes is out of date: {user.label} stands before {producer.label}")

    # Nodes ---------------------------------------------------------------------------------------------------------

    def _node(self, node: Node) -> None:
        for index, value in enumerate(node.inputs):
            if value is not None:
                self._operand(node, index, value)
        for index, value in enumerate(node.outputs):
            self._result(node, index, value)
        if not 0 <= node.captures <= len(node.inputs):
            self._broken(node, "there are more captures than operands", node_line(node).op, found=str(node.captures))
        for name, attr in node.attrs.items():
            if not _is_plain(attr):
                self._broken(
                    node, f'attribute "{name}" is not a plain value', node_line(node).op, found=type(attr).__name__
                )
        if node.domain in (COMPOSITE, REGION) and list(node.bodies) != ["body"]:
            self._broken(
                node, "a composite or region has one body", node_line(node).op,
                expected="body", found=", ".join(node.bodies) or "none",
            )  # fmt: skip
        for name, body in node.bodies.items():
            self._body(node, name, body)
        if self.types:
            self._types(node)

    def _broken(self, node: Node, message: str, span: Span, **parts: str) -> NoReturn:
        _broken(self.graph, node, message, span, **parts)

    def _operand(self, node: Node, index: int, value: Value) -> None:
        if not self._owns(value):
            self._broken(node, f"operand {index} is not a value of this graph", node_line(node).operands[index])
        uses = self.users.setdefault(value, {})
        uses[node] = uses.get(node, 0) + 1
        if value.producer is not None:
            self.slots[value.producer, node] += 1

    def _result(self, node: Node, index: int, value: Value) -> None:
        span = None if value.producer is node else node_line(node).results[index]
        if span is not None:
            self._broken(node, f"result {index} names another producer", span, found=repr(value.producer))
        if not value.name:
            if value.users or self.graph.is_output(value):
                self._broken(node, f"result {index} is skipped and in use", node_line(node).results[index])
        elif not self._owns(value):
            self._broken(node, f"result {index} is not a value of this graph", node_line(node).results[index])
        elif value.const is not None:
            self._broken(node, f"result {index} is a constant", node_line(node).results[index])

    def _body(self, node: Node, name: str, body: Graph) -> None:
        passed = len(node.inputs) if node.is_call else node.captures
        formals = body.inputs if node.is_call else _trailing(body.inputs, passed)
        actuals = _trailing(node.inputs, passed)
        if len(formals) != len(actuals):
            self._broken(
                node, f"the {name} does not take the operands of the node", node_line(node).op,
                expected=f"{len(actuals)} inputs", found=f"{len(formals)}",
            )  # fmt: skip
        first = len(node.inputs) - len(actuals)
        for index, (formal, actual) in enumerate(zip(formals, actuals, strict=True), first):
            is_possible = name in node.possible_bodies
            if actual is not None and is_possible and not compatible(formal.type, actual.type):
                self._broken(
                    node, f"operand {index} does not fit the {name}", node_line(node).operands[index],
                    expected=f"{formal.name}: {formal.type}", found=str(actual.type),
                )  # fmt: skip
        if (node.is_call or node.op == "If") and len(body.outputs) != len(node.outputs):
            self._broken(
                node, f"the {name} does not give the results of the node", node_line(node).op,
                expected=f"{len(node.outputs)} outputs", found=f"{len(body.outputs)}",
            )  # fmt: skip

    def _types(self, node: Node) -> None:
        try:
            found = self.graph.infer(node)
        except TypeInferenceError as error:
            self._broken(node, error.message, node_line(node).op, found=error.found)
        for index, (value, type_) in enumerate(zip(node.outputs, found, strict=False)):
            if value.name and not compatible(value.type, type_):
                self._broken(
                    node, f"the type of result {index} is stale", node_line(node).results[index],
                    expected=str(type_), found=str(value.type),
                    hint="Call infer_again on the users of a value whose type has changed.",
                )  # fmt: skip


def _trailing(values: Sequence[_T], count: int) -> Sequence[_T]:
    return values[max(len(values) - count, 0) :]


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return isinstance(value, _ATTR_KINDS) and not isinstance(value, np.generic)


def _counts(users: dict[Node, int]) -> str:
    return ", ".join(f"{node.label} x{count}" for node, count in users.items()) or "none"
