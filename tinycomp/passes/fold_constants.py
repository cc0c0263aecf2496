"""FoldConstants: compute at compile time what does not depend on the inputs.

>>> from tinycomp.ir.text.parser import parse_graph
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[N, 3, 8, 8]) -> (%y) {
...   %shape: int64[4] = Shape(%x)
...   %axis: int64[] = const 1
...   %channels: int64[] = Gather(%shape, %axis)
...   %float: float32[] = Cast(%channels) {to = 1}
...   %y: float32[N, 3, 8, 8] = Div(%x, %float)
... }''')
>>> FoldConstants().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[N, 3, 8, 8]) -> (%y) {
  %float: float32[] = const 3.0
  %y: float32[N, 3, 8, 8] = Div@14(%x, %float)
}

A conditional whose condition is known becomes the chosen branch. Constants that a body captures move into the body,
so that folding goes on there.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import COMPOSITE, REGION, Graph, Node, Value
from tinycomp.ir.remarks import Remark
from tinycomp.ir.types import TensorType, bits, compatible, type_of
from tinycomp.ops import OPS, bind, is_opaque
from tinycomp.passes.base import Pass
from tinycomp.passes.captures import bind_constant_captures, choose_branch
from tinycomp.passes.edits import erase_dead, replace_by_constant, retype, stored
from tinycomp.passes.known_dims import KnownDims
from tinycomp.rewrite.engine import open_graphs


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Replace nodes whose results are known by constants, in the graph and in the bodies of unclaimed nodes.

    Attributes:
        keep_quantized: Leave DequantizeLinear of constants alone, and so all that follows, so that weights stay small
            and targets can match quantised operators.
        max_bytes: Most bytes by which folding may let the constants of all graphs together grow; a node whose result
            is no larger than its constant operands is folded in any case.

    Operators that draw random numbers, claimed nodes, composites and regions stay. So does a node whose kernel refuses
    its operands; a remark says why, and running the model will say it again.
    """

    keep_quantized: bool = True
    max_bytes: int = 1 << 30

    def run(self, graph: Graph) -> bool:
        """Fold in topological order, once."""
        budget = _Budget(self.max_bytes)
        return sum(_Folder(each, self, budget).run() for each in open_graphs(graph)) > 0


_CLOSED = frozenset({COMPOSITE, REGION})
"""Domains of nodes whose bodies are closed."""


@dataclass
class _Budget:
    left: int


@dataclass
class _Folder:
    """Folding in one graph; bodies are folded after it, when their captures are as constant as they get."""

    graph: Graph
    options: FoldConstants
    budget: _Budget
    changed: bool = False
    stale: set[Node] = field(default_factory=set)

    def run(self) -> bool:
        self.dims = KnownDims()
        waiting = deque(self.graph.nodes)
        while waiting:
            node = waiting.popleft()
            if node.target is not None or node.domain in _CLOSED:
                continue
            if node in self.stale:
                self._retype(node)
            if node.bodies:
                waiting.extendleft(reversed(self._with_bodies(node)))
            else:
                if node.op == "Reshape":
                    self._fix_reshape(node)
                self._fold(node)
        return self.changed

    def _retype(self, node: Node) -> None:
        """Infer the types of a node whose operands are known better than before."""
        self.stale.discard(node)
        try:
            better = retype(self.graph, node)
        except TypeInferenceError as error:
            self._remark(node, error.message)
            return
        if better:
            self.stale.update(user for value in node.outputs for user in value.users)

    def _with_bodies(self, node: Node) -> list[Node]:
        """Simplify a node with bodies; return the nodes to go on with."""
        condition = node.inputs[0] if "then_branch" in node.bodies else None
        if condition is not None and condition.const is not None and condition.const.size == 1:
            self.changed = True
            nodes = choose_branch(self.graph, node, bool(condition.const.reshape(-1)[0]))
            self.stale.update(nodes)
            return nodes
        self.changed |= bind_constant_captures(self.graph, node)
        return []

    def _fix_reshape(self, node: Node) -> None:
        """Give a Reshape to a shape that is known but for one dimension a constant shape."""
        target = self.dims.reshape_target(node)
        computed = node.inputs[1] if target is not None else None
        if target is None or computed is None:
            return
        self.graph.set_input(node, 1, self.graph.add_const(target, f"{node.output.name}_shape"))
        if computed.producer is not None:
            erase_dead(self.graph, computed.producer)
        self._retype(node)
        self.changed = True

    def _fold(self, node: Node) -> None:
        arrays = self._evaluate(node)
        if arrays is None:
            return
        users = [user for value in node.outputs for user in value.users]
        named = [(value, array) for value, array in zip(node.outputs, arrays, strict=True) if value.name]
        constants = [(replace_by_constant(self.graph, value, array), value.name) for value, array in named]
        erase_dead(self.graph, node)
        for constant, name in constants:
            self.graph.rename(constant, name)
        self.stale.update(users)
        self.changed = True

    def _evaluate(self, node: Node) -> list[np.ndarray] | None:
        """Return one array per result, or None where the node stays."""
        known = self.dims.observe(node)
        if known is not None:
            return [known]
        if not self._may_fold(node):
            return None
        try:
            with np.errstate(all="ignore"):
                run, _ = bind(node)
                results = run(*(None if v is None else v.const for v in node.inputs))
        except Exception as error:  # a kernel may fail in any way; the node then fails, if it does, when it runs
            self._remark(node, f"it could not be computed: {error}")
            return None
        arrays = [stored(result) for result in results]
        for value, array in zip(node.outputs, arrays, strict=True):
            if value.name and (array is None or not compatible(value.type, type_of(array))):
                self._remark(node, f"its result {value.name} is not of type {value.type}")
                return None
        return [array if array is not None else np.empty(0) for array in arrays]

    def _may_fold(self, node: Node) -> bool:
        for value in node.inputs:
            if value is not None and value.const is None:
                return False
        if not node.used_outputs():
            return False
        if is_random(node) or (self.options.keep_quantized and node.op == "DequantizeLinear" and not node.domain):
            return False
        return all(isinstance(v.type, TensorType) for v in node.used_outputs()) and self._affordable(node)

    def _affordable(self, node: Node) -> bool:
        held = sum(v.const.nbytes for v in node.inputs if v is not None and v.const is not None)
        growth = sum(_nbytes(v) for v in node.used_outputs()) - held
        if growth <= 0:
            return True
        if growth > self.budget.left:
            self._remark(node, f"its result would add {growth} bytes to the constants, {self.budget.left} are left")
            return False
        self.budget.left -= growth
        return True

    def _remark(self, node: Node, reason: str) -> None:
        self.graph.remarks.append(Remark(FoldConstants.name, node.sources, "", node.qualified_op, reason))


def is_random(node: Node) -> bool:
    """Whether two runs of the node may differ, as far as anything is known about it."""
    if is_opaque(node):
        return True
    record = OPS.find(node.op, node.domain, node.version)
    if record is not None and "random" in record.traits:
        return True
    return node.op == "Dropout" and not node.domain and _trains(node)


def _trains(node: Node) -> bool:
    """Whether a Dropout may drop: operators before 7 by attribute, from 12 on by operand."""
    if node.version < 7:
        return not node.attrs.get("is_test", 0)
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    return mode is not None and (mode.const is None or bool(mode.const.any()))


def _nbytes(value: Value) -> int:
    """Bytes of a result in memory, where elements below one byte take a whole one."""
    type_ = value.type
    assert isinstance(type_, TensorType)
    width = 1 if type_.dtype == "?" else max(bits(type_.dtype) // 8, 1)
    return math.prod(type_.static_shape or ()) * width
