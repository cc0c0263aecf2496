"""Print a graph in its textual form, which :mod:`tinycomp.ir.text.parser` reads back to an equal graph.

The grammar, in EBNF (``WORD``, ``NUMBER`` and ``STRING`` as in :mod:`tinycomp.ir.text.lexer`; ``//``
begins a comment)::

    graph     = "graph" "@" name [ "opset" dict ] [ "metadata" dict ]
                "(" [ param { "," param } ] ")" "->" "(" [ result { "," result } ] ")" "{" { statement } "}" ;
    param     = value ":" type [ "=" [ type ] data ] ;     (* the value of an input that may be left out *)
    result    = [ STRING "=" ] value ;                     (* the name, where it is not the value's *)
    statement = constant | node ;
    constant  = value [ ":" type ] "=" "const" [ type ] data ;
    data      = scalar | "[" [ scalar { "," scalar } ] "]" (* flat, row-major *)
              | "hex" STRING | "#" HASH ;                  (* the elements are in a store, by content hash *)
    node      = outputs "=" [ name "::" ] name [ "@" NUMBER ]
                "(" [ operands ] [ "|" operands ] ")"      (* captured values stand after the bar *)
                [ dict ] [ "target" STRING ] [ "region" NUMBER ]
                [ "from" list ] { name "=" graph } ;
    outputs   = "(" ")" | output { "," output } ;
    output    = ( value [ ":" type ] ) | "_" ;             (* "_" is a skipped result *)
    operands  = operand { "," operand } ;
    operand   = value | "_" ;                              (* "_" is an absent optional operand *)
    dict      = "{" [ name "=" attr { "," name "=" attr } ] "}" ;
    attr      = NUMBER | STRING | "b" STRING | "true" | "false" | "dense" type data | "type" type | list ;
    list      = "[" [ attr { "," attr } ] "]" ;
    scalar    = NUMBER | STRING | "true" | "false" ;
    type      = dtype "[" ( "..." | [ dim { "," dim } ] ) [ ";" name ] "]"
              | "seq" "<" type ">" | "optional" "<" type ">" | "map" "<" dtype "," type ">" ;
    dtype     = WORD | "?" ;
    dim       = NUMBER | name | "?" ;
    value     = "%" name ;
    name      = WORD | STRING ;

A missing version means the one in force in the graph's opset, a missing type the inferred one. A body inherits the
opsets of the graph around it. Floats with the suffix ``f`` are float32 numbers widened to Python's float.
Constants stand just before their first use; those that nobody uses are left out. Types of skipped results, remarks
and positions are not part of the text: nodes stand in the order of ``graph.nodes``.

Example::

    graph @main opset {"" = 17} (%x: float32[N, 4]) -> (%y) {
      %w: float32[4] = const [1.0, 2.0, 3.0, 4.0]
      %y: float32[N, 4] = Mul@14(%x, %w) from ["scale"]
    }
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tinycomp.errors import VerifyError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.text.lexer import MAX_NESTING
from tinycomp.ir.text.literals import array_literal, bytes_literal, content_hash, float_attr, quote, value_name, word
from tinycomp.ir.types import MapType, OptionalType, SequenceType, TensorType, type_of
from tinycomp.records import dataclass

INDENT = "  "
Span = tuple[int, int]


def print_graph(graph: Graph, *, constants: dict[str, np.ndarray] | None = None, max_inline: int = 16) -> str:
    """Return the textual form of ``graph``.

    Args:
        graph: The graph; it must be acyclic.
        constants: Receives the large constants by content hash, so that :func:`tinycomp.ir.text.parser.parse_graph` can
            read the text back; when None, the text names only their hashes. An array that it holds already is not
            hashed again, so one dict serves a series of dumps.
        max_inline: Most elements of a constant that the text spells out.

    Raises:
        VerifyError: If the graph has a cycle or is nested deeper than :data:`MAX_NESTING`.
    """
    return _Printer(constants, max_inline).graph_text(graph)


@dataclass(frozen=True)
class NodeLine:
    """One node as text without its bodies, and where its operands and results stand in it.

    Attributes:
        text: The line, without indentation.
        operands: Column range of each operand.
        results: Column range of each result.
        op: Column range of the operator.
    """

    text: str
    operands: tuple[Span, ...]
    results: tuple[Span, ...]
    op: Span


def node_line(node: Node) -> NodeLine:
    """Return the line of ``node``; works on a node of a broken graph too."""
    return _Printer(None, 4).node_line(node)


def attr_text(value: Any) -> str:
    """Return the text of one attribute value; large arrays by content hash."""
    return _Printer(None, 16).attr(value)


class _Printer:
    def __init__(self, constants: dict[str, np.ndarray] | None, max_inline: int) -> None:
        self._store = constants
        self._max_inline = max_inline
        self._hashes = {id(array): key for key, array in (constants or {}).items()}

    def graph_text(self, graph: Graph) -> str:
        lines = list(self._graph_lines(graph, "", None, 0))
        return "\n".join(lines)

    def _graph_lines(self, graph: Graph, indent: str, around: Graph | None, depth: int) -> Iterator[str]:
        if depth > MAX_NESTING:
            raise VerifyError("bodies are nested too deeply", where=f"graph {graph.name}", expected=f"{MAX_NESTING}")
        yield f"{self._header(graph, around)} {{"
        inner = indent + INDENT
        printed: set[Value] = set()
        for node in graph.nodes:
            yield from self._constant_lines(node.inputs, printed, inner)
            yield from self._node_lines(graph, node, inner, depth)
        yield from self._constant_lines(graph.outputs, printed, inner)
        yield f"{indent}}}"

    def _header(self, graph: Graph, around: Graph | None) -> str:
        parts = [f"graph @{word(graph.name)}"]
        if around is None or around.opsets != graph.opsets:
            parts.append(f"opset {self._dict(graph.opsets)}")
        if graph.metadata:
            parts.append(f"metadata {self._dict(graph.metadata)}")
        parts.append(f"({', '.join(self._param(v, graph.defaults.get(v.name)) for v in graph.inputs)})")
        results = (
            value_name(v.name) if v.name == name else f"{quote(name)} = {value_name(v.name)}"
            for v, name in zip(graph.outputs, graph.output_names, strict=True)
        )
        return f"{' '.join(parts)} -> ({', '.join(results)})"

    def _param(self, value: Value, default: np.ndarray | None) -> str:
        text = f"{value_name(value.name)}: {value.type}"
        return text if default is None else f"{text} = {self._const_data(value, default)}"

    def _constant_lines(self, values: Iterable[Value | None], printed: set[Value], indent: str) -> Iterator[str]:
        for value in values:
            if value is not None and value.const is not None and value not in printed:
                printed.add(value)
                yield f"{indent}{value_name(value.name)}: {value.type} = const {self._const_data(value, value.const)}"

    def _const_data(self, value: Value, array: np.ndarray) -> str:
        own = type_of(array)
        told = isinstance(value.type, TensorType) and (value.type.dtype, value.type.shape) == (own.dtype, own.shape)
        return self._data(array) if told else f"{own} {self._data(array)}"

    def _data(self, array: np.ndarray) -> str:
        if array.size <= self._max_inline:
            return array_literal(array)
        key = self._hashes.get(id(array)) or content_hash(array)
        self._hashes[id(array)] = key
        if self._store is not None:
            self._store[key] = array
        return f"#{key}"

    def _node_lines(self, graph: Graph, node: Node, indent: str, depth: int) -> Iterator[str]:
        yield indent + self.node_line(node).text
        inner = indent + INDENT
        for name, body in node.bodies.items():
            lines = self._graph_lines(body, inner, graph, depth + 1)
            yield f"{inner}{word(name)} = {next(lines)}"
            yield from lines

    def node_line(self, node: Node) -> NodeLine:
        text = _Line()
        results = tuple(
            text.item(i, f"{value_name(v.name)}: {v.type}" if v.name else "_") for i, v in enumerate(node.outputs)
        )
        text.add(" = " if node.outputs else "() = ")
        domain = f"{word(node.domain)}::" if node.domain else ""
        op = text.add(f"{domain}{word(node.op)}@{node.version}")
        text.add("(")
        bar = len(node.inputs) - node.captures if node.captures else -1
        operands = tuple(
            text.item(i, "_" if v is None else value_name(v.name), i == bar) for i, v in enumerate(node.inputs)
        )
        text.add(")")
        text.add(self._clauses(node))
        return NodeLine(text.text, operands, results, op)

    def _clauses(self, node: Node) -> str:
        attrs = f" {self._dict(node.attrs)}" if node.attrs else ""
        target = f" target {quote(node.target)}" if node.target is not None else ""
        region = f" region {node.region}" if node.region is not None else ""
        sources = f" from {self.attr(list(node.sources))}" if node.sources else ""
        return attrs + target + region + sources

    def _dict(self, items: Mapping[str, Any]) -> str:
        return f"{{{', '.join(f'{word(k) if k else quote(k)} = {self.attr(v)}' for k, v in items.items())}}}"

    def attr(self, value: Any) -> str:
        """Return the text of an attribute value."""
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self.attr(v) for v in value)}]"
        if isinstance(value, np.ndarray):
            return f"dense {type_of(value)} {self._data(value)}"
        if isinstance(value, (TensorType, SequenceType, OptionalType, MapType)):
            return f"type {value}"
        return _scalar_attr(value)


def _scalar_attr(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        return float_attr(float(value))
    if isinstance(value, bytes):
        return bytes_literal(value)
    if isinstance(value, str):
        return quote(value)
    return quote(f"<{type(value).__name__}>")


class _Line:
    """A line under construction that remembers where its items stand."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def add(self, part: str) -> Span:
        start = self._length
        self._parts.append(part)
        self._length += len(part)
        return start, self._length

    def item(self, index: int, part: str, after_bar: bool = False) -> Span:
        """Add the ``index``-th item of a list, with a bar in front of the first captured one."""
        if after_bar:
            self.add(" | " if index else "| ")
        elif index:
            self.add(", ")
        return self.add(part)
