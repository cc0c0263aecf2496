"""The smallest part of a model that still shows a fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.peers import RefusedError, Results, by_onnxruntime, declared

Fails = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], bool]


def smallest(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], fails: Fails
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a part of a model, with its feeds, that still fails.

    Tried are, for every node, what computes its results from values that onnxruntime gives: the node alone, then with
    the nodes it reads from, and so on, the shallowest first. The whole model if none of them fails.
    """
    try:
        values = {**feeds, **_every_value(model, feeds)}
    except RefusedError:
        return model, dict(feeds)
    for depth in range(len(model.graph.node)):
        for node in model.graph.node:
            part, operands = _cone(model, node, depth, values)
            if fails(part, operands):
                return part, operands
    return model, dict(feeds)


def _every_value(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Results:
    names = [name for node in model.graph.node for name in node.output if name]
    return by_onnxruntime(declared(model, names), feeds, optimise=False)


def _cone(
    model: onnx.ModelProto, last: onnx.NodeProto, depth: int, values: Mapping[str, np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return the model of one node and what stands up to ``depth`` nodes before it; the rest becomes inputs."""
    producers = {name: node for node in model.graph.node for name in node.output}
    kept = [last]
    border = [last]
    for _ in range(depth):
        found = [producers[name] for node in border for name in _reads(node) if name in producers]
        border = [
            n for i, n in enumerate(found) if not any(n is k for k in kept) and not any(n is o for o in found[:i])
        ]
        kept += border
    nodes = [n for n in model.graph.node if any(n is k for k in kept)]
    made = {name for n in nodes for name in n.output}
    tensors = {t.name: t for t in model.graph.initializer}
    wanted = dict.fromkeys(name for n in nodes for name in _reads(n) if name and name not in made)
    constants = {n.output[0]: n for n in model.graph.node if n.op_type == "Constant"}
    nodes = [constants[name] for name in wanted if name in constants] + nodes
    operands = {name: values[name] for name in wanted if name in values and name not in constants}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in operands.items()
    ]
    graph = helper.make_graph(nodes, "part", infos, [], [tensors[name] for name in wanted if name in tensors])
    part = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return declared(part, [name for name in last.output if name]), operands


def _reads(node: onnx.NodeProto) -> list[str]:
    """Return what a node and its bodies read; names of the bodies' own are harmless, nothing outside has them."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            names += [name for inner in attribute.g.node for name in _reads(inner)]
    return names
