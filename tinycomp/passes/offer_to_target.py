"""OfferToTarget: let one target claim the nodes that it takes before the next target is asked.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> from tinycomp.rewrite import P
>>> npu = Target("npu")
>>> @npu.composite
... def matmul_relu(x, w=P.const):
...     return P.Relu(P.MatMul(x, w))
>>> npu.accept("Add")
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[2, 2]) -> (%z) {
...   %w: int8[2, 2] = const [1, 2, 3, 4]
...   %s: float32[] = const 0.5
...   %d: float32[2, 2] = DequantizeLinear(%w, %s)
...   %p: float32[2, 2] = MatMul(%x, %d)
...   %r: float32[2, 2] = Relu(%p)
...   %a: float32[2, 2] = Add(%r, %d)
...   %z: float32[2, 2] = MatMul(%a, %d)
... }''', infer=infer_node_types)
>>> OfferToTarget(npu).run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[2, 2]) -> (%z) {
  %w: int8[2, 2] = const [1, 2, 3, 4]
  %s: float32[] = const 0.5
  %d: float32[2, 2] = DequantizeLinear@13(%w, %s)
  %r: float32[2, 2] = tinycomp.composite::npu.matmul_relu@1(%x) {ops = ["MatMul", "Relu"]} target "npu"
    body = graph @npu.matmul_relu (%x: float32[2, 2]) -> (%r) {
      %d_1: float32[2, 2] = const [0.5, 1.0, 1.5, 2.0]
      %p: float32[2, 2] = MatMul@13(%x, %d_1)
      %r: float32[2, 2] = Relu@14(%p)
    }
  %d_1: float32[2, 2] = const [0.5, 1.0, 1.5, 2.0]
  %a: float32[2, 2] = Add@14(%r, %d_1) target "npu"
  %z: float32[2, 2] = MatMul@13(%a, %d)
}

A target whose composites compute in real numbers sees quantised weights as dequantised constants, as here. Nodes that
it does not claim keep the quantised weights, for the targets that come later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition import is_defined_by_others
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.annotate_target import annotate_for, release_parts
from tinycomp.passes.base import Pass
from tinycomp.passes.expand_functions import expand_for
from tinycomp.passes.fold_constants import allowed_growth, evaluated
from tinycomp.passes.merge_composite import merge_for
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import erase_dead, open_graphs
from tinycomp.rewrite.traits import is_random
from tinycomp.target import Policy, Target, find

MOST_BYTES = 1 << 30
"""Most bytes of constants that are dequantised for one target; further ones are offered as they are."""


@dataclass(frozen=True)
class OfferToTarget(Pass):
    """Do the work of MergeComposite, ExpandFunctions and AnnotateTarget for one target, on nodes not yet claimed.

    With one such pass per target, in priority order, both the composites and the operator rules of the first target
    come before those of the second. Products with dequantised constants are offered with the constants computed: at
    once if the target has no composites for quantised numbers, else after these have been tried. If the target does not
    take them, the constants stay quantised.

    Before and after, where the target takes Relu and ``P.Relu(P.Conv(x, w))``::

        %c = Conv(%x, %w)      ->  %r = tinycomp.composite::"npu.conv_relu"(%x, %w) target "npu" body = …
        %r = Relu(%c)              %s = Relu(%r) target "npu"
        %s = Relu(%r)

    Attributes:
        target: The target, or its name.
        policy: Says which nodes no target may have; the target has a policy of its own as well.
        bounded: Whether at most MOST_BYTES of constants are dequantised. Where the target is the last one, they would
            be folded in any case.
    """

    target: Target | str
    policy: Policy = field(default_factory=Policy)
    bounded: bool = True

    def run(self, graph: Graph) -> bool:
        """Claim in ``graph`` and its open bodies.

        Raises:
            TargetError: If there is no target of that name, or one of its rules fails.
        """
        most = MOST_BYTES if self.bounded else allowed_growth(graph)
        return offer(graph, find(self.target), self.policy, most_bytes=most)


def offer(
    graph: Graph,
    target: Target,
    policy: Policy,
    withheld: Mapping[Node, str] = MappingProxyType({}),
    most_bytes: int = MOST_BYTES,
) -> bool:
    """Let ``target`` claim nodes of ``graph`` and its open bodies.

    ``withheld`` gives nodes that it is not asked about, with the reasons; ``most_bytes`` of constants are dequantised.

    Returns:
        Whether it has claimed anything.
    """
    offers: dict[Graph, _Offer] = {}

    def offer_of(scope: Graph) -> _Offer:
        if scope not in offers:
            offers[scope] = _Offer(scope, target, policy, withheld, graph.remarks, most_bytes)
        return offers[scope]

    claimed = False
    for scope in reversed([*open_graphs(graph)]):  # inner ones first: what a body holds decides over its operator
        claimed |= offer_of(scope).form()
    for scope in open_graphs(graph):
        if scope not in offers:  # the body of a definition
            claimed |= offer_of(scope).form()
        claimed |= offers[scope].annotate()
    for each in offers.values():
        each.finish()
    return claimed


def offer_in(scope: Graph, target: Target, policy: Policy, withheld: Mapping[Node, str], remarks: list[Remark]) -> bool:
    """Let ``target`` claim nodes of one scope, see :func:`offer`; remarks go to ``remarks``."""
    return _Offer(scope, target, policy, withheld, remarks).run()


@dataclass
class GivenBack:
    """Offer nodes that a target has given back to the targets after it, each node to each target once.

    Attributes:
        targets: The targets in priority order.
        policy: A policy that applies beside those of the targets.
        refused_by: By node, the index of the last target that has given it back.
    """

    targets: Sequence[Target]
    policy: Policy = field(default_factory=Policy)
    refused_by: dict[Node, int] = field(default_factory=dict)
    _first: int | None = field(default=None, init=False)
    """The index of the first target to ask."""

    def add(self, graph: Graph, nodes: Iterable[Node], target: str | None) -> None:
        """Take nodes of ``graph`` from the target that has claimed them; composites are taken apart."""
        place = next((i for i, t in enumerate(self.targets) if t.name == target), len(self.targets))
        for node in nodes:
            node.target = None
            opens = bool(node.bodies) and not node.is_composite  # the target may take what is in the bodies
            self._first = min(self._first if self._first is not None else place + 1, place if opens else place + 1)
            for part in graph.inline(node) if node.is_composite else (node,):
                part.target = None
                self.refused_by[part] = place

    def offer(self, graph: Graph) -> bool:
        """Ask the remaining targets; tell whether one of them has claimed anything."""
        first, self._first = self._first, None
        claimed = False
        for place, target in enumerate(self.targets) if first is not None else ():
            if place >= (first or 0):
                withheld = {node: "it was given back" for node, last in self.refused_by.items() if last >= place}
                claimed |= offer(graph, target, self.policy, withheld)
        return claimed


class _Offer:
    """One target's turn in one scope."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        policy: Policy,
        withheld: Mapping[Node, str],
        remarks: list[Remark],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.graph = graph
        self.target = target
        self.policy = policy
        self.remarks = remarks
        self.withheld = dict(withheld)
        self.dequantized = _Dequantized(graph, target, most_bytes)

    def run(self) -> bool:
        claimed = self.form() | self.annotate()
        self.finish()
        return claimed

    def finish(self) -> None:
        """Take out the constants that were put in, and parts of layers that the target does not take whole."""
        self.dequantized.restore()
        release_parts(self.graph, self.target.name)

    def form(self) -> bool:
        """Make composites, and expand operators into what the target takes; tell whether it takes any of these."""
        if not self.target.reads_quantized:
            self._dequantize()
        claimed = bool(merge_for(self.target, self.graph, self._barred(), self.remarks))
        if self.target.reads_quantized and self._dequantize():
            claimed |= bool(merge_for(self.target, self.graph, self._barred(), self.remarks))
        claimed |= expand_for([self.target], self.graph, {self.target.name: self._barred()}, self.remarks) > 0
        return claimed

    def annotate(self) -> bool:
        """Let the target claim the operators that it has rules for; tell whether it claims any."""
        return annotate_for([self.target], self.graph, self.policy, self.remarks, self.withheld)

    def _dequantize(self) -> bool:
        """Put in constants; tell whether there are any."""
        self.withheld |= dict.fromkeys(self.dequantized.put_in(), "it is folded")
        return bool(self.dequantized.original)

    def _barred(self) -> dict[Node, str]:
        return self.target.excluded(self.graph, self.policy) | self.withheld


