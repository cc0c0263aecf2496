"""Read the textual form; the grammar stands in :mod:`tinycomp.ir.text.printer`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinycomp.errors import ParseError, TypeInferenceError, VerifyError, did_you_mean
from tinycomp.ir.graph import Graph, InferTypes, Node, Value
from tinycomp.ir.text.lexer import END, Token, TokenStream
from tinycomp.ir.text.literals import AbsentArray, array_from_hex, array_from_items
from tinycomp.ir.types import (
    UNKNOWN,
    UNKNOWN_DTYPE,
    Dim,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    known_dtypes,
    type_of,
)
from tinycomp.records import dataclass, field


class AttributeParser(TokenStream):
    """Rules ``type``, ``attr``, ``dict`` and ``data`` of the grammar.

    Args:
        source: The text.
        constants: Large arrays by content hash.
        absent: Whether large arrays that are not there are stood for by their types and hashes.
    """

    def __init__(self, source: str, constants: Mapping[str, np.ndarray] | None, absent: bool = False) -> None:
        super().__init__(source)
        self._store = constants
        self._absent = absent

    # Types ---------------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        """Read a type."""
        if self.ahead.text != "<":
            return self._tensor_type()
        with self.nesting("types"):
            kind = self.name("a type")
            self.take("<")
            type_ = self._container(kind)
            self.take(">")
            return type_

    def _container(self, kind: str) -> Type:
        if kind == "seq":
            return SequenceType(self.type())
        if kind == "optional":
            return OptionalType(self.type())
        if kind != "map":
            self.fail(f'there is no kind of type "{kind}"', expected="seq, optional or map")
        at = self.now
        key = self._dtype()
        if key == UNKNOWN_DTYPE:
            self.fail("the keys of a map have no type", at=at, expected="an integer type or string")
        self.take(",")
        return MapType(key, self.type())

    def _tensor_type(self) -> TensorType:
        dtype = self._dtype()
        self.take("[")
        shape: tuple[Dim, ...] | None = None
        if not self.skip("..."):
            shape = tuple(self.items(("]", ";"), self._dim))
        layout = self.name("a layout such as NHWC") if self.skip(";") else ""
        self.take("]")
        return TensorType(dtype, shape, layout)

    def _dtype(self) -> str:
        at = self.now
        if self.skip("?"):
            return UNKNOWN_DTYPE
        if at.kind != "WORD":
            self.fail("unexpected text", expected="a type such as float32[2, 3]")
        if at.text not in known_dtypes():
            self.fail(f'there is no dtype "{at.text}"', at=at, hint=did_you_mean(at.text, known_dtypes()))
        return self.advance().text

    def _dim(self) -> Dim:
        if self.skip("?"):
            return None
        if self.now.kind == "NUMBER" and self.now.text not in ("inf", "nan"):
            size = self.integer("a dimension")
            if size < 0:
                self.fail(f"a dimension is negative: {size}")
            return size
        if self.now.kind == "NUMBER":
            return self.advance().text
        return self.name("a dimension: a size, a symbol, or ?")

    # Attribute values ----------------------------------------------------------------------------------------------

    def dict(self) -> dict[str, Any]:
        """Read ``{name = value, …}``."""
        found: dict[str, Any] = {}

        def entry() -> None:
            at = self.now
            key = self.name("the name of an attribute")
            if key in found:
                self.fail(f'"{key}" is given twice', at=at)
            self.take("=")
            found[key] = self.attr()

        self.sequence("{", "}", entry)
        return found

    def attr(self) -> Any:
        """Read one attribute value."""
        token = self.now
        if token.text == "[":
            with self.nesting("lists"):
                return self.sequence("[", "]", self.attr)
        if token.kind == "BYTES":
            self.advance()
            return self._bytes(token)
        if token.text == "dense":
            self.advance()
            return self._dense()
        if token.text == "type":
            self.advance()
            return self.type()
        return self._scalar()

    def _bytes(self, token: Token) -> bytes:
        try:
            return self.unquote(token.text[1:], token).encode("latin-1")
        except UnicodeEncodeError:
            self.fail("a bytes text has a character above 255", at=token)

    def _dense(self) -> np.ndarray:
        at = self.now
        type_ = self.type()
        if not isinstance(type_, TensorType):
            self.fail("an array needs a tensor type", at=at)
        return self.array(type_)

    def _scalar(self) -> bool | int | float | str:
        token = self.now
        if token.kind == "STRING":
            return self.string()
        if token.text in ("true", "false"):
            return self.advance().text == "true"
        if token.kind != "NUMBER":
            self.fail("unexpected text", expected="a number, a text in quotes, true, false, a list, dense or type")
        return _number(self.number_text())

    # Arrays --------------------------------------------------------------------------------------------------------

    def at_data(self) -> bool:
        """Tell whether the elements of an array come now, not their type."""
        return self.now.kind in ("NUMBER", "STRING", "HASH") or self.now.text in ("[", "hex", "true", "false")

    def array(self, type_: TensorType) -> np.ndarray:
        """Read the elements of an array of ``type_``."""
        at = self.now
        if at.kind == "HASH":
            return self._stored(type_)
        try:
            if self.skip("hex"):
                return array_from_hex(self.string(), type_)
            items = self.sequence("[", "]", self._scalar) if at.text == "[" else [self._scalar()]
            return array_from_items(items, type_)
        except ParseError:
            raise
        except (ValueError, OverflowError) as error:
            self.fail(f"the literal does not fit: {error}", at=at)

    def _stored(self, type_: TensorType) -> np.ndarray:
        token = self.advance()
        key = token.text[1:]
        array = None if self._store is None else self._store.get(key)
        if array is None and self._absent:
            return AbsentArray.of(key, type_)
        if array is None:
            self.fail(
                f"the elements of constant #{key} are not at hand",
                at=token,
                found="no store of constants" if self._store is None else f"{len(self._store)} other constants",
                hint="Pass the dict that print_graph(graph, constants=...) filled as parse_graph(text, constants=...).",
            )
        if type_of(array) != TensorType(type_.dtype, type_.shape):
            self.fail(f"constant #{key} has another type", at=token, expected=str(type_), found=str(type_of(array)))
        return array


def _number(text: str) -> int | float:
    if text.endswith("f") and text != "inf" and text != "-inf":
        return float(np.float32(text[:-1]))
    if text.lstrip("-").isdigit():
        return int(text)
    return float(text)


def parse_graph(
    text: str,
    *,
    constants: Mapping[str, np.ndarray] | None = None,
    infer: InferTypes | None = None,
    absent: bool = False,
) -> Graph:
    """Return the graph that ``text`` describes; its nodes stand in the order of the text.

    Args:
        text: One graph in the textual form.
        constants: Large constants by content hash, as filled by :func:`tinycomp.ir.text.printer.print_graph`.
        infer: Output types of a node, used where the text gives none; by default the rule of :class:`Graph`.
        absent: Let an :class:`~tinycomp.ir.text.literals.AbsentArray` stand for a large constant that is not there.

    Raises:
        ParseError: If the text is not valid; the message shows the line with a caret.
    """
    parser = _GraphParser(text, constants, absent)
    graph = parser.graph(infer, None)
    if parser.now.kind != END:
        parser.fail("there is more text after the graph", expected="the end")
    return graph


@dataclass
class _Result:
    """An output as written: where, its name (empty when skipped), and its type (None when left to inference)."""

    at: Token
    name: str
    type: Type | None


@dataclass
class _Statement:
    """A node as written, before it is added."""

    op: Token
    results: list[_Result]
    domain: str = ""
    name: str = ""
    version: int | None = None
    inputs: list[Value | None] = field(default_factory=list)
    captures: int = 0
    attrs: dict[str, Any] = field(default_factory=dict)
    target: str | None = None
    region: int | None = None
    sources: tuple[str, ...] = ()
    bodies: dict[str, Graph] = field(default_factory=dict)


_VERSIONS = 1 << 31


class _GraphParser(AttributeParser):
    """Recursive only over the nesting of bodies, types and lists, which is bounded."""

    def graph(self, infer: InferTypes | None, around: Graph | None) -> Graph:
        self.take("graph")
        self.take("@")
        graph = Graph(self.name("a graph name"), infer=infer, opsets=around.opsets if around is not None else None)
        if self.skip("opset"):
            graph.opsets = self._opsets()
        if self.skip("metadata"):
            graph.metadata = self._metadata()
        self._params(graph)
        self.take("->")
        results = self._result_references()
        self.take("{")
        with self.nesting("bodies"):
            while not self.skip("}"):
                self._statement(graph)
        self._set_outputs(graph, results)
        return graph

    def _opsets(self) -> dict[str, int]:
        at = self.now
        opsets = self.dict()
        if not all(type(v) is int and 0 <= v < _VERSIONS for v in opsets.values()):
            self.fail("an opset version is not a whole number in range", at=at)
        return opsets

    def _version(self) -> int:
        at = self.now
        version = self.integer("an operator version")
        if not 0 <= version < _VERSIONS:
            self.fail("an operator version is not a whole number in range", at=at)
        return version

    def _metadata(self) -> dict[str, str]:
        at = self.now
        metadata = self.dict()
        if not all(isinstance(v, str) for v in metadata.values()):
            self.fail("a metadata value is not a text", at=at)
        return metadata

    def _params(self, graph: Graph) -> None:
        def param() -> None:
            at = self.now
            name = self.value("a graph input such as %x")
            self.take(":")
            self._check_free(graph, at, name)
            value = graph.add_input(name, self.type())
            if self.skip("="):
                graph.defaults[name] = self._data(at, value.type)

        self.sequence("(", ")", param)

    def _result_references(self) -> list[tuple[Token, str, str]]:
        def result() -> tuple[Token, str, str]:
            label = self.string() if self.now.kind == "STRING" else None
            if label is not None:
                self.take("=")
            at = self.now
            name = self.value("a value such as %y")
            return at, name, name if label is None else label

        return self.sequence("(", ")", result)

    def _set_outputs(self, graph: Graph, results: list[tuple[Token, str, str]]) -> None:
        values = [self._lookup(graph, at, name) for at, name, _ in results]
        graph.set_outputs(values, [label for _, _, label in results])

    # Statements ----------------------------------------------------------------------------------------------------

    def _statement(self, graph: Graph) -> None:
        results = self._results()
        self.take("=")
        if self.now.text == "const" and self.ahead.text not in ("(", "@", "::"):
            self._constant(graph, results)
        else:
            self._node(graph, results)

    def _results(self) -> list[_Result]:
        if self.now.text == "(":
            self.take("(")
            self.take(")")
            return []
        results = [self._one_result()]
        while self.skip(","):
            results.append(self._one_result())
        return results

    def _one_result(self) -> _Result:
        at = self.now
        if self.skip("_"):
            return _Result(at, "", UNKNOWN)
        name = self.value("a result such as %y, or _ for a skipped one")
        return _Result(at, name, self.type() if self.skip(":") else None)

    def _constant(self, graph: Graph, results: list[_Result]) -> None:
        at = self.now
        self.take("const")
        if len(results) != 1 or not results[0].name:
            self.fail("a constant has one name", at=results[0].at if results else at)
        (result,) = results
        array = self._data(at, result.type)
        self._check_free(graph, result.at, result.name)
        value = graph.add_const(array, result.name)
        value.type = type_of(array) if result.type is None else result.type

    def _data(self, at: Token, declared: Type | None) -> np.ndarray:
        stored = declared if self.at_data() else self.type()
        if not isinstance(stored, TensorType):
            self.fail("a constant needs a tensor type", at=at, hint='Write "%c: float32[2] = const [1.0, 2.0]".')
        return self.array(stored)

    def _node(self, graph: Graph, results: list[_Result]) -> None:
        statement = self._operator(results)
        self._operands(graph, statement)
        if self.now.text == "{":
            statement.attrs = self.dict()
        if self.now.text == "target" and self.ahead.kind == "STRING":
            self.take("target")
            statement.target = self.string()
        if self.now.text == "region" and self.ahead.kind == "NUMBER":
            self.take("region")
            statement.region = self.integer("a region number")
        if self.now.text == "from" and self.ahead.text == "[":
            self.take("from")
            statement.sources = tuple(self.sequence("[", "]", self.string))
        while self.now.kind in ("WORD", "STRING") and self.ahead.text == "=":
            name = self.name("a body name")
            self.take("=")
            statement.bodies[name] = self.graph(graph.infer, graph)
        self._add(graph, statement)

    def _operator(self, results: list[_Result]) -> _Statement:
        statement = _Statement(self.now, results, name=self.name("an operator such as Conv"))
        if self.skip("::"):
            statement.domain = statement.name
            statement.name = self.name("an operator name")
        if self.skip("@"):
            statement.version = self._version()
        return statement

    def _operands(self, graph: Graph, statement: _Statement) -> None:
        def operand() -> Value | None:
            at = self.now
            if self.skip("_"):
                return None
            return self._lookup(graph, at, self.value("an operand such as %x, or _ for an absent one"))

        self.take("(")
        statement.inputs = self.items((")", "|"), operand)
        if self.skip("|"):
            captured = self.items((")",), operand)
            statement.inputs += captured
            statement.captures = len(captured)
        self.take(")")

    def _add(self, graph: Graph, statement: _Statement) -> None:
        names = [r.name for r in statement.results]
        for result in statement.results:
            if result.name:
                self._check_free(graph, result.at, result.name)
        if len(set(names) - {""}) != sum(bool(n) for n in names):
            self.fail("a node has two results of one name", at=statement.results[0].at)
        types = [r.type for r in statement.results if r.type is not None]
        complete = len(types) == len(names)
        try:
            node = graph.add(
                statement.name,
                statement.inputs,
                statement.attrs,
                domain=statement.domain,
                version=statement.version,
                outputs=names,
                types=types if complete else None,
                bodies=statement.bodies,
                captures=statement.captures,
                target=statement.target,
                sources=statement.sources,
            )
        except (TypeInferenceError, VerifyError) as error:
            message = f"the type of a result cannot be inferred: {error.message}"
            self.fail(message, at=statement.op, expected=error.expected, found=error.found, hint=error.hint)
        node.region = statement.region
        if not complete:
            _apply_types(node, statement.results)

    # Names ---------------------------------------------------------------------------------------------------------

    def _lookup(self, graph: Graph, at: Token, name: str) -> Value:
        value = graph.values.get(name)
        if value is None:
            hint = did_you_mean(name, graph.values) or "A value stands above its users."
            self.fail(f'there is no value "{name}" in graph {graph.name} up to here', at=at, hint=hint)
        return value

    def _check_free(self, graph: Graph, at: Token, name: str) -> None:
        if name in graph.values:
            self.fail(f'the value name "{name}" is taken', at=at, hint="Every value of a graph has a name of its own.")


def _apply_types(node: Node, results: list[_Result]) -> None:
    for value, result in zip(node.outputs, results, strict=True):
        if result.type is not None and result.name:
            value.type = result.type
