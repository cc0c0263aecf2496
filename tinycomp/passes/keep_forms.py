"""KeepForms: claim nodes in the form that the model has, where their target would not take the simplified form.

>>> from tinycomp.ir.text.parser import parse_graph
>>> npu = Target("npu")
>>> npu.accept("Sum", "Relu")
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[2], %y: float32[2]) -> (%r) {
...   %s: float32[2] = Sum(%x, %y)
...   %f: float32[2] = Sum(%s, %x, %y)
...   %r: float32[2] = Relu(%f)
... }''')
>>> KeepForms([npu]).run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[2], %y: float32[2]) -> (%r) {
  %s: float32[2] = Sum@13(%x, %y) target "npu"
  %f: float32[2] = Sum@13(%s, %x, %y)
  %r: float32[2] = Relu@14(%f)
}

Simplification would turn a Sum of two operands into an Add, which this target does not take. Later passes claim the
other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.base import Pass
from tinycomp.passes.offer_to_target import offer
from tinycomp.passes.simplify import PLAIN, Simplify, affine, all_rules, indexing, movement, no_ops
from tinycomp.records import dataclass, field
from tinycomp.rewrite import Composite, RewriteRule, Rule
from tinycomp.rewrite.composites import Selection, outline_all
from tinycomp.rewrite.edits import excerpt
from tinycomp.rewrite.matcher import Match
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Policy, Target, find_all


def _heads(*rules: Rule) -> frozenset[str]:
    return frozenset(name for each in rules for _, name in each.heads or ())


_ABSORBING = frozenset(affine.ABSORBERS)
_ABSORBED = _heads(affine.merge_batch_norm, affine.merge_per_channel)
_VIEWS = frozenset(named("view"))
_SPELLED = _VIEWS - {"Reshape"}
_SINGLE = _SPELLED | _heads(
    no_ops.sum_to_add, no_ops.name_type, movement.transpose_to_reshape, indexing.gather_all_to_reshape,
    indexing.gather_elements_to_slices, indexing.scatter_elements_to_slices,
)  # fmt: skip
"""Operators that simplification replaces by others, whatever stands around them."""
_PAIRS: Sequence[tuple[frozenset[str], frozenset[str]]] = (
    (_ABSORBED, _ABSORBING),
    (frozenset({"AveragePool", "Conv", "MaxPool"}), frozenset({"Pad"})),
    (frozenset(named("clamp")), frozenset({"Clip"})),
    (frozenset(named("product")), frozenset({"Cast"})),
    (frozenset({"Gemm"}), frozenset({"Reshape"})),
    (frozenset({"QuantizeLinear"}), frozenset({"Concat", "DequantizeLinear", "Expand", "Gather", "MaxPool", "Resize",
                                               "Slice", "Split", "Tile"}) | _VIEWS),
)  # fmt: skip
"""Pairs of an operator and a producer of its operand that simplification replaces by other operators."""
_GROUPS = tuple(rule for rule in all_rules() if isinstance(rule, RewriteRule) and rule not in PLAIN)


@dataclass(frozen=True)
class KeepForms(Pass):
    """Claim matches and nodes that a target takes, if it would not take them after simplification.

    The description of a target names the forms that it wants. Each match of its composites, and each node that its
    operator rules accept, is simplified by itself if a rule of :class:`~tinycomp.passes.simplify.Simplify` would
    replace its operators. If neither this target nor an earlier one takes all of the result, this one claims the
    original now, and simplification leaves it alone. Targets that are ``canonical`` do not need the pass.

    Before and after, for ``P.Relu(P.Add(P.Conv(x, w), b))`` and a target that takes no Conv with a bias::

        %c = Conv(%x, %w)      ->  %r = tinycomp.composite::"npu.conv_add_relu"(%x, %w, %b) target "npu" body = …
        %a = Add(%c, %b)
        %r = Relu(%a)

    Attributes:
        targets: Targets, or names of targets, in priority order.
        policy: A policy that applies beside those of the targets.
    """

    targets: Sequence[Target | str]
    policy: Policy = field(default_factory=Policy)

    def run(self, graph: Graph) -> bool:
        """Claim in ``graph`` and its open bodies.

        Raises:
            TargetError: If a target is unknown, or one of its rules fails.
        """
        targets = find_all(self.targets)
        changed = False
        for scope in open_graphs(graph):
            for place, target in enumerate(targets):
                if wishes(target):
                    changed |= _Keeper(scope, targets[: place + 1], self.policy).run()
        return changed


def wishes(target: Target) -> bool:
    """Tell whether the description of a target names forms that simplification may replace."""
    if target.canonical:
        return False
    ops = {name for domain, name in target.rules if not domain and name != "*"}
    return bool(ops & _SINGLE) or _holds_pair(ops) or any(map(_may_be_hidden, target.composites))


def _may_be_hidden(composite: Composite) -> bool:
    ops = {name for domain, name in composite.pattern.operators if not domain}
    return bool(ops & _SINGLE) or _holds_pair(ops)


def _holds_pair(ops: set[str]) -> bool:
    return any(ops & above and ops & below for above, below in _PAIRS)


class _Keeper:
    """Keep the forms that one target wants, in one scope; ``targets`` are the earlier ones and, last, the target."""

    def __init__(self, graph: Graph, targets: Sequence[Target], policy: Policy) -> None:
        self.graph = graph
        self.targets = targets
        self.target = targets[-1]
        self.barred: Mapping[Node, str] = self.target.excluded(graph, policy)

    def run(self) -> bool:
        kept = self._keep_composites()
        for nodes in self._groups():
            if all(map(self._accepts, nodes)) and self._is_lost(nodes):
                kept = True
                for node in nodes:
                    node.target = self.target.name
        return kept

    def _keep_composites(self) -> bool:
        selection, kept = Selection(self.graph, self.barred), Selection(self.graph, self.barred)
        for composite in filter(_may_be_hidden, self.target.composites):
            if not composite.pattern.mentions_composites:
                selection.choose(composite, explained=lambda root: True)
        for chosen in selection.chosen:
            if self._is_lost(chosen.match.nodes, spelled=True):
                kept.take(chosen.composite, chosen.match)
        return bool(outline_all(kept))

    def _groups(self) -> Iterable[Sequence[Node]]:
        """Yield nodes that simplification may replace."""
        for node in self.graph.nodes:
            if node.domain or node.target is not None:
                continue
            if node.op in _SINGLE:
                yield (node,)
            before = node.inputs[0].producer if node.op in _ABSORBED and node.inputs[0] is not None else None
            if before is not None and before.op in _ABSORBING:
                yield before, node
            for rule in _GROUPS:
                if rule.pattern.can_start_at(node):
                    match = rule.pattern.match(node, self.graph)
                    if isinstance(match, Match) and len(match.matched) > 1:
                        yield match.nodes

    def _accepts(self, node: Node) -> bool:
        if node.target is not None or node in self.barred:
            return False
        return any(rule.refusal(node) is None for rule in self.target.rules_for(node))

    def _is_lost(self, nodes: Sequence[Node], spelled: bool = False) -> bool:
        """Tell whether none of the targets would take the nodes after simplification.

        Args:
            nodes: Nodes of the graph.
            spelled: Whether the nodes match a pattern of the last target; if that asks for a Flatten, for example, it
                does not want the equal Reshape that simplification makes, although it would match.
        """
        simplified = excerpt(self.graph, nodes)
        if not Simplify().run(simplified):
            return False
        others = self.targets[:-1] if spelled and any(node.op in _SPELLED for node in nodes) else self.targets
        return not any(_takes(each, simplified.clone()) for each in others)


def _takes(target: Target, graph: Graph) -> bool:
    offer(graph, target, Policy())
    return all(node.target is not None for node in graph.nodes)
