"""What ONNX's schemas allow of an operator in any version, for those who describe nodes before they have seen one."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from tinycomp.errors import did_you_mean
from tinycomp.ir.messages import AttributeProto
from tinycomp.ir.schemas import NEWEST, operators, schema
from tinycomp.ops import OPS
from tinycomp.records import dataclass

_CLOSED = ("", "ai.onnx.ml")
"""Domains of which every operator is known."""
_FORMS: Mapping[int, tuple[tuple[type, ...], str]] = {
    AttributeProto.INT: ((int, np.integer, np.bool_), "a whole number"),
    AttributeProto.FLOAT: ((int, float, np.number), "a number"),
    AttributeProto.STRING: ((str, bytes), "a text"),
    AttributeProto.INTS: ((list, tuple, np.ndarray), "several whole numbers, such as [1, 1]"),
    AttributeProto.FLOATS: ((list, tuple, np.ndarray), "several numbers, such as [0.5, 0.5]"),
    AttributeProto.STRINGS: ((list, tuple), "several texts"),
}
"""By the type of an attribute, the types of values that it may have, and how to say so."""


@dataclass(frozen=True)
class Signature:
    """Hold what one version or another of an operator has.

    Attributes:
        attributes: Kinds of attributes by name.
        least: Fewest operands.
        most: Most operands.
    """

    attributes: Mapping[str, frozenset[int]]
    least: int
    most: int


@functools.cache
def signature(op: str, domain: str) -> Signature:
    """Return the signature over all versions of an operator that has a schema."""
    attributes: dict[str, frozenset[int]] = {}
    least, most, version = NEWEST, 0, NEWEST
    while (found := schema(op, domain, version)) is not None:
        for name, attribute in found.attributes.items():
            attributes[name] = attributes.get(name, frozenset()) | {attribute.kind}
        least, most, version = min(least, found.min_input), max(most, found.max_input), found.since_version - 1
    return Signature(attributes, least, most)


def unknown_operator(op: str, domain: str) -> str | None:
    """Return a hint if there is no such operator in a domain whose operators are all known, else None."""
    if domain not in _CLOSED or (domain, op) in OPS.operators or schema(op, domain, NEWEST) is not None:
        return None
    names = {name for own_domain, name in OPS.operators if own_domain == domain}
    names |= operators(domain)
    elsewhere = min((own_domain for own_domain, name in OPS.operators if name == op and own_domain), default="")
    if elsewhere:
        return f'Did you mean "{elsewhere}::{op}"?'
    return did_you_mean(op, sorted(names)) or "Operators of other domains are written with these: com.vendor::Op."


def lacks_attribute(op: str, domain: str, name: str) -> bool:
    """Tell whether no version of an operator has an attribute; False for operators without a schema."""
    newest = schema(op, domain, NEWEST)
    return newest is not None and name not in newest.attributes and name not in signature(op, domain).attributes


def misfit(op: str, domain: str, name: str, value: object) -> str | None:
    """Return what an attribute must be, where it can never have ``value`` in any version; None where it can."""
    newest = schema(op, domain, NEWEST)
    if newest is None or (name in newest.attributes and _fits(value, newest.attributes[name].kind)):
        return None
    types = sorted(signature(op, domain).attributes.get(name, ()))
    if not types or any(_fits(value, each) for each in types):
        return None
    return " or ".join(_FORMS[each][1] for each in types)


def _fits(value: object, kind: int) -> bool:
    return kind not in _FORMS or isinstance(value, _FORMS[kind][0])


def takes_operands(op: str, domain: str, count: int, more: bool) -> bool:
    """Tell whether some version takes ``count`` operands, with ``more`` at least so many; True without a schema."""
    newest = schema(op, domain, NEWEST)
    if newest is None or (count <= newest.max_input and (more or count >= newest.min_input)):
        return True
    known = signature(op, domain)
    return count <= known.most and (more or count >= known.least)
