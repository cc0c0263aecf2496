"""What is wrong with a node and can be seen before it runs, where onnx's inference is silent.

Inference computes types; much of what it lets through would fail in the first run, or, worse, in native code that
trusts its shapes. Each check reads types, constants and attributes only, and refuses what cannot be right whatever the
inputs are. :func:`check_node` runs whenever a node is typed: at import, behind passes, and for concrete sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinycomp.ir.graph import Node
from tinycomp.ops.checks import axes, choices, movement, norms, operands, quantized, recurrent, spatial
from tinycomp.ops.facts import Facts

__all__ = ["Facts", "check_node"]

Check = Callable[[Facts], None]


def _by_operator(*tables: Mapping[str, Check]) -> Mapping[str, tuple[Check, ...]]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: tuple(table[name] for table in tables if name in table) for name in names}


_CHECKS = _by_operator(
    choices.CHECKS, axes.CHECKS, movement.CHECKS, norms.CHECKS, operands.CHECKS, quantized.CHECKS, recurrent.CHECKS,
    spatial.CHECKS,
)  # fmt: skip


def check_node(node: Node) -> None:
    """Refuse a node that can never run.

    Nodes that have passed are not remembered: to find out whether one has been seen takes longer than to look again.

    Args:
        node: The node.

    Raises:
        TypeInferenceError: If one of its attributes, constants or shapes contradicts its operator or another of them.
    """
    checks = None if node.domain else _CHECKS.get(node.op)
    if checks is not None:
        facts = Facts(node)
        for check in checks:
            check(facts)
