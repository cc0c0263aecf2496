"""AnnotateTarget: claim nodes for targets by operator rules, and record a reason for every refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.lazy import LazyModule
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import has_trait, is_structural
from tinycomp.target import Policy, Target, find_all

if TYPE_CHECKING:
    from tinycomp.quantized import layer as quantized
else:
    quantized = LazyModule("tinycomp.quantized.layer")


@dataclass(frozen=True)
class AnnotateTarget(Pass):
    """Give every node that no target has claimed yet to the first target whose rule accepts it.

    Composites keep the target that owns them. A node that computes nothing (Identity, StopFusion, Dropout at
    inference) follows its neighbours: it is claimed if it lies between two nodes of one target. If, Loop and Scan stay
    on the host unless a rule takes the whole node and no policy keeps a node of its bodies there; the bodies of those
    that stay are annotated on their own. Every refusal becomes a remark.

    Before and after::

        %a = Conv(%x, %w)      ->  %a = Conv(%x, %w) target "npu"
        %b = Identity(%a)      ->  %b = Identity(%a) target "npu"
        %c = Relu(%b)          ->  %c = Relu(%b) target "npu"
        %d = Softmax(%c)       ->  %d = Softmax(%c)

    Attributes:
        targets: Targets, or names of targets, in priority order.
        policy: Says which nodes stay on the host whatever the target; every target has a policy of its own as well.
    """

    targets: Sequence[Target | str]
    policy: Policy = field(default_factory=Policy)

    def run(self, graph: Graph) -> bool:
        """Annotate ``graph`` and its open bodies.

        Raises:
            TargetError: If a target is unknown, or one of its rules fails.
        """
        targets = find_all(self.targets)
        return sum(annotate_for(targets, scope, self.policy, graph.remarks) for scope in open_graphs(graph)) > 0


def annotate_for(
    targets: Sequence[Target],
    graph: Graph,
    policy: Policy,
    remarks: list[Remark],
    withheld: Mapping[Node, str] = MappingProxyType({}),
) -> bool:
    """Annotate one scope.

    ``targets`` are in priority order; ``withheld`` gives nodes that none of them may have, with the reasons.

    Returns:
        Whether anything was claimed or released.
    """
    annotation = _Annotation(graph, targets, policy, remarks, withheld)
    released, claimed, followed = annotation.release_excluded(), annotation.claim(), annotation.follow()
    return released or claimed or followed


def release_parts(graph: Graph, target: str) -> None:
    """Take parts of quantised products from a target that does not take all: whole, the host computes in integers."""
    if not any(node.op == "QuantizeLinear" for node in graph.nodes):
        return
    for node in graph.nodes:
        of_product = node.target is None and has_trait(node, "product")
        layer = quantized.QuantizedLayer.read(node) if of_product else None
        if layer is None or layer.results[0].is_real:
            continue
        for part in layer.nodes:
            if part.target == target and (part.op == "QuantizeLinear" or part.output.users.keys() <= set(layer.nodes)):
                part.target = None


class _Annotation:
    """The annotation of one scope."""

    def __init__(
        self,
        graph: Graph,
        targets: Sequence[Target],
        policy: Policy,
        remarks: list[Remark],
        withheld: Mapping[Node, str],
    ) -> None:
        self.graph = graph
        self.targets = targets
        self.policy = policy
        self.remarks = remarks
        self.withheld = withheld
        self.excluded = self._excluded()

    def _excluded(self) -> dict[str, dict[Node, str]]:
        return {t.name: t.excluded(self.graph, self.policy) for t in self.targets}

    def release_excluded(self) -> bool:
        """Take apart the composites that their target's policy keeps on the host."""
        changed = False
        for target in self.targets:
            for node, reason in self.excluded[target.name].items():
                if node.is_composite and node.target == target.name:
                    self._remark(node, target, "policy", reason)
                    self.graph.inline(node)
                    changed = True
        if changed:
            self.excluded = self._excluded()
        return changed

    def claim(self) -> bool:
        changed = False
        for node in self.graph.nodes:
            if node.target is not None or node.is_composite or node.is_region or node in self.withheld:
                continue
            node.target = next((t.name for t in self.targets if self._accepts(t, node)), None)
            changed |= node.target is not None
        return changed

    def _accepts(self, target: Target, node: Node) -> bool:
        excluded = self.excluded[target.name].get(node)
        if excluded is not None:
            self._remark(node, target, "policy", excluded)
            return False
        rules = target.rules_for(node)
        if not rules and not (target.claims_structural and _passes_on(node)):
            self._remark(node, target, "", f"no rule for {node.qualified_op}")
        for rule in rules:
            reason = rule.refusal(node) or self._excluded_inside(target, node)
            if reason is None:
                return True
            self._remark(node, target, rule.name, reason)
        return False

    def _excluded_inside(self, target: Target, node: Node) -> str | None:
        """Return why the policy keeps a node in a body of this one on the host; None if it keeps none there."""
        waiting = list(node.bodies.values())
        for body in waiting:
            for inner, reason in target.excluded(body, self.policy).items():
                return f"{inner.label}: {reason}"
            waiting += [below for inner in body.nodes for below in inner.bodies.values()]
        return None

    def follow(self) -> bool:
        """Claim the structural nodes on every path between two nodes of one target."""
        loose = [n for n in self.graph.nodes if n.target is None and n not in self.withheld and _passes_on(n)]
        followers = [t for t in self.targets if t.claims_structural]
        names = {t.name for t in followers}
        above: dict[Node, str | None] = {}
        for node in loose:
            producer = _first(node).producer
            above[node] = above.get(producer) or producer.target if producer is not None else None
        below: dict[Node, set[str]] = {}
        for node in reversed(loose):
            below[node] = {u.target for u in node.output.users if u.target is not None}
            below[node] |= {name for u in node.output.users for name in below.get(u, ())}
        changed = False
        for node in loose:
            name = above[node]
            if name in names and name in below[node] and node not in self.excluded[name]:
                node.target = name
                changed = True
            else:
                for target in followers:
                    if not target.rules_for(node) and node not in self.excluded[target.name]:
                        self._remark(node, target, "structural", f"does not lie between two nodes of {target.name}")
        return changed

    def _remark(self, node: Node, target: Target, rule: str, reason: str) -> None:
        self.remarks.append(Remark(AnnotateTarget.name, node.sources, target.name, rule, reason))


def _passes_on(node: Node) -> bool:
    """Tell whether the node only passes its first operand on as its first result."""
    return is_structural(node) and bool(node.inputs) and node.inputs[0] is not None and not _others_used(node)


def _others_used(node: Node) -> bool:
    return any(v.name for v in node.outputs[1:])


def _first(node: Node) -> Value:
    operand = node.inputs[0]
    assert operand is not None, "a structural node has a first operand"
    return operand
