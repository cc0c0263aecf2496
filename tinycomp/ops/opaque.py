"""Operators of domains that nothing is known about: they can be imported, and only a target can run them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from onnx import defs

from tinycomp.errors import UnsupportedError, did_you_mean

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node

_BRIEF = 40


@functools.cache
def _known_domains() -> frozenset[str]:
    return frozenset(s.domain for s in defs.get_all_schemas_with_history())


def is_opaque(node: Node) -> bool:
    """Whether there is neither a schema nor a record nor a body to tell what the node does."""
    from tinycomp.ops import OPS

    if node.is_call or OPS.find(node.op, node.domain) is not None:
        return False
    return node.domain not in _known_domains()  # asked last: collecting the domains takes long


def unknown_form(node: Node) -> UnsupportedError:
    """Return the error for a node that nobody can run: it shows what no definition is for."""
    attributes = ", ".join(f"{name}={_brief(value)}" for name, value in node.attrs.items())
    operands = ", ".join("absent" if v is None else str(v.type) for v in node.inputs)
    return unknown_domain(node.op, node.domain, node.label, f"{node.op} <{attributes}> ({operands})")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 1]}…"


def unknown_domain(op: str, domain: str, where: str, found: str = "") -> UnsupportedError:
    """Return the error for an operator of an unknown domain that nobody can run."""
    return UnsupportedError(
        f'operator {op} belongs to the unknown domain "{domain}"',
        where=where,
        expected="a domain of ONNX, a model-local function, a form with a definition, or a target that takes it",
        found=found,
        hint=did_you_mean(domain, [d or "ai.onnx" for d in sorted(_known_domains())])
        or "Export the model with a function body for this operator, or compile for a target with a rule for it.",
    )
