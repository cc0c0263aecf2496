"""Sizes that operators want to be equal: what a symbolic dimension must be for a node to work.

A model may call the channels of an image "C" although the weights say that there are 3. :func:`implied_sizes` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from tinycomp.ir.graph import Graph, Node
from tinycomp.symbolic import Size, product, solved, substitute

Pair = tuple[Size, Size]
Shape = Sequence[Size] | None


def implied_sizes(graph: Graph) -> dict[str, Size]:
    """Return the symbols that nodes of a graph, bodies included, want to be numbers or other symbols."""
    known: dict[str, Size] = {}
    for _, node in graph.walk():
        rule = None if node.domain else _RULES.get(node.op)
        for a, b in rule(node, _shapes(node)) if rule is not None else ():
            found = solved(substitute(a, known), substitute(b, known))
            if found is not None:
                name, size = found
                known = {key: substitute(value, {name: size}) for key, value in known.items()} | {name: size}
    return known


def _shapes(node: Node) -> list[Shape]:
    return [None if value is None or value.rank is None else value.sizes for value in node.inputs]


def _pairs(a: Iterable[Size], b: Iterable[Size]) -> Iterator[Pair]:
    yield from zip(a, b, strict=False)


def _product_rule(left: int, right: int) -> Callable[[Node, Sequence[Shape]], Iterator[Pair]]:
    def rule(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
        a, b = shapes[left], shapes[right]
        if a and b:
            yield a[-1], b[max(len(b) - 2, 0)]

    return rule


def _gemm(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    a, b = shapes[0], shapes[1]
    if a and b:
        yield a[0 if node.attrs.get("transA", 0) else 1], b[1 if node.attrs.get("transB", 0) else 0]


def _convolution_rule(weights: int) -> Callable[[Node, Sequence[Shape]], Iterator[Pair]]:
    def rule(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
        x, w = shapes[0], shapes[weights]
        if x and w:
            yield x[1], (w[0] if node.op == "ConvTranspose" else w[1] * int(node.attrs.get("group", 1)))

    return rule


def _channels(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    """Pair the channels with each vector that has an element for every one."""
    x = shapes[0]
    if x is None or len(x) < 2 or (node.op == "GroupNormalization" and node.version < _VECTORS_OF_CHANNELS):
        return
    yield from ((x[1], vector[0]) for vector in shapes[1:] if vector)


_VECTORS_OF_CHANNELS = 21
"""Since this opset GroupNormalization has an element for every channel, not for every group."""


def _repeated(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    """Pair trailing dimensions with those of operands that are repeated to the shape of the first."""
    x = shapes[0]
    for shape in shapes[1:] if x else ():
        pairs = zip(reversed(x or ()), reversed(shape or ()), strict=False)
        yield from ((own, size) for own, size in pairs if isinstance(size, int) and size > 1)


def _along_axis(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    """Pair an axis with the scales along it."""
    x, scales = shapes[0], shapes[1]
    if x and scales and len(scales) == 1 and scales[0] != 1 and not node.attrs.get("block_size", 0):
        axis = int(node.attrs.get("axis", 1))
        if isinstance(scales[0], int) and -len(x) <= axis < len(x):
            yield x[axis], scales[0]


def _recurrent(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    x, w, r = shapes[:3]
    if not x or not w or not r:
        return
    batch_first = bool(node.attrs.get("layout", 0))
    batch = x[0 if batch_first else 1]
    yield x[2], w[2]
    yield w[0], r[0]
    for state in shapes[5:7]:
        if state:
            yield state[0 if batch_first else 1], batch
            yield state[1 if batch_first else 0], w[0]
            yield state[2], r[2]
    if len(shapes) > 4 and shapes[4]:
        yield shapes[4][0], batch


def _concat(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    known = [shape for shape in shapes if shape]
    for shape in known[1:]:
        axis = int(node.attrs["axis"]) % len(shape)
        yield from (pair for i, pair in enumerate(_pairs(known[0], shape)) if i != axis)


def _reshape(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    x, y = shapes[0], node.output.sizes if node.output.rank is not None else None
    if x is not None and y is not None:
        yield product(x), product(y)


def _split(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    x, given = shapes[0], node.optional_operand(1)
    lengths: Sequence[Size | None] = (node.attrs.get("split") if given is None else given.contents) or ()
    known = [length for length in lengths if length is not None]
    if x and known and len(known) == len(lengths):
        yield x[int(node.attrs.get("axis", 0)) % len(x)], sum(known[1:], start=known[0])


def _scatter(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    if shapes[1] and shapes[2]:
        yield from _pairs(shapes[1], shapes[2])


def _scatter_slices(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    data, indices, updates = shapes[:3]
    if data and indices and updates and isinstance(indices[-1], int):
        yield from _pairs(updates, (*indices[:-1], *data[indices[-1] :]))


def _boxes(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    boxes, scores = shapes[:2]
    if boxes and scores:
        yield from ((boxes[0], scores[0]), (boxes[1], scores[2]), (boxes[2], 4))


def _attention(node: Node, shapes: Sequence[Shape]) -> Iterator[Pair]:
    q, k, v = shapes[:3]
    if q and k and v and len(q) == len(k) == len(v):
        yield from ((q[0], k[0]), (q[0], v[0]), (k[-2], v[-2]))
        if len(q) == _BY_HEAD:
            yield q[3], k[3]


_BY_HEAD = 4
"""Dimensions where heads have one of their own."""

_RULES: dict[str, Callable[[Node, Sequence[Shape]], Iterator[Pair]]] = {
    "MatMul": _product_rule(0, 1),
    "MatMulInteger": _product_rule(0, 1),
    "QLinearMatMul": _product_rule(0, 3),
    "Gemm": _gemm,
    "Conv": _convolution_rule(1),
    "ConvInteger": _convolution_rule(1),
    "QLinearConv": _convolution_rule(3),
    "ConvTranspose": _convolution_rule(1),
    "BatchNormalization": _channels,
    "InstanceNormalization": _channels,
    "GroupNormalization": _channels,
    "LayerNormalization": _repeated,
    "RMSNormalization": _repeated,
    "PRelu": _repeated,
    "QuantizeLinear": _along_axis,
    "DequantizeLinear": _along_axis,
    "RNN": _recurrent,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "Concat": _concat,
    "Reshape": _reshape,
    "Split": _split,
    "ScatterElements": _scatter,
    "Scatter": _scatter,
    "ScatterND": _scatter_slices,
    "Attention": _attention,
    "NonMaxSuppression": _boxes,
}
