"""ExpandFunctions: replace an operator by its ONNX definition, where a target takes all of the definition.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> npu = Target("npu")
>>> npu.accept("Sigmoid", "Mul")
>>> graph = parse_graph('''
... graph @main opset {"" = 24} (%x: float32[2, 3]) -> (%y) {
...   %y: float32[2, 3] = Swish(%x) {alpha = 2.0} from ["gate"]
... }''', infer=infer_node_types)
>>> ExpandFunctions((npu,)).run(graph)
True
>>> print(graph)
graph @main opset {"" = 24} (%x: float32[2, 3]) -> (%y) {
  %Alpha: float32[] = const 2.0
  %AlphaMulX: float32[2, 3] = Mul@14(%x, %Alpha) target "npu" from ["gate"]
  %SigmoidAlphaMulX: float32[2, 3] = Sigmoid@13(%AlphaMulX) target "npu" from ["gate"]
  %y: float32[2, 3] = Mul@14(%x, %SigmoidAlphaMulX) target "npu" from ["gate"]
}

About sixty operators have such a definition, from Swish to Attention. The definition depends on the types and
attributes of the node; what follows from them alone is folded before any target is asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence

from tinycomp.errors import TinycompError
from tinycomp.frontend.definition import defines, definition, is_defined_by_others
from tinycomp.frontend.quantized_layer import is_quantized_product, layer_definition
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import Type, refine
from tinycomp.ops import OPS
from tinycomp.ops.agreement import conditions, elements_read
from tinycomp.ops.body_types import CONTROL_FLOW
from tinycomp.ops.elements import is_readable
from tinycomp.ops.rule import stating
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.base import Pass
from tinycomp.passes.eliminate_common_subexpressions import EliminateCommonSubexpressions
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.passes.simplify import Simplify
from tinycomp.records import dataclass, field, replace
from tinycomp.remark import Remark
from tinycomp.rewrite.composites import outline_whole
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Policy, Target, find_all
from tinycomp.target.target import composites_for

_DOMAIN = "tinycomp.definition"
_TIDY: tuple[Pass, ...] = (
    FoldConstants(), Simplify(), FoldConstants(), EliminateCommonSubexpressions(), EliminateDeadCode()
)  # fmt: skip
_SETTLE: tuple[Pass, ...] = (FoldConstants(keep_quantized=False), EliminateDeadCode())


@dataclass(frozen=True)
class ExpandFunctions(Pass):
    """Replace a node that no target takes by the ONNX definition of its operator, if one target takes all of that.

    Otherwise the node stays whole, because one kernel of the host for the whole operator is better than one per part.
    The parts may have definitions themselves, which are expanded as far as the target needs it. All parts keep the name
    of the node in the model, and the target that takes them. The pass runs after the merging of composites, so that no
    pattern loses a node to its definition; the patterns of the target are tried on the definition as well. Operators
    with the trait ``"inexact_definition"`` stay whole. QLinearConv and QLinearMatMul either become one composite of a
    quantised layer or stay whole, because the parts of such a layer would add floats instead of integers.

    Attributes:
        targets: Targets, or names of targets, in priority order.
        policy: Says which nodes stay on the host whatever the target; every target has a policy of its own as well.
    """

    targets: Sequence[Target | str]
    policy: Policy = field(default_factory=Policy)

    def run(self, graph: Graph) -> bool:
        """Expand in ``graph`` and its open bodies; a remark says what kept a definition from a target.

        Raises:
            TargetError: If a target is unknown, or one of its rules fails.
        """
        targets = find_all(self.targets)
        expanded = 0
        for scope in reversed([*open_graphs(graph)]):  # inner ones first: what a body holds decides over its operator
            if any(map(_may_expand, scope.nodes)):
                barred = {t.name: t.excluded(scope, self.policy) for t in targets}
                expanded += expand_for(targets, scope, barred, graph.remarks)
        return expanded > 0


def expand_for(
    targets: Sequence[Target], graph: Graph, barred: Mapping[str, Mapping[Node, str]], remarks: list[Remark]
) -> int:
    """Expand, in one scope, the nodes that no target takes and whose definition one of them takes.

    ``targets`` are in priority order; ``barred`` gives, by target, the nodes that it may not have.

    Returns:
        How many nodes were expanded.
    """
    expanded = 0
    refused: dict[Hashable, list[Remark]] = {}
    bodies: dict[Hashable, Graph] = {}
    for node in [n for n in graph.nodes if _may_expand(n) and not _taken(n, targets)]:
        allowed = [t for t in targets if node not in barred[t.name]]
        key = _likeness(node, allowed)
        known = None if key is None else refused.get(key)
        if known is not None:
            remarks += [replace(remark, sources=node.sources) for remark in known]
            continue
        before = len(remarks)
        body = bodies[key].clone() if key in bodies else _expansion(node, allowed, remarks)
        if body is not None:
            if key is not None and key not in bodies and not any(v and v.is_const for v in node.inputs):
                bodies[key] = body.clone()  # nodes of a constant each are seldom alike
            _state_conditions(graph, node, body, targets)
            splice(graph, node, body)
            expanded += 1
        elif key is not None:
            refused[key] = remarks[before:]
    return expanded


def _likeness(node: Node, targets: Sequence[Target]) -> Hashable:
    """Return a key shared by nodes whose definitions are the same, or refused for the same reasons; None if none is."""
    plain = (bool, int, float, str, bytes, list)
    if node.bodies or not all(isinstance(value, plain) for value in node.attrs.values()):
        return None
    operands = tuple(None if v is None else (v.type, None if v.const is None else id(v.const)) for v in node.inputs)
    same = tuple(node.inputs.index(v) for v in node.inputs)
    names = tuple(t.name for t in targets)
    results = tuple((bool(v.name), v.type) for v in node.outputs)
    return node.domain, node.op, node.version, repr(sorted(node.attrs.items())), operands, same, results, names


def _may_expand(node: Node) -> bool:
    if node.target is None and defines(node):
        return True
    if node.target is not None or not (is_quantized_product(node) or is_defined_by_others(node)):
        return False
    record = OPS.find(node.op, node.domain, node.version)
    return record is None or "inexact_definition" not in record.traits


def _taken(node: Node, targets: Sequence[Target]) -> bool:
    return any(rule.refusal(node) is None for target in targets for rule in target.rules_for(node))


def _expansion(node: Node, targets: Sequence[Target], remarks: list[Remark]) -> Graph | None:
    """Return the definition of ``node``, all of it claimed by the first target that takes every part, or None."""
    for target in targets:
        layer = layer_definition(node) if is_quantized_product(node) else None
        body, reason = (None, "") if layer is None else _composed(layer, node, target)
        if body is None and (layer is None or is_defined_by_others(node)):
            body, reason = _defined(node)
            if body is not None:
                body, reason = _claimed(body, target, may_repeat=bool(node.bodies) or not _has_kernel(node))
        if body is not None:
            return body
        remarks.append(Remark(ExpandFunctions.name, node.sources, target.name, f"definition of {node.op}", reason))
    return None


def _composed(layer: Graph, node: Node, target: Target) -> tuple[Graph | None, str]:
    """Return a quantised layer as one composite of ``target``, or the reason why it is not one."""
    if outline_whole(layer, composites_for(target, layer)) is None:
        MergeComposite(target).run(layer)  # also records the reasons
    composite = layer.outputs[0].producer
    if composite is None or not composite.is_composite or len(layer) > 1:
        closest = max(layer.remarks, key=lambda r: r.progress, default=None)
        return None, "no composite takes it" if closest is None else f"{closest.rule}: {closest.reason}"
    return layer, ""


def _defined(node: Node) -> tuple[Graph | None, str]:
    """Return ONNX's definition of ``node``, or the reason why there is none."""
    try:
        return definition(node), "it covers no operands of these types and sizes"
    except TinycompError as error:
        return None, f"ONNX's definition does not fit the operands: {error.message}"


