"""RoundWeights: let half precision hold the large weights of products, at the cost of their last bits.

>>> from tinycomp.ir.text.parser import parse_graph
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 2]) -> (%y) {
...   %w: float32[2, 1] = const [0.1, 1e9]
...   %y: float32[1, 1] = MatMul(%x, %w)
... }''')
>>> RoundWeights("bf16", least=1).run(graph)
True
>>> graph.nodes[0].const(1).tolist()
[[0.10009765625], [998244352.0]]
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import numpy_dtype
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass
from tinycomp.rewrite.rules import open_graphs

Precision = Literal["f32", "bf16", "f16"]
"""The format of weights: float32, bfloat16 (8 bits of precision) or float16 (11 bits, up to 65504)."""
_HALF = {"bf16": "bfloat16", "f16": "float16"}


@dataclass(frozen=True)
class RoundWeights(Pass):
    """Round constant float32 weights of MatMul and Gemm to the nearest number that half precision has, ties to even.

    They stay float32 in the graph: targets that keep such weights in half precision (``c`` does) gain by it, and all
    compute the same. Weights that float16 cannot hold (beyond 65504, infinite) are left alone.

    Attributes:
        precision: ``"bf16"`` or ``"f16"``.
        least: Bytes in float32 from which on weights are rounded: memory decides how fast products with these are.
    """

    precision: Literal["bf16", "f16"]
    least: int = 1 << 20

    def run(self, graph: Graph) -> bool:
        """Round in ``graph`` and its open bodies."""
        changed = False
        for scope in open_graphs(graph):
            rounded: dict[Value, Value | None] = {}
            for node in scope.nodes:
                weights = self._weights(node)
                if weights is None:
                    continue
                if weights not in rounded:
                    rounded[weights] = self._rounded(scope, weights)
                new = rounded[weights]
                if new is not None:
                    scope.set_input(node, 1, new)
                    changed = True
        return changed

    def _weights(self, node: Node) -> Value | None:
        if node.domain or node.op not in ("MatMul", "Gemm") or node.target is not None:
            return None
        weights = node.operand(1)
        array = weights.const
        is_large = array is not None and array.dtype == np.float32 and array.ndim == 2 and array.nbytes >= self.least
        return weights if is_large else None

    def _rounded(self, graph: Graph, weights: Value) -> Value | None:
        """Return the rounded constant, or None if it is exact already or cannot be rounded."""
        assert weights.const is not None
        with np.errstate(over="ignore", invalid="ignore"):
            array = weights.const.astype(numpy_dtype(_HALF[self.precision])).astype(np.float32)
        if np.array_equal(array, weights.const) or not np.isfinite(array).all():
            return None
        return graph.add_const(array, f"{weights.name}_{self.precision}")
