"""ZeroPointsToBias: the zero point of a product's data as a part of its bias.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%q: int8[1, 2]) -> (%y) {
...   %s: float32[] = const 0.5
...   %z: int8[] = const 3
...   %o: int8[] = const 0
...   %x = DequantizeLinear(%q, %s, %z) from ["x"]
...   %wq: int8[2, 1] = const [10, -4]
...   %w = DequantizeLinear(%wq, %s, %o) from ["w"]
...   %y = Gemm(%x, %w) from ["gemm"]
... }''', infer=infer_node_types)
>>> ZeroPointsToBias().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%q: int8[1, 2]) -> (%y) {
  %wq: int8[2, 1] = const [10, -4]
  %s: float32[] = const 0.5
  %o: int8[] = const 0
  %w: float32[2, 1] = DequantizeLinear@13(%wq, %s, %o) from ["w"]
  %q_zero_point: int8[] = const 0
  %dequantizelinear: float32[1, 2] = DequantizeLinear@13(%q, %s, %q_zero_point) from ["x"]
  %y_bias: int32[1] = const [-18]
  %y_bias_scale: float32[] = const 0.25
  %dequantizelinear_1: float32[1] = DequantizeLinear@13(%y_bias, %y_bias_scale) {axis = 0} from ["gemm"]
  %y: float32[1, 1] = Gemm@13(%dequantizelinear, %w, %dequantizelinear_1) from ["gemm"]
}
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops.numeric import Array
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.explicit_pads import PAD_OF_OPERANDS
from tinycomp.passes.legalize.layer import Layer, Stored, attributes, given, has_plain_pads
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import version_of


@dataclass(frozen=True)
class ZeroPointsToBias(Legalization):
    """Take the zero point of the data times the sum of the weights off the bias, and let the data have none.

    Padding becomes a Pad of the stored numbers with the zero point that was. The sums are the same integers. Targets
    want it whose products have no zero point.
    """

    ops: ClassVar = frozenset({"Conv", "Gemm"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one product of quantised data and weights, whose bias is in steps of the sums, or absent."""
        layer = Layer.around(graph, node)
        data, weight, bias = layer.operand(), layer.operand(1), layer.optional(2)
        if data.dequantizer is None or weight.dequantizer is None or weight.array is None or not data.is_even:
            return False
        if not data.zero.any() or not _is_plain(node):
            return False
        axis = 0 if node.op == "Conv" or node.attrs.get("transB", 0) else 1
        along = weight.dequantizer.attrs.get("axis", 1) % weight.array.ndim
        steps = _steps(data, weight)
        numbers = _numbers(bias, steps, weight.array.shape[axis])
        if numbers is None or not (weight.is_even or along == axis):
            return False
        rows = np.moveaxis(weight.array.astype(np.int64), axis, 0).reshape(len(numbers), -1)
        sums = (rows - weight.zero.astype(np.int64).reshape(-1, 1)).sum(axis=1)
        moved = numbers - int(data.zero.item()) * sums
        rank = (node.operand(0).rank or 2) - 2
        pads = given(node, "pads", 2 * rank, 0) if node.op == "Conv" else []
        if np.abs(moved).max(initial=0) >= 2**31 or (any(pads) and version_of(graph, "Pad") < PAD_OF_OPERANDS):
            return False
        value = layer.padded(data.value, [0, 0, *pads[:rank]], [0, 0, *pads[rank:]], data.zero) if pads else data.value
        none = graph.add_const(np.zeros((), data.zero.dtype), f"{data.value.name}_zero_point")
        real = graph.add(
            "DequantizeLinear", [value, data.dequantizer.inputs[1], none], data.dequantizer.attrs,
            version=data.dequantizer.version, at=node, sources=data.dequantizer.sources,
        ).output  # fmt: skip
        name = f"{node.output.name}_bias"
        stored = graph.add_const(moved.astype(np.int32), name)
        scale = graph.add_const(steps if steps.size > 1 else steps.reshape(()), f"{name}_scale")
        whole = layer.add("DequantizeLinear", [stored, scale], axis=0)
        changed = attributes(node, pads=None, auto_pad=None) if any(pads) else dict(node.attrs)
        return layer.replace(layer.finished(layer.add(node.op, [real, node.inputs[1], whole], **changed)))


def _is_plain(node: Node) -> bool:
    if node.op == "Conv":
        return has_plain_pads(node)
    return node.attrs.get("alpha", 1.0) == node.attrs.get("beta", 1.0) == 1.0 and not node.attrs.get("transA", 0)


def _steps(data: Stored, weight: Stored) -> Array:
    """Return what the steps of the sums are worth, float32: as quantisers write the scale of a bias."""
    assert data.dequantizer is not None
    assert weight.dequantizer is not None
    scales = [each.dequantizer.const(1) for each in (data, weight) if each.dequantizer is not None]
    assert scales[0] is not None
    assert scales[1] is not None
    return np.asarray(scales[0].reshape(()) * scales[1].reshape(-1), np.float32)


def _numbers(bias: Stored | None, steps: Array, channels: int) -> Array | None:
    """Return a bias in steps of the sums, int64, or None if it is not stored so."""
    if bias is None:
        return np.zeros(channels, np.int64)
    if bias.dequantizer is None or bias.array is None or bias.array.shape != (channels,) or bias.zero.any():
        return None
    scale = bias.dequantizer.const(1)
    same = scale is not None and np.allclose(np.broadcast_to(scale.reshape(-1), steps.shape), steps, rtol=1e-6, atol=0)
    return bias.array.reshape(-1).astype(np.int64) if same else None