def _has_kernel(node: Node) -> bool:
    """Tell whether the host has a numpy kernel for the operator."""
    record = OPS.find(node.op, node.domain, node.version)
    return record is not None and record.kernel is not None


def _claimed(body: Graph, target: Target, *, may_repeat: bool) -> tuple[Graph | None, str]:
    """Return a definition with every part claimed by ``target``, or the reason why it does not take one."""
    while True:
        for step in _TIDY:
            step.run(body)
        trial = body.clone()
        trial.remarks = []
        for step in (MergeComposite(target), *_SETTLE, AnnotateTarget((target,))):
            step.run(trial)
        left = [node for node in trial.nodes if node.target is None]
        repeated = next((node for node in trial.nodes if node.op in CONTROL_FLOW and not node.domain), None)
        if repeated is not None and not may_repeat:  # the operator itself is faster anywhere
            return None, f"{repeated.op}: the definition goes from element to element"
        if not left:
            return trial, ""
        for node in left:
            inner, reason = _defined(node) if _may_expand(node) else (None, "")
            if inner is None:
                return None, f"{node.op}: {reason or _refusal(trial, node)}"
            # The trial and the body name their values alike, but in the body no composite hides any node.
            twin = body.values[node.used_outputs()[0].name].producer
            assert twin is not None, node
            splice(body, twin, inner)


