"""Operators that mark places in a graph and compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinycomp.ops.registry import OpFamily

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node
    from tinycomp.ir.types import Type

FAMILY = OpFamily("barrier")


def _same_type(node: Node) -> list[Type]:
    operand = node.inputs[0]
    assert operand is not None, "StopFusion has one operand"
    return [operand.type]


@FAMILY.op("StopFusion", domain="tinycomp", traits={"structural", "cheap", "elementwise"}, type_rule=_same_type)
def stop_fusion(x: Any) -> Any:
    """The input itself; where barriers bind, no region reaches across."""
    return x
