"""Operators of domains that nothing is known about: they can be imported, and only a target can run them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from onnx import defs

from tinycomp.errors import UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node


@functools.cache
def _known_domains() -> frozenset[str]:
    return frozenset(s.domain for s in defs.get_all_schemas_with_history())


def is_opaque(node: Node) -> bool:
    """Whether there is neither a schema nor a record nor a body to tell what the node does."""
    from tinycomp.ops import OPS

    if node.is_call or OPS.find(node.op, node.domain) is not None:
        return False
    return node.domain not in _known_domains()  # asked last: collecting the domains takes long


def unknown_domain(op: str, domain: str, where: str) -> UnsupportedError:
    """Return the error for an operator of an unknown domain that nobody can run."""
    return UnsupportedError(
        f'operator {op} belongs to the unknown domain "{domain}"',
        where=where,
        expected="a domain of ONNX, a model-local function, or a target that takes the operator",
        hint=did_you_mean(domain, [d or "ai.onnx" for d in sorted(_known_domains())])
        or "Export the model with a function body for this operator, or compile for a target with a rule for it.",
    )
