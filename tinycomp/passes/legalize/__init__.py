"""Legalize: rewrite the layers that a target refuses into a form that it takes.

>>> from tinycomp import Target, reject
>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> from tinycomp.passes.legalize import DecomposeStrides
>>> npu = Target("npu", legalize=[DecomposeStrides(2)])
>>> @npu.op("Conv", "MaxPool")
... def _(node):
...     return max(node.attrs["strides"]) <= 2 or reject(f"strides {node.attrs['strides']} above 2")
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 2, 12, 12]) -> (%y) {
...   %w: float32[2, 2, 1, 1] = const [1, 2, 3, 4]
...   %y = Conv(%x, %w) {strides = [4, 4]} from ["conv"]
... }''', infer=infer_node_types)
>>> Legalize(npu).run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[1, 2, 12, 12]) -> (%y) {
  %w: float32[2, 2, 1, 1] = const [1.0, 2.0, 3.0, 4.0]
  %conv: float32[1, 2, 6, 6] = Conv@11(%x, %w) {strides = [2, 2]} from ["conv"]
  %y: float32[1, 2, 3, 3] = MaxPool@12(%conv) {kernel_shape = [1, 1], strides = [2, 2]} from ["conv"]
}
>>> print(graph.remarks[0])
decompose-strides: as it stands: strides [4, 4] above 2

Each rewrite is a pass in a file of its own. A target names those that it wants as data, with its limits as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tinycomp.ir.graph import Graph, Node
from tinycomp.lazy import from_modules
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.base import Pass
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.offer_to_target import offer
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.rewrite.edits import excerpt
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Policy, Target, find

if TYPE_CHECKING:
    from tinycomp.passes.legalize.decompose_strides import DecomposeStrides
    from tinycomp.passes.legalize.dense_to_convolutions import DenseToConvolutions
    from tinycomp.passes.legalize.explicit_pads import ExplicitPads
    from tinycomp.passes.legalize.functions_to_tables import FunctionsToTables
    from tinycomp.passes.legalize.move_transposes import MoveTransposes
    from tinycomp.passes.legalize.narrow_weights import NarrowWeights
    from tinycomp.passes.legalize.reductions_to_pools import ReductionsToPools
    from tinycomp.passes.legalize.split_groups import SplitGroups
    from tinycomp.passes.legalize.split_kernels import SplitKernels
    from tinycomp.passes.legalize.steps_to_pools import StepsToPools
    from tinycomp.passes.legalize.transposed_to_convolutions import TransposedToConvolutions
    from tinycomp.passes.legalize.zero_points_to_bias import ZeroPointsToBias
else:
    __getattr__ = from_modules(__name__, {
        "DecomposeStrides": ".decompose_strides",
        "DenseToConvolutions": ".dense_to_convolutions",
        "ExplicitPads": ".explicit_pads",
        "FunctionsToTables": ".functions_to_tables",
        "MoveTransposes": ".move_transposes",
        "NarrowWeights": ".narrow_weights",
        "ReductionsToPools": ".reductions_to_pools",
        "SplitGroups": ".split_groups",
        "SplitKernels": ".split_kernels",
        "StepsToPools": ".steps_to_pools",
        "TransposedToConvolutions": ".transposed_to_convolutions",
        "ZeroPointsToBias": ".zero_points_to_bias",
    })  # fmt: skip

__all__ = [
    "DecomposeStrides", "DenseToConvolutions", "ExplicitPads", "FunctionsToTables", "Legalization", "Legalize",
    "MoveTransposes", "NarrowWeights", "ReductionsToPools", "SplitGroups", "SplitKernels", "StepsToPools",
    "TransposedToConvolutions", "ZeroPointsToBias",
]  # fmt: skip

LEGALISED = "as it stands"
"""The beginning of remarks on layers that have been rewritten."""


@dataclass(frozen=True)
class Legalize(Pass):
    """Rewrite the layers that a target refuses, with the legalising passes that it asks for.

    Targets name these passes as data: ``Target(legalize=[DecomposeStrides(3)])``. A layer is rewritten only if the
    target refuses a part of it and takes all of the result, so that no other target gets the layer in a worse form.
    Single passes are tried first, then all of them one after the other, in the target's order. A remark says why the
    target refused the layer. Passes that work on more than single layers run wherever they can.

    Attributes:
        target: The target, or its name.
        policy: Says which nodes no target may have; the target has a policy of its own as well.
    """

    target: Target | str
    policy: Policy = field(default_factory=Policy)

    def run(self, graph: Graph) -> bool:
        """Rewrite in ``graph`` and its open bodies.

        Raises:
            TargetError: If there is no target of that name, or one of its rules fails.
        """
        target = find(self.target)
        changed = False
        for scope in open_graphs(graph):
            changed |= _Turn(scope, target, self.policy, graph.remarks).run()
        return changed


class _Turn:
    """Legalise for one target in one scope."""

    def __init__(self, graph: Graph, target: Target, policy: Policy, remarks: list[Remark]) -> None:
        self.graph, self.target, self.remarks = graph, target, remarks
        self.passes: Sequence[Legalization] = [each for each in target.legalize if isinstance(each, Legalization)]
        self.barred: Mapping[Node, str] = target.excluded(graph, policy)

    def run(self) -> bool:
        changed = False
        for each in self.passes:
            if each.whole:
                changed |= each.run(self.graph)
        for node in self.graph.nodes:
            if node in self.graph and node not in self.barred:
                changed |= self._legalise(node)
        return changed

    def _legalise(self, node: Node) -> bool:
        """Rewrite the layer of one operator, if that helps."""
        starting = [each for each in self.passes if each.starts_at(node) and not each.whole]
        if not starting:
            return False
        members = starting[0].members(self.graph, node)
        plain = excerpt(self.graph, members)
        plain.set_outputs([plain.values[members[-1].output.name]])
        ways = [[each] for each in starting]
        if len(self.passes) > 1:
            ways.append([each for each in self.passes if not each.whole])
        refusal: str | None = None
        for way in ways:
            trial = plain.clone()
            twin = trial.values[node.output.name].producer
            assert twin is not None
            done = apply(trial, twin, way)
            if not done:
                continue
            if refusal is None:
                refusal = self._refusal(plain.clone(), node)
                if not refusal:
                    return False
            EliminateDeadCode().run(trial)
            if self._refusal(trial, node):
                continue
            sources = tuple(dict.fromkeys(source for each in members for source in each.sources))
            names = " and ".join(done)
            self.remarks.append(
                Remark(Legalize.name, node.sources or sources, self.target.name, names, f"{LEGALISED}: {refusal}")
            )
            apply(self.graph, node, way)
            return True
        return False

    def _refusal(self, graph: Graph, node: Node) -> str:
        """Return why the target does not take all of a node's layer; an empty text if it does."""
        graph.remarks = []
        offer(graph, self.target, Policy())
        left = [node for node in graph.nodes if node.target is None]
        if not left:
            return ""
        about = [remark for remark in graph.remarks if set(node.sources) <= set(remark.sources)]
        matched = [remark for remark in about if remark.progress >= 1]
        own = [remark for remark in about if remark.stage == AnnotateTarget.name]
        remark = next(iter((*matched, *own, *graph.remarks)), None)
        return f"no rule for {left[0].op}" if remark is None else remark.reason


def apply(graph: Graph, node: Node, passes: Sequence[Legalization]) -> list[str]:
    """Rewrite an operator's layer, and the results, by passes in order; return the names of those that applied."""
    done: dict[str, None] = {}
    active = [node]
    for each in passes:
        for one in list(active):
            if one not in graph or not each.starts_at(one):
                continue
            known = set(graph.nodes)
            if each.rewrite(graph, one):
                done[each.name] = None
                active += [new for new in graph.nodes if new not in known]
    return list(done)
