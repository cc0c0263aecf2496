"""Rules on matrix products: a Gemm of flattened rows, which is how PyTorch's exporters write a linear layer."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.edits import joined_sources, take_over
from tinycomp.passes.simplify_rules.facts import (
    constant,
    is_private,
    operand,
    producer,
    reshape_target,
    same_shape_of_equal_size,
    shape,
)
from tinycomp.rewrite import rule
from tinycomp.rewrite.constraints import attribute


@rule("Reshape")
def gemm_of_rows(graph: Graph, node: Node) -> bool:
    """``Reshape(Gemm(Reshape(x, [rows, k]), w, b), [..., n])`` is ``x w + b`` with x in the shape ``[..., k]``.

    The shapes no longer stand between the product and what follows it: residuals and activations can be fused.
    """
    gemm = producer(node.inputs[0], "Gemm")
    if gemm is None or not is_private(graph, gemm.output) or not _is_plain(gemm):
        return False
    flatten = producer(gemm.inputs[0], "Reshape")
    rows = None if flatten is None else _with_leading_dims(graph, flatten, gemm, node)
    if flatten is None or rows is None:
        return False
    sources, bias = joined_sources(flatten, gemm, node), operand(gemm, 2)
    names = [graph.fresh(gemm.output.name)]
    new = graph.add("MatMul", [rows, gemm.inputs[1]], at=node, outputs=names, sources=sources)
    if bias is not None:
        names = [graph.fresh(node.output.name)]
        new = graph.add("Add", [new.output, bias], at=node, outputs=names, sources=sources)
    return take_over(graph, node, new)


def _with_leading_dims(graph: Graph, flatten: Node, gemm: Node, node: Node) -> Value | None:
    """Return what ``flatten`` makes rows of in the shape that makes ``node`` superfluous, or None if there is none."""
    flat, product, final = shape(flatten.output), shape(gemm.output), shape(node.output)
    if flat is None or product is None or final is None or len(final) < 3:
        return None
    wanted = (*final[:-1], flat[1])
    target = reshape_target(wanted)
    if not isinstance(final[-1], int) or final[-1] != product[1] or target is None or not isinstance(flat[1], int):
        return None
    source = flatten.inputs[0]
    if source is None or same_shape_of_equal_size(shape(source), wanted):
        return source
    name = f"{flatten.output.name}_shape"
    operands = [source, graph.add_const(np.array(target, np.int64), name)]
    return graph.add("Reshape", operands, at=node, sources=flatten.sources).output


def _is_plain(gemm: Node) -> bool:
    """Whether a Gemm is ``x w + b`` with b constant and the same for every row."""
    scales = [attribute(gemm, name) for name in ("alpha", "beta")]
    turned = [attribute(gemm, name) for name in ("transA", "transB")]
    bias = constant(gemm, 2)
    if gemm.version < 7 or any(turned) or scales[0] != 1 or (bias is None and operand(gemm, 2) is not None):
        return False
    return bias is None or (scales[1] == 1 and bias.size == bias.shape[-1] if bias.ndim else scales[1] == 1)


RULES = (gemm_of_rows,)
