"""Sizes that operators want to be equal.

What a node demands of the sizes of its operands is stated here once, and read in two ways. A model may call the
channels of an image "C" although the weights say that there are 3: :func:`implied_sizes` says so, before anything is
computed. What only a run can decide becomes one of the :func:`conditions` that it has to fulfil. And where sizes have
to be made up, :func:`fitting_sizes` fulfil them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops import OPS, rule
from tinycomp.symbolic import (
    Expression,
    Size,
    bounds,
    evaluate,
    if_zero,
    solved,
    substitute,
    symbol,
)

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


_TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 48, 56, 64, 96, 128, 160, 192, 224, 256, 384, 512)
_ROUNDS = 32


def fitting_sizes(graph: Graph, start: int = 1) -> dict[str, int]:
    """Return a size for every symbol of a graph's inputs with which its nodes work, as far as they state conditions.

    Equations are solved; for what is left, small sizes are tried for one symbol, or for all alike, as long as that
    fulfils more conditions.

    Args:
        graph: A graph; its bounds hold where they are assumed (:func:`tinycomp.symbolic.assuming`).
        start: The size of symbols that nothing is demanded of.
    """
    symbols = {name for value in graph.inputs for part in _sizes_in(value) for name in part.symbols}
    implied = {name: value for name, value in implied_sizes(graph).items() if name in symbols}
    free = sorted(symbols - implied.keys())
    stated = {substitute(value, implied) for node in _surely_run(graph) for value, _ in conditions(node)}
    wanted = [value for value in stated if isinstance(value, Expression) and value.symbols <= symbols]
    ranges = {name: bounds(symbol(name)) for name in free}

    def within(name: str, number: int) -> int:
        low, high = ranges[name]
        return max(number, low or 0) if high is None else max(min(number, high), low or 0)

    def broken(sizes: Mapping[str, int]) -> list[Expression]:
        return [value for value in wanted if _is_broken(value, sizes)]

    sizes = {name: within(name, start) for name in free}
    for _ in range(_ROUNDS):
        left = broken(sizes)
        if not left:
            break
        names = sorted(left[0].symbols & sizes.keys())
        concerned = frozenset[str]().union(*(value.symbols for value in left)) & sizes.keys()
        trials = [{**sizes, name: within(name, number)} for number in _TRIED for name in names]
        trials += [sizes | {name: within(name, number) for name in concerned} for number in _TRIED]
        best = min(trials, key=lambda trial: len(broken(trial)))
        if len(broken(best)) >= len(left):
            break
        sizes = best
    return sizes | {name: _evaluated(value, sizes, start) for name, value in implied.items()}


def _sizes_in(value: Value) -> list[Expression]:
    parts = [*(value.sizes or ()), *(value.contents or ())]
    return [part for part in parts if isinstance(part, Expression)]


def _is_broken(value: Expression, sizes: Mapping[str, int]) -> bool:
    try:
        return evaluate(value, sizes) != 0
    except (KeyError, ZeroDivisionError):
        return True


def _evaluated(value: Size, sizes: Mapping[str, int], default: int) -> int:
    try:
        return value if isinstance(value, int) else evaluate(value, sizes)
    except KeyError:
        return default


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


def _repeated(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    """Demand that operands can be repeated to the shape of the first."""
    x = shapes[0]
    for shape in shapes[1:] if x else ():
        for own, size in zip(reversed(x or ()), reversed(shape or ()), strict=False):
            yield Demand(own, size, or_one=not isinstance(size, int) or size == 1)


def _channels(node: Node, shapes: _Shapes) -> Iterator[Demand]:
    """Demand of every vector an element for each channel."""
    x = shapes[0]
    if x is None or len(x) < 2 or (node.op == "GroupNormalization" and node.version < _VECTORS_OF_CHANNELS):
        return
    yield from (Demand(x[1], dim) for dim in chain.from_iterable(shape or () for shape in shapes[1:]))


_VECTORS_OF_CHANNELS = 21
"""Since this opset GroupNormalization has an element for every channel, not for every group."""


_RULES: Mapping[str, _Rule] = {
    "BatchNormalization": _channels,
    "GroupNormalization": _channels,
    "InstanceNormalization": _channels,
    "LayerNormalization": _repeated,
    "PRelu": _repeated,
    "RMSNormalization": _repeated,
}
