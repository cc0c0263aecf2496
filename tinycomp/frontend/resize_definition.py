"""How images of integers are resized between their elements: as numbers of float32, which are then rounded."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from tinycomp.frontend.definition_body import BYTES, Body, Definition, dtype_of
from tinycomp.ir.graph import Node, Value

_ANY_TYPE = 11
"""From this opset on Resize has its present operands."""


def _resize(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x, *given = operands
    if x is None:
        return None
    rest: list[Value | None] = []
    for formal, value in zip(given, node.inputs[1:], strict=False):
        if value is None or value.static_shape == (0,):
            rest.append(None)
        else:
            rest.append(formal if value.const is None else body.const(value.const))
    return body.stored(body("Resize", body.cast(x, "float32"), *rest, **node.attrs), None, x.dtype)


def _interpolates_integers(node: Node) -> bool:
    is_new = node.version is not None and node.version >= _ANY_TYPE
    return is_new and node.attrs.get("mode", "nearest") != "nearest" and dtype_of(node.operand(0)) in BYTES


DEFINITIONS = MappingProxyType({"Resize": Definition(_resize, _interpolates_integers)})
