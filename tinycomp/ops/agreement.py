"""Sizes that operators want to be equal.

What a node demands of the sizes of its operands is stated here once, and read in two ways. A model may call the
channels of an image "C" although the weights say that there are 3: :func:`implied_sizes` says so, before anything is
computed. And what only a run can decide becomes one of the :func:`conditions` that it has to fulfil.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops import OPS, rule
from tinycomp.symbolic import Expression, Size, broadcast, has_elements, if_zero, product, solved, substitute

Condition = tuple[Size, str]
"""A number that must be 0 in every run, and what else is wrong."""


@dataclass(slots=True)
class Demand:
    """Say that two sizes have to be equal.

    Attributes:
        a: The one.
        b: The other.
        or_one: Whether either may also be 1.
        text: What is wrong where they are not; by default that they are different.
    """

    a: Size
    b: Size
    or_one: bool = False
    text: str = ""

    @property
    def is_decided(self) -> bool:
        """Whether both are numbers, so that no run decides anything."""
        return isinstance(self.a, int) and isinstance(self.b, int)

    @property
    def condition(self) -> Condition:
        """Return the same as a number that must be 0."""
        if self.or_one:
            text = f"{self.a} and {self.b} are different, and neither is 1"
            return if_zero(self.a - 1, 0, if_zero(self.b - 1, 0, self.a - self.b)), self.text or text
        return self.a - self.b, self.text or f"{self.a} and {self.b} are different"


_Shapes = Sequence[tuple[Size, ...] | None]
_Rule = Callable[[Node, _Shapes], Iterable[Demand]]


def conditions(node: Node) -> list[Condition]:
    """Return what the sizes of a node's operands must fulfil, as far as it depends on a run."""
    by_rule = _stated(node)
    if by_rule is not None:
        return [(demand.value, demand.text) for demand in by_rule]
    stated = [demand.condition for demand in _demands(node) if not demand.is_decided]
    return [(value, text) for value, text in stated if isinstance(value, Expression)]


def implied_sizes(graph: Graph) -> dict[str, Size]:
    """Return the symbols that nodes of a graph, bodies included, want to be numbers or other symbols."""
    known: dict[str, Size] = {}
    for _, node in graph.walk():
        by_rule = _stated(node)
        pairs = [demand.equal for demand in by_rule or () if demand.equal is not None]
        if by_rule is None:
            pairs = [(each.a, each.b) for each in _demands(node) if not each.is_decided and not each.or_one]
        for a, b in pairs:
            equal = solved(substitute(a, known), substitute(b, known))
            if equal is not None:
                name, size = equal
                known = {key: substitute(value, {name: size}) for key, value in known.items()} | {name: size}
    return known


def _stated(node: Node) -> list[rule.Demand] | None:
    """Return the conditions of a node's rule; None for an operator that has none."""
    operator = OPS.of(node.op, node.domain)
    if operator is None or operator.infer is None:
        return None
    facts = rule.Facts(node)
    operator.infer(facts)
    return facts.demands


def _demands(node: Node) -> Iterable[Demand]:
    old = None if node.domain else _RULES.get(node.op)
    if old is None:
        return ()
    return old(node, [None if value is None or value.rank is None else value.sizes for value in node.inputs])


def _each(a: Iterable[Size], b: Iterable[Size]) -> Iterator[Demand]:
    return (Demand(x, y) for x, y in zip(a, b, strict=False))


