"""MergeComposite: turn each match of a target's patterns into one composite node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass, field, replace
from tinycomp.remark import Remark
from tinycomp.rewrite.composites import Composite, Selection, outline_all
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Policy, Target, find
from tinycomp.target.target import OpRule, composites_for


@dataclass(frozen=True)
class MergeComposite(Pass):
    """Turn each match of a table of patterns into one atomic node.

    Earlier composites win; within one, roots are tried from the outputs back. A match is accepted if its predicates
    hold, none of its nodes is taken, and no value of a non-root node is used outside it. A refused match reserves
    nothing, and the search continues with the next way to match. Cheap pure producers that several matches share are
    copied, so that each match owns one. The free values become the parameters in the order of the pattern; constants
    that ``P.const`` matched are bound in the body. Bodies of If, Loop, Scan and functions are merged in their own
    scope; nodes that a target has claimed are left alone. Every attempt that got past its root and failed becomes a
    remark. If operator rules of the target will decide about the root anyway, an attempt that operators and constants
    rule out is skipped.

    Before and after, for ``P.Relu(P.Conv(x, w))``::

        %c = Conv(%x, %w)      ->  %r = tinycomp.composite::"npu.conv_relu"(%x, %w) target "npu" body = …
        %r = Relu(%c)

    Attributes:
        target: A target, the name of one, or a table of composites.
        policy: Says which nodes must stay out of composites; a target has a policy of its own as well.
    """

    target: Target | str | Sequence[Composite]
    policy: Policy = field(default_factory=Policy)

    def run(self, graph: Graph) -> bool:
        """Merge in ``graph`` and its open bodies; remarks go to ``graph``.

        Raises:
            TargetError: If there is no target of that name.
        """
        target = find(self.target) if isinstance(self.target, str) else self.target
        changed = False
        for scope in open_graphs(graph):
            if isinstance(target, Target):
                made = merge_for(target, scope, target.excluded(scope, self.policy), graph.remarks)
            else:
                made = _merge(scope, target, _no_rules, self.policy.excluded(scope), graph.remarks)
            changed |= bool(made)
        return changed


def merge_for(target: Target, graph: Graph, barred: Mapping[Node, str], remarks: list[Remark]) -> list[Node]:
    """Merge the composites of a target in one scope.

    ``barred`` gives the nodes that the target may not have, with the reasons.

    Returns:
        The composites.
    """
    return _merge(graph, composites_for(target, graph), target.rules_for, barred, remarks)


def _no_rules(node: Node) -> Sequence[OpRule]:
    return ()


def _merge(
    graph: Graph,
    table: Sequence[Composite],
    rules: Callable[[Node], Sequence[OpRule]],
    barred: Mapping[Node, str],
    remarks: list[Remark],
) -> list[Node]:
    """Merge in one scope; a pattern that mentions composites is tried after these have become nodes."""
    made: list[Node] = []
    selection = Selection(graph, barred)
    for composite in table:
        if composite.pattern.mentions_composites and selection.chosen:
            made += outline_all(selection)
            selection = Selection(graph, barred)
        failed = selection.choose(composite, explained=rules)
        remarks += [_remark(composite, why) for root, why in failed if why.progress and root not in selection.taken]
    return made + outline_all(selection)


def _remark(composite: Composite, why: Remark) -> Remark:
    return replace(why, stage=MergeComposite.name, target=composite.target, rule=composite.qualified_name)
