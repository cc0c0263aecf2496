"""Relayout: the one operator that changes how a tensor lies in memory, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinycomp.ir.types import Type, tensor
from tinycomp.ops.registry import OpFamily

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node

FAMILY = OpFamily("layout")


def _relayout_type(node: Node) -> list[Type]:
    value = node.inputs[0]
    assert value is not None
    return [tensor(value.type).with_layout(node.attrs["layout"])]


@FAMILY.op("Relayout", domain="tinycomp", traits={"movement"}, type_rule=_relayout_type)
def relayout(x: Any, *, layout: str) -> Any:
    """Return ``x``: a numpy array has its logical shape whatever the layout."""
    del layout
    return x
