"""An operator that no target will ever have, for tests of what stays on the host.

It halves its operand. Importing this file makes it known: to this process alone, and for as long as that lives.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper

from tinycomp.ops import OPS, OpFamily
from tinycomp.ops.rule import same_as_first

DOMAIN = "tests"
NAME = "HostOnly"
QUALIFIED = f"{DOMAIN}::{NAME}"
"""What reports call it."""
_FAMILY = OpFamily(DOMAIN)


@_FAMILY.op(NAME, domain=DOMAIN)
def _halve(x: Any) -> Any:
    return (x / 2).astype(x.dtype)


_FAMILY.infer(NAME, domain=DOMAIN)(same_as_first)

# The table of operators is closed to everybody else: nothing that tinycomp computes may depend on who was imported.
OPS.operators = {**OPS.operators, **_FAMILY.operators}


def host_only(operand: str, result: str, name: str = "") -> onnx.NodeProto:
    """Return a node of the operator."""
    return helper.make_node(NAME, [operand], [result], name=name, domain=DOMAIN)


def relu_or_host_only(result: str) -> onnx.NodeProto:
    """Return an If "c" whose branches are a Relu and a node of the operator, for an "x" of float32[3, 4]."""
    branches = {}
    for name, op, domain in (("then_branch", "Relu", ""), ("else_branch", NAME, DOMAIN)):
        info = helper.make_tensor_value_info(f"{name}_y", 1, (3, 4))
        inner = helper.make_node(op, ["x"], [f"{name}_y"], name=op, domain=domain)
        branches[name] = helper.make_graph([inner], name, [], [info])
    return helper.make_node("If", ["c"], [result], name="if", **branches)