def _broadcast(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    return _all_fit([shape for shape in shapes if shape is not None])


def _all_fit(shapes: Sequence[tuple[Size, ...]]) -> Iterator[Demand]:
    for axis in range(1, 1 + max(map(len, shapes), default=0)):
        dims = [shape[-axis] for shape in shapes if len(shape) >= axis]
        whole = dims[0]
        for dim in dims[1:]:
            yield Demand(whole, dim, or_one=True)
            whole = broadcast(whole, dim)


def _repeated(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    """Demand that operands can be repeated to the shape of the first."""
    x = shapes[0]
    for shape in shapes[1:] if x else ():
        for own, size in zip(reversed(x or ()), reversed(shape or ()), strict=False):
            yield Demand(own, size, or_one=not isinstance(size, int) or size == 1)


def _convolution_rule(weights: int) -> _Rule:
    def rule(node: Node, shapes: _Shapes) -> Iterator[Demand]:
        x, w = shapes[0], shapes[weights]
        if x and w:
            yield Demand(x[1], w[0] if node.op == "ConvTranspose" else w[1] * int(node.attrs.get("group", 1)))

    return rule


def _channels(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    """Demand of every vector an element for each channel."""
    x = shapes[0]
    if x is None or len(x) < 2 or (node.op == "GroupNormalization" and node.version < _VECTORS_OF_CHANNELS):
        return
    yield from (Demand(x[1], dim) for dim in chain.from_iterable(shape or () for shape in shapes[1:]))


_VECTORS_OF_CHANNELS = 21
"""Since this opset GroupNormalization has an element for every channel, not for every group."""


def _concat(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    known = [shape for shape in shapes if shape]
    for shape in known[1:]:
        axis = int(node.attrs["axis"]) % len(shape)
        yield from (each for i, each in enumerate(_each(known[0], shape)) if i != axis)


def _reshape(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    before, after = shapes[0], node.output.sizes if node.output.rank is not None else None
    if before is not None and after is not None:
        asked = node.operand(1).contents if node.op == "Reshape" and has_elements(*after) else after
        pair = (f"[{', '.join(map(str, sizes))}]" for sizes in (before, asked or after))
        text = f"{' and '.join(pair)} have different numbers of elements"
        yield Demand(product(before), product(after), text=text)


def _squeeze(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    before, after = shapes[0], node.output.sizes if node.output.rank is not None else None
    if before is not None and after is not None:
        text = f"a dimension of [{', '.join(map(str, before))}] is not 1"
        yield Demand(product(before), product(after), text=text)


def _split(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    x, given = shapes[0], node.optional_operand(1)
    lengths: Sequence[Size | None] = (node.attrs.get("split") if given is None else given.contents) or ()
    if not lengths:
        axis = int(node.attrs.get("axis", 0))
        lengths = [None if v.rank is None or v.sizes is None else v.sizes[axis] for v in node.outputs]
    known = [length for length in lengths if length is not None]
    if x and known and len(known) == len(lengths):
        whole, total = x[int(node.attrs.get("axis", 0)) % len(x)], sum(known[1:], start=known[0])
        yield Demand(whole, total, text=f"the parts have {total} elements together, not {whole}")


def _expand(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    wanted = node.operand(1).contents
    if shapes[0] is not None and wanted is not None:
        known = tuple([element for element in wanted if element is not None])
        if len(known) == len(wanted):
            yield from _all_fit([shapes[0], known])


def _scatter(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    if shapes[1] and shapes[2]:
        yield from _each(shapes[1], shapes[2])


def _scatter_slices(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    data, indices, updates = shapes[:3]
    if data and indices and updates and isinstance(indices[-1], int):
        yield from _each(updates, (*indices[:-1], *data[indices[-1] :]))


def _boxes(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    boxes, scores = shapes[:2]
    if boxes and scores:
        yield from _each((boxes[0], boxes[1], boxes[2]), (scores[0], scores[2], 4))


_RULES: Mapping[str, _Rule] = {
    "StringConcat": _broadcast,
    **dict.fromkeys(("LayerNormalization", "PRelu", "RMSNormalization"), _repeated),
    **dict.fromkeys(("BatchNormalization", "GroupNormalization", "InstanceNormalization"), _channels),
    **dict.fromkeys(("Conv", "ConvInteger", "ConvTranspose"), _convolution_rule(1)),
    **dict.fromkeys(("Scatter", "ScatterElements"), _scatter),
    "Concat": _concat,
    "Expand": _expand,
    "NonMaxSuppression": _boxes,
    "QLinearConv": _convolution_rule(3),
    "Reshape": _reshape,
    "ScatterND": _scatter_slices,
    "Split": _split,
    "Squeeze": _squeeze,
}
