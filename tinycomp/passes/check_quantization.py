"""CheckQuantization: remark on quantised layers that a target's quantisation rules do not allow.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.target import QuantizationRule, Target
>>> npu = Target("npu")
>>> _ = npu.quantization("Relu")(QuantizationRule(activations=("int8",)))
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: uint8[4]) -> (%y) {
...   %s: float32[] = const 0.5
...   %z: uint8[] = const 128
...   %r: float32[4] = DequantizeLinear(%x, %s, %z)
...   %a: float32[4] = Relu(%r)
...   %y: uint8[4] = QuantizeLinear(%a, %s, %z)
... }''')
>>> CheckQuantization((npu,)).run(graph)
False
>>> for remark in graph.remarks:
...     print(remark.reason, "|", remark.remedy)
operand 0 "r" is uint8, not int8 | quantise it to int8
the result "a" is uint8, not int8 | quantise it to int8
"""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import Graph
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Target, find_all
from tinycomp.target.quantization import violations_among


@dataclass(frozen=True)
class CheckQuantization(Pass):
    """Remark on layers that rules do not allow; the graph stays as it is.

    What a composite of the target does not take because of a rule is refused with the same reason.

    Attributes:
        targets: Targets, or names of targets; those with rules are asked, each about every layer.
    """

    targets: Sequence[Target | str]

    def run(self, graph: Graph) -> bool:
        """Check the layers of ``graph`` and its open bodies."""
        for target in find_all(self.targets):
            if not target.quantization_rules:
                continue
            for scope in open_graphs(graph):
                for node, found in violations_among(scope.nodes, target.quantization_rule):
                    rule = f"{target.name}, quantisation of {node.qualified_op}"
                    sources = node.sources or (node.label,)
                    scope.remarks.append(
                        Remark(self.name, sources, target.name, rule, found.reason, 1.0, node.label, found.remedy)
                    )
        return False
