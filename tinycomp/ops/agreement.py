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
from tinycomp.symbolic import Expression, Size, broadcast, if_zero, solved, substitute

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
    """Return the symbols that nodes of a graph want to be numbers or other symbols.

    Nodes in bodies are among them, except for those in branches: one that is not taken wants nothing.
    """
    known: dict[str, Size] = {}
    for node in _surely_run(graph):
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


def _surely_run(graph: Graph) -> Iterator[Node]:
    graphs = [graph]
    for each in graphs:  # which grows meanwhile
        for node in each.nodes:
            yield node
            if node.op != "If" or node.domain:
                graphs.extend(node.bodies.values())


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


def _recurrent(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    x, w, r = shapes[:3]
    if not x or not w or not r:
        return
    batch_first = bool(node.attrs.get("layout", 0))
    batch = x[0 if batch_first else 1]
    yield Demand(x[2], w[2])
    yield Demand(w[0], r[0])
    for state in shapes[5:7]:
        if state:
            yield Demand(state[0 if batch_first else 1], batch)
            yield Demand(state[1 if batch_first else 0], w[0])
            yield Demand(state[2], r[2])
    if len(shapes) > 4 and shapes[4]:
        yield Demand(shapes[4][0], batch)


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
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("Scatter", "ScatterElements"), _scatter),
    "NonMaxSuppression": _boxes,
    "QLinearConv": _convolution_rule(3),
    "ScatterND": _scatter_slices,
}
