"""Operators of tinycomp's own: they compute nothing, and say how a tensor lies in memory or where fusion stops."""

from __future__ import annotations

from typing import Any

from tinycomp.ir.graph import Node
from tinycomp.ir.types import Type, tensor
from tinycomp.ops.record import OpFamily

FAMILY = OpFamily("internal")


def _relayout_type(node: Node) -> list[Type]:
    return [tensor(node.operand(0).type).with_layout(node.attrs["layout"])]


@FAMILY.op("Relayout", domain="tinycomp", traits={"movement"}, type_rule=_relayout_type)
def relayout(x: Any, *, layout: str) -> Any:
    """Return ``x``: a numpy array has its logical shape whatever the layout."""
    del layout
    return x


def _same_type(node: Node) -> list[Type]:
    return [node.operand(0).type]


@FAMILY.op("StopFusion", domain="tinycomp", traits={"structural", "cheap", "elementwise"}, type_rule=_same_type)
def stop_fusion(x: Any) -> Any:
    """Return the input itself; where barriers bind, no region reaches across."""
    return x
