"""An operator that no target will ever have, for tests of what stays on the host.

It halves its operand. Importing this file makes it known: to this process alone, and for as long as that lives.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from tinycomp.ir.graph import Node
from tinycomp.ir.types import Type
from tinycomp.ops import OPS, OpFamily

DOMAIN = "tests"
NAME = "HostOnly"
QUALIFIED = f"{DOMAIN}::{NAME}"
"""What reports call it."""
_FAMILY = OpFamily(DOMAIN)


def _type_of_operand(node: Node) -> list[Type]:
    return [node.operand(0).type]


@_FAMILY.op(NAME, domain=DOMAIN, type_rule=_type_of_operand)
def _halve(x: Any) -> Any:
    return (x / 2).astype(x.dtype)


# The table of operators is closed to everybody else: nothing that tinycomp computes may depend on who was imported.
OPS.operators = {**OPS.operators, **_FAMILY.operators}


def host_only(operand: str, result: str, name: str = "") -> onnx.NodeProto:
    """Return a node of the operator."""
    return helper.make_node(NAME, [operand], [result], name=name, domain=DOMAIN)
