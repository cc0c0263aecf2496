"""Texts in programs: spans of heaps, and which heap the texts of a value lie in.

All texts that come into a program lie in one heap. It begins with the texts that the program itself knows, and so does
every heap that a kernel makes, so that spans of these are good for any heap.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType
from tinycomp.lazy import LazyModule
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.program import BufferSpec
from tinycomp.symbolic import Expression, Size

if TYPE_CHECKING:
    from tinycomp.ops import text as ops_text
else:
    ops_text = LazyModule("tinycomp.ops.text")

DTYPE = "string"


def takes_texts(node: Node) -> bool:
    """Tell whether operands of a node are texts."""
    return any(v is not None and v.dtype == DTYPE for v in node.inputs)


def has_texts(graph: Graph) -> bool:
    """Tell whether texts come into a graph, go out, or are made in it."""
    values = [v for v in graph.values.values() if v.const is None]
    return DTYPE in [v.type.dtype for v in (*values, *graph.outputs) if isinstance(v.type, TensorType)]


def makes_heap(node: Node) -> bool:
    """Tell whether the results of a node lie in a heap of their own."""
    if node.op == "StringNormalizer":
        return bool(node.attrs.get("case_change_action", "NONE") != "NONE")
    return node.op == "StringConcat"


def heap_makers(value: Value) -> set[Node | None]:
    """Return whose heaps the texts of a value lie in; None is the one that comes in. Texts that are known have none."""
    found: set[Node | None] = set()
    seen, waiting = {value}, [value]
    for each in waiting:
        node = each.producer
        if each.const is not None or (node is not None and node.op == "LabelEncoder"):
            continue
        operands = [] if node is None or makes_heap(node) else [v for v in node.inputs if v and v.dtype == DTYPE]
        if not operands:
            found.add(None if node is None or not makes_heap(node) else node)
        waiting += [v for v in operands if v not in seen]
        seen |= {*operands}
    return found


@dataclass
class KnownTexts:
    """The constant texts of a program, concatenated.

    Attributes:
        prefix: Their bytes.
    """

    prefix: bytes = b""
    _starts: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph) -> KnownTexts:
        """Return the texts of constants that are operands or results, and those that nodes can output."""
        texts = dict.fromkeys(map(ops_text.utf8, _known(graph)))
        ends = [0, *itertools.accumulate(map(len, texts))]
        return cls(b"".join(texts), dict(zip(texts, ends, strict=False)))

    def span(self, text: Any) -> int:
        """Return the span of a text: its first byte, and its length times 2^32."""
        data = ops_text.utf8(text)
        return self._starts[data] + (len(data) << 32)

    def spans(self, texts: np.ndarray) -> np.ndarray:
        """Return the spans of an array."""
        return np.array([self.span(text) for text in texts.reshape(-1).tolist()], np.uint64).reshape(texts.shape)


def _known(graph: Graph) -> Iterator[Any]:
    for value in (*graph.outputs, *[v for node in graph.nodes for v in node.inputs if v is not None]):
        if value.const is not None and value.dtype == DTYPE:
            yield from value.const.reshape(-1).tolist()
    for node in graph.nodes:
        yield from ops_text.made_texts(node)


def heap_specs(known: KnownTexts) -> tuple[BufferSpec, BufferSpec]:
    """Return the two inputs after those of the caller."""
    names = tuple([size.name for size in (ops_text.ALL, ops_text.LONGEST)])
    heap = BufferSpec("texts", "uint8", (len(known.prefix) + ops_text.ALL,))
    return heap, BufferSpec("sizes of texts", "int64", (len(names),), names)


def heap_bytes(known: KnownTexts, value: Value) -> Size:
    """Return the bytes of a heap for the texts of a value."""
    return len(known.prefix) + ops_text.text_bytes(value)


def bounds(value: Value) -> dict[str, Size]:
    """Return the most bytes of one text of a value, and of all, by what kernels call them."""
    return {"total": ops_text.text_bytes(value), "longest": ops_text.longest_text(value)}


def incoming_bytes(known: KnownTexts) -> Expression:
    """Return the bytes of the heap that comes in."""
    size = len(known.prefix) + ops_text.ALL
    assert isinstance(size, Expression)
    return size
