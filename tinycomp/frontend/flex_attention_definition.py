"""What FlexAttention computes: two products and a softmax, with the graphs of the model behind the last two steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition, shape_of
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.proto import DTYPE_BY_NUMBER
from tinycomp.ir.types import numpy_dtype

_RANK = 4


def _modified(body: Body, node: Node, name: str, x: Value, captured: Sequence[Value]) -> Value | None:
    """Send a value through a graph of the node, which must keep its type; None if it does not."""
    graph = node.bodies.get(name)
    if graph is None:
        return x
    inner = graph.clone()
    call = body.graph.add(
        name, [x, *captured], domain="tinycomp.definition", version=1, bodies={"body": inner}, outputs=1, types=[x.type]
    )
    made = body("Identity", call.output)
    body.graph.inline(call)
    return made if made.dtype == x.dtype else None


def _repeated(body: Body, x: Value, heads: int) -> Value:
    """Return keys or values with every head as often as queries share it."""
    batch, own, length, depth = shape_of(x) or ()
    if own == heads:
        return x
    apart = body.reshape(x, [batch, own, 1, length, depth])
    return body.reshape(body("Expand", apart, body.ints(batch, own, heads // own, length, depth)),
                        [batch, heads, length, depth])  # fmt: skip


def _softmax(body: Body, x: Value) -> Value:
    if x.dtype != "float64":
        return body("Softmax", x, axis=-1)
    last = body.ints(-1)
    powers = body("Exp", body("Sub", x, body("ReduceMax", x, last)))
    return body("Div", powers, body("ReduceSum", powers, last))


def _flex_attention(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    given = [v for v in operands[: len(node.inputs)] if v is not None]
    q, k, v = given[:3]
    shapes = [shape_of(x) for x in (q, k, v)]
    if any(shape is None or len(shape) != _RANK for shape in shapes):
        return None
    (_, heads, _, depth), (_, own, *_) = shapes[0] or (), shapes[1] or ()
    if not own or heads % own:
        return None
    number = int(node.attrs.get("softmax_precision") or 0)
    precision = DTYPE_BY_NUMBER[number] if number else q.dtype
    factor = node.attrs.get("scale")
    scale = 1 / math.sqrt(depth) if factor is None else float(factor)
    turned = body("Transpose", _repeated(body, k, heads), perm=[0, 1, 3, 2])
    scores = body("Mul", body("MatMul", q, turned), body.const(np.asarray(scale).astype(numpy_dtype(q.dtype))))
    captured = given[len(given) - node.captures :] if node.captures else []
    changed = _modified(body, node, "score_mod", body.cast(scores, precision), captured)
    weights = None if changed is None else _modified(body, node, "prob_mod", _softmax(body, changed), captured)
    if weights is None:
        return None
    return body.cast(body("MatMul", weights, body.cast(_repeated(body, v, heads), precision)), v.dtype)


DEFINITIONS = MappingProxyType({"ai.onnx.preview::FlexAttention": Definition(_flex_attention)})
