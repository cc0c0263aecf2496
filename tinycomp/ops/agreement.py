"""What the rules of operators demand of sizes, read in three ways.

A model may call the channels of an image "C" although the weights say that there are 3: :func:`implied_sizes` says so,
before anything is computed. What only a run can decide becomes one of the :func:`conditions` that it has to fulfil. And
where sizes have to be made up, :func:`fitting_sizes` fulfil them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, Type
from tinycomp.ops import OPS
from tinycomp.ops.body_types import retype
from tinycomp.ops.rule import Ruled, ruled
from tinycomp.symbolic import Expression, Size, bounds, dimension, evaluate, size, solved, substitute, symbol

Condition = tuple[Size, str]
"""A number that must be 0 in every run, and what else is wrong."""


def conditions(node: Node) -> list[Condition]:
    """Return what the sizes of a node's operands must fulfil, as far as it depends on a run."""
    return [(demand.value, demand.text) for demand in _ruled(node).demands]


def elements_read(node: Node) -> list[int]:
    """Return the operands of a node whose elements its rule has asked for."""
    return sorted(_ruled(node).elements_read)


def implied_sizes(graph: Graph) -> dict[str, Size]:
    """Return the symbols that nodes of a graph want to be numbers or other symbols.

    Nodes in bodies are among them, except for those in branches: one that is not taken wants nothing.
    """
    return _solved({node: node for node in _surely_run(graph)})[0]


def settle_sizes(graph: Graph, certain: Graph) -> None:
    """Give the inputs of a graph the sizes that its nodes want them to have, and infer again what is behind them.

    The graph keeps which node wants it, and why. What a body of control flow wants does not count, because it may never
    run, nor what nodes want of which nothing is used.

    Args:
        graph: The graph.
        certain: The same graph, with nothing in it that a run may refute.
    """
    implied, reasons = _solved(_needed(certain))
    types = [_with_sizes(value.type, implied) for value in graph.inputs]
    settled = {}
    for value in graph.inputs:
        names = {name for size in _sizes_in(value) for name in size.symbols if name in implied}
        if names:
            settled[value.name] = "; ".join(reasons[name] for name in sorted(names))
    if settled:
        graph.settled |= settled
        retype(graph, types)


def _with_sizes(type_: Type, sizes: Mapping[str, Size]) -> Type:
    """Return a type with sizes for some symbols, and without known elements; one that is no tensor stays."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    dims = [None if dim is None else dimension(substitute(size(dim), sizes)) for dim in type_.shape]
    return TensorType(type_.dtype, tuple(dims), type_.layout)


def _solved(nodes: Mapping[Node, Node]) -> tuple[dict[str, Size], dict[str, str]]:
    """Return the symbols that nodes want to be numbers or other symbols, and why, in the names that stand for nodes."""
    known: dict[str, Size] = {}
    reasons: dict[str, str] = {}
    for node, named in nodes.items():
        for demand in _ruled(node).demands:
            if demand.equal is None:
                continue
            equal = solved(*[substitute(side, known) for side in demand.equal])
            if equal is not None:
                name, size = equal
                known = {key: substitute(value, {name: size}) for key, value in known.items()} | {name: size}
                reasons[name] = f"{named.label} ({named.op}): {demand.text}"
    return known, reasons


def _needed(graph: Graph) -> dict[Node, Node]:
    """Return the nodes of which a result is used, those of functions too, each with that of the graph."""
    found: dict[Node, Node] = {}
    calls: list[tuple[Graph, Sequence[Value], Node | None]] = [(graph, graph.outputs, None)]
    for each, results, caller in calls:  # which grows meanwhile
        needed = {value.producer for value in results}
        for node in reversed(each.nodes):
            if node in needed:
                needed.update(value.producer for value in node.inputs if value is not None)
        for node in [node for node in each.nodes if node in needed]:
            found[node] = caller or node
            if node.is_call:
                used = [inner for inner, v in zip(node.body.outputs, node.outputs, strict=True) if each.use_count(v)]
                calls.append((node.body, used, found[node]))
    return found


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


def _ruled(node: Node) -> Ruled:
    """Return what a node's rule says and demands."""
    operator = OPS.of(node.op, node.domain)
    return Ruled(()) if operator is None or operator.infer is None else ruled(node, operator.infer)