class _Dequantized:
    """Constants that stand in for values computed from quantised ones while a target is asked."""

    def __init__(self, graph: Graph, target: Target, budget: int) -> None:
        self.graph = graph
        self.target = target
        self.budget = budget
        self.arrays: dict[Value, np.ndarray] = {}
        self.original: dict[Value, Value] = {}

    @cached_property
    def in_composites(self) -> frozenset[tuple[str, str]]:
        """What the target's patterns mention."""
        return frozenset[tuple[str, str]]().union(*(c.pattern.operators for c in self.target.composites))

    def put_in(self) -> list[Node]:
        """Let nodes that the target may take read constants; return the nodes that are no longer read by others."""
        known: dict[Value, Node] = {}
        for node in self.graph.nodes:
            if _is_known(node, known):
                known |= dict.fromkeys(node.used_outputs(), node)
        folded = set(known.values())
        for value in known:
            users = [user for user in value.users if user not in folded and self._may_take(user)]
            array = self._array(value, known) if users else None
            if array is not None:
                constant = self.graph.add_const(array, self.graph.fresh(value.name))
                self.original[constant] = value
                for user in users:
                    self._exchange(user, value, constant)
        unread: dict[Node, None] = {}
        for node in reversed(dict.fromkeys(known.values())):
            if not any(self.graph.is_output(v) or not unread.keys() >= v.users.keys() for v in node.outputs):
                unread[node] = None
        return list(unread)

    def _may_take(self, user: Node) -> bool:
        if user.target is not None or user.bodies:
            return False
        head = user.domain, user.op
        return head in self.in_composites or bool(self.target.rules_for(user)) or is_defined_by_others(user)

    def _array(self, value: Value, known: Mapping[Value, Node]) -> np.ndarray | None:
        """Return the elements of a value, computing its operands first; None if they cannot be computed."""
        waiting = [known[value]]
        while waiting:
            node = waiting[-1]
            missing = [
                v.producer for v in node.inputs
                if v is not None and v.const is None and v not in self.arrays and v.producer is not None
            ]  # fmt: skip
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if node.used_outputs()[0] in self.arrays:
                continue
            operands = [None if v is None else v.const if v.const is not None else self.arrays[v] for v in node.inputs]
            results = evaluated(node, operands)
            if isinstance(results, str):
                return None
            self.budget -= sum(array.nbytes for array in results)
            if self.budget < 0:
                return None
            self.arrays |= {v: array for v, array in zip(node.outputs, results, strict=True) if v.name}
        return self.arrays[value]

    def _exchange(self, user: Node, old: Value, new: Value) -> None:
        for index, value in enumerate(user.inputs):
            if value is old:
                self.graph.set_input(user, index, new)

    def restore(self) -> None:
        """Let unclaimed nodes read the original values again, and drop whatever is not read any more."""
        for constant, value in self.original.items():
            for user in [user for user in constant.users if user.target is None]:
                self._exchange(user, constant, value)
            if constant.name in self.graph.values and not self.graph.use_count(constant):
                self.graph.erase_unused(constant)
            if value.producer is not None:
                erase_dead(self.graph, value.producer)


def _is_known(node: Node, known: Mapping[Value, Node]) -> bool:
    """Tell whether a node computes its results from constants alone, one of which is quantised."""
    if node.target is not None or node.bodies or is_random(node) or not node.used_outputs():
        return False
    if not all(value is None or value.const is not None or value in known for value in node.inputs):
        return False
    return (not node.domain and node.op == "DequantizeLinear") or any(value in known for value in node.inputs)