def _state_conditions(graph: Graph, node: Node, body: Graph, targets: Sequence[Target]) -> None:
    """Let a node ``Conditions`` go before a definition where the operator's rule demands something of a run.

    The definition would fail at one of its parts, or not at all. Where the rule has looked at elements that only a run
    shows, it may demand something of them.
    """
    asked = [node.inputs[index] for index in elements_read(node)]
    if node.bodies or not (conditions(node) or any(v is not None and is_readable(v) for v in asked)):
        return
    operands = list(dict.fromkeys(v for v in node.inputs if v is not None and not v.is_const))
    read = [v for v, formal in zip(operands, body.inputs, strict=True) if formal.users]
    takers = {part.target for part in body.nodes}
    if not read or len(takers) > 1:
        return
    added = graph.add("Conditions", [read[0], *node.inputs], stating(node), domain=TINYCOMP, version=1, at=node)
    added.sources = node.sources
    claims = [rule for t in targets if t.name in takers for rule in t.rules_for(added) if rule.refusal(added) is None]
    if not claims:
        graph.erase(added)
        return
    (added.target,) = takers
    for place, value in enumerate(node.inputs):
        if value is read[0]:
            graph.set_input(node, place, added.output)


def _refusal(trial: Graph, node: Node) -> str:
    return next((r.reason for r in reversed(trial.remarks) if r.sources == node.sources), "no reason recorded")


def splice(graph: Graph, node: Node, body: Graph) -> None:
    """Replace ``node`` by ``body``, whose inputs are the distinct operands that are not constant."""
    operands = list(dict.fromkeys(v for v in node.inputs if v is not None and not v.is_const))
    results = node.used_outputs()
    types = [refine(old.type, inner.type) for old, inner in zip(results, body.outputs, strict=True)]
    new = _only_composite(graph, node, body, operands, types)
    if new is None:
        for inner, type_ in zip(body.outputs, types, strict=True):
            inner.type = type_
        names = [graph.fresh(value.name) for value in results]
        new = graph.add(
            node.op, operands, domain=_DOMAIN, version=1, outputs=names, types=types, bodies={"body": body}, at=node
        )
    names = [value.name for value in results]
    for old, value in zip(results, new.outputs, strict=True):
        graph.replace_uses(old, value)
    graph.erase(node)
    for value, name in zip(new.outputs, names, strict=True):
        graph.rename(value, name)
    for part in [new] if new.is_composite else graph.inline(new):
        part.sources = node.sources
        for inside in itertools.chain.from_iterable(each.walk() for each in part.bodies.values()):
            inside[1].sources = node.sources


def _only_composite(
    graph: Graph, node: Node, body: Graph, operands: Sequence[Value], types: Sequence[Type]
) -> Node | None:
    """Add the composite that ``body`` consists of, without copying it; None if ``body`` is not one composite."""
    whole = body.outputs[0].producer
    if len(body) > 1 or whole is None or not whole.is_composite or whole.outputs != body.outputs:
        return None
    outer = dict(zip(body.inputs, operands, strict=True))
    read = [
        graph.add_const(v.const, v.name) if v.const is not None else outer[v] for v in whole.inputs if v is not None
    ]
    return graph.add(
        whole.op, read, whole.attrs, domain=whole.domain, version=whole.version, bodies=whole.bodies, types=types,
        outputs=[graph.fresh(value.name) for value in node.used_outputs()], target=whole.target, at=node,
    )  # fmt: skip
