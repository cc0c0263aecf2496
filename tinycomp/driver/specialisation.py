"""Concrete sizes for a model with symbolic ones: types anew, not the model anew.

What the passes decided for all sizes holds for each: the regions stay, and what is left to do is to infer the types,
to fold what followed from sizes alone, and to lower. Only where concrete sizes would let a target take more than it
could promise for all of them is the model partitioned again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tinycomp.driver.lowering import is_static
from tinycomp.frontend.quantized_definition import take_apart
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import substitute
from tinycomp.ops.typing import retype
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.expand_functions import expands
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.rewrite import open_graphs
from tinycomp.target import Target


def has_symbols(graph: Graph) -> bool:
    """Tell whether any input of the graph has a named dimension."""
    return any(isinstance(d, str) for v in graph.inputs for d in v.shape or ())


def with_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return a copy of ``graph`` for concrete sizes of its symbols.

    Raises:
        TypeInferenceError: If the model does not work for these sizes.
    """
    concrete = graph.clone()
    retype(concrete, [substitute(v.type, sizes) for v in concrete.inputs])
    return concrete


def partitioned_with_sizes(partitioned: Graph, sizes: Mapping[str, int], targets: Sequence[Target]) -> Graph | None:
    """Return a partitioned graph for concrete sizes; None if a new partition would be better.

    Args:
        partitioned: The graph for all sizes; it stays as it is.
        sizes: The size of every symbol.
        targets: The targets that it was partitioned for.

    Raises:
        TypeInferenceError: If the model does not work for these sizes.
    """
    concrete = with_sizes(partitioned, sizes)
    _fold(concrete)
    if not all(is_static(node) for _, node in concrete.walk() if node.is_region):
        return None
    before = {name for node in _left(partitioned) if _wanted(node, targets) for name in _names(node)}
    gained = any(_wanted(node, targets) and before.isdisjoint(_names(node)) for node in _left(concrete))
    return None if gained else concrete


def _fold(graph: Graph) -> None:
    """Fold what followed from sizes alone, regions that compute nothing else included."""
    while any(_left(graph)):
        if FoldConstants(keep_quantized=False).run(graph):
            EliminateDeadCode().run(graph)
            retype(graph, [v.type for v in graph.inputs])  # regions read shapes that were not known before
        constant = [n for n in graph.nodes if n.is_region and all(v is not None and v.is_const for v in n.inputs)]
        if not constant:
            return
        for region in constant:
            _open(graph, region)


def _open(graph: Graph, node: Node) -> None:
    """Put the contents of a region into its place, claimed by nobody."""
    waiting = graph.inline(node)
    while waiting:
        inner = waiting.pop()
        if inner.is_composite:
            waiting += take_apart(graph, inner)
        else:
            inner.target = None


def _left(graph: Graph) -> Iterator[Node]:
    """Yield the nodes that no target has taken."""
    return (n for each in open_graphs(graph) for n in each.nodes if n.target is None and not n.is_composite)


def _wanted(node: Node, targets: Sequence[Target]) -> bool:
    """Tell whether a target's operator rules would take the node, or all of what ONNX defines it by."""
    if any(rule.refusal(node) is None for target in targets for rule in target.rules_for(node)):
        return True
    return expands(node, targets)


def _names(node: Node) -> list[str]:
    return [value.name for value in node.used_outputs()]
