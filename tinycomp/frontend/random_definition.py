"""What operators compute that decide by chance: comparisons of uniform numbers with probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition, shape_of
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.proto import NUMBER_BY_DTYPE

_DOUBLE = NUMBER_BY_DTYPE["float64"]


def _bernoulli(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x = operands[0]
    if x is None:
        return None
    chance = body("RandomUniformLike", x, dtype=_DOUBLE, seed=node.attrs.get("seed"))
    return body.cast(body("Less", chance, body.cast(x, "float64")), node.output.dtype)


def _multinomial(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Count the classes whose shares, added up, a uniform number has passed."""
    x, shape = operands[0], shape_of(operands[0])
    if x is None or shape is None or len(shape) != 2:
        return None
    last, wide = body.ints(-1), body.cast(x, "float64")
    weights = body("Exp", body("Sub", wide, body("ReduceMax", wide, last)))
    edges = body("Div", body("CumSum", weights, body.const(np.int64(1))), body("ReduceSum", weights, last))
    size = int(node.attrs.get("sample_size", 1))
    chance = body("RandomUniform", shape=[shape[0], size], dtype=_DOUBLE, seed=node.attrs.get("seed"))
    passed = body("GreaterOrEqual", body("Unsqueeze", chance, body.ints(2)), body("Unsqueeze", edges, body.ints(1)))
    classes = body("ReduceSum", body.cast(passed, "int64"), last, keepdims=0)
    return body.cast(body("Min", classes, body.const(np.int64(shape[1] - 1))), node.output.dtype)


DEFINITIONS = MappingProxyType({"Bernoulli": Definition(_bernoulli), "Multinomial": Definition(_multinomial)})
