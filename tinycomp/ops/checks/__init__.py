"""What is wrong with a node and can be seen before it runs, where onnx's inference is silent.

Inference computes types; much of what it lets through would fail in the first run, or, worse, in native code that
trusts its shapes. Each check reads types, constants and attributes only, and refuses what cannot be right whatever the
inputs are. :func:`check_node` runs whenever a node is typed: at import, behind passes, and for concrete sizes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Set

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import Key, Uncompared, informs
from tinycomp.ops.checks import axes, choices, movement, norms, operands, quantized, recurrent, spatial
from tinycomp.ops.checks.facts import Facts

__all__ = ["Facts", "check_node", "has_checks"]

Check = Callable[[Facts], None]


def _by_operator(*tables: Mapping[str, Check]) -> Mapping[str, tuple[Check, ...]]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: tuple(table[name] for table in tables if name in table) for name in names}


_CHECKS = _by_operator(
    choices.CHECKS, axes.CHECKS, movement.CHECKS, norms.CHECKS, operands.CHECKS, quantized.CHECKS, recurrent.CHECKS,
    spatial.CHECKS,
)  # fmt: skip


def has_checks(node: Node) -> bool:
    """Whether :func:`check_node` has anything to ask of a node."""
    return not node.domain and node.op in _CHECKS


def check_node(node: Node, key: Key | None = None) -> None:
    """Refuse a node that can never run.

    Args:
        node: The node.
        key: Its :func:`~tinycomp.ir.infer.node_key`, by which nodes are remembered that have passed; None if it has
            bodies.

    Raises:
        TypeInferenceError: If one of its attributes, constants or shapes contradicts its operator or another of them.
    """
    if not has_checks(node):
        return
    if key is None or not Uncompared(node).ask(_passes_by_key, key):
        _consulted(node)


@functools.lru_cache(maxsize=8192)
def _passes_by_key(holder: Uncompared[Node], key: Key) -> bool:
    """Run the checks; return whether no constant beyond the key mattered, so that all others pass too."""
    return all(informs(value) for value in _consulted(holder.held))


def _consulted(node: Node) -> Set[Value]:
    """Run the checks of a node; return the constants that they have asked for."""
    facts = Facts(node)
    for check in _CHECKS[node.op]:
        check(facts)
    return facts.consulted
