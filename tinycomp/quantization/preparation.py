"""The float graph that is quantised: opset 13 at least, simplified, products in their plain form."""

from __future__ import annotations

import onnx
from onnx import version_converter

from tinycomp.compiler import Model, load_graph
from tinycomp.errors import QuantizationError
from tinycomp.frontend import Shapes, export_model
from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.pipeline import Pipeline, optimisation_passes

_PER_CHANNEL_SINCE = 13
_CONVERTED = 17


def prepare(model: Model, shapes: Shapes | None) -> Graph:
    """Return a model as a graph of its own with batch normalisations folded.

    A model of an opset before 13, which has no scales per channel, is converted to opset 17.

    Raises:
        ModelError: If the model is not valid.
        QuantizationError: If it is quantised already, or cannot be converted.
    """
    graph = load_graph(model, shapes)
    done = next((n for _, n in graph.walk() if n.op in ("QuantizeLinear", "DequantizeLinear")), None)
    if done is not None:
        raise QuantizationError(
            "the model is quantised already", where=f"node {done.label}", expected="a model in float32",
            found=done.op, hint="Quantise the model that it was made from.",
        )  # fmt: skip
    if graph.opsets.get("", _CONVERTED) < _PER_CHANNEL_SINCE:
        graph = load_graph(_converted(graph))
    Pipeline(optimisation_passes()).run(graph)
    for node in graph.nodes:
        if node.op == "Gemm":
            _make_plain(graph, node)
    return graph


def _converted(graph: Graph) -> onnx.ModelProto:
    try:
        return version_converter.convert_version(export_model(graph), _CONVERTED)
    except RuntimeError as error:
        raise QuantizationError(
            "the model cannot be brought to an opset with scales per channel", where=graph.name,
            expected=f"opset {_PER_CHANNEL_SINCE} or later", found=f"opset {graph.opsets.get('')}: {error}",
            hint="Export it again with a newer opset.",
        ) from error  # fmt: skip


def _make_plain(graph: Graph, node: Node) -> None:
    """Take ``alpha`` and ``beta`` of a Gemm into its constants, where these are constants."""
    factors = {1: node.attrs.get("alpha", 1.0), 2: node.attrs.get("beta", 1.0)}
    held = {i: v for i, v in enumerate(node.inputs) if i in factors and v is not None}
    if set(factors.values()) == {1.0} or any(v.const is None for v in held.values()):
        return
    for index, value in held.items():
        assert value.const is not None
        scaled = (value.const * factors[index]).astype(value.const.dtype)
        graph.set_input(node, index, graph.add_const(scaled, value.name))
    node.attrs = {k: v for k, v in node.attrs.items() if k not in ("alpha", "beta")}


def finish(graph: Graph) -> onnx.ModelProto:
    """Return a quantised graph as an ONNX model."""
    EliminateDeadCode().run(graph)
    return export_model(graph)
