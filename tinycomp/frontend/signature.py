"""Check what onnx's schema asks of a node, before the node is built.

Inference alone lets much through: a missing attribute, a misspelt one, an absent required operand or a float where an
integer belongs. Each of these would surface later as nonsense, so they are refused here, with the node's name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

from tinycomp.errors import ModelError, TypeInferenceError, did_you_mean
from tinycomp.frontend.loading import shown
from tinycomp.ir.graph import COMPOSITE, REGION, TINYCOMP, Value
from tinycomp.ir.messages import AttributeProto
from tinycomp.ir.proto import ELEMENT_NAMES, NUMBER_BY_DTYPE, attribute_kind
from tinycomp.ir.schemas import NEWEST, OPTIONAL, VARIADIC, Formal, Schema, known_opsets, operators, schema, versions
from tinycomp.ir.types import UNKNOWN, UNKNOWN_DTYPE, MapType, OptionalType, SequenceType, TensorType, Type
from tinycomp.ops import OPS, unknown_domain
from tinycomp.records import dataclass, field

OWN_DOMAINS = frozenset({COMPOSITE, REGION, TINYCOMP})
_KIND_NAMES: Mapping[int, str] = {
    number: name for name, number in vars(AttributeProto).items() if name.isupper() and isinstance(number, int)
}
_TENSOR_NAMES = {dtype: f"tensor({ELEMENT_NAMES[number]})" for dtype, number in NUMBER_BY_DTYPE.items()}

_ANY_NUMBER = 2**31 - 1
"""How many results onnx's schemas allow where any number may come."""


@dataclass(frozen=True)
class Signature:
    """What nodes of an operator are held to.

    Attributes:
        op: Its name.
        schema: What ONNX says of it.
        accepted: Types of operands that have been checked before; there are few.
    """

    op: str
    schema: Schema
    accepted: set[tuple[str | None, ...]] = field(default_factory=set, compare=False)

    @property
    def counts_results(self) -> bool:
        """Whether the number of results says what the operator does, so that a result that is skipped counts."""
        return self.schema.max_output >= _ANY_NUMBER

    def check_attributes(self, attributes: Sequence[AttributeProto], where: str) -> None:
        """Check names and kinds of a node's attributes.

        Raises:
            ModelError: If one is unknown, doubled, of the wrong kind, no text where it is one, or missing.
        """
        known = self.schema.attributes
        given: set[str] = set()
        for attribute in attributes:
            name, kind = attribute.name, attribute.type or attribute_kind(attribute)
            if name in given:
                raise ModelError(f'attribute "{name}" is given twice', where=where)
            given.add(name)
            if name not in known:
                raise ModelError(
                    f'operator {self.op} has no attribute "{name}"',
                    where=where,
                    expected=f"one of {sorted(known)}",
                    hint=did_you_mean(name, known),
                )
            if kind != known[name].kind:
                raise ModelError(
                    f'attribute "{name}" is of the wrong kind',
                    where=where,
                    expected=_KIND_NAMES[known[name].kind],
                    found=_KIND_NAMES.get(kind, str(kind)),
                )
            for text in (attribute.s, *attribute.strings):
                try:
                    text.decode()
                except UnicodeDecodeError as error:
                    raise ModelError(f'attribute "{name}" is not UTF-8', where=where, found=repr(text)) from error
        for name in sorted(name for name, each in known.items() if each.required and name not in given):
            raise ModelError(f'attribute "{name}" is missing', where=where, expected=_KIND_NAMES[known[name].kind])

    def check_operands(self, operands: Sequence[Value | None], outputs: int, where: str) -> None:
        """Check number, presence and element types of a node's operands, and the number of its results.

        Raises:
            ModelError: If a required operand is missing, or there are too many operands or results.
            TypeInferenceError: If an operand has a type that the operator does not take.
        """
        schema = self.schema
        _check_count("inputs", len(operands), schema.min_input, schema.max_input, where)
        _check_count("outputs", outputs, schema.min_output, schema.max_output, where)
        names = tuple([
            None if operand is None
            else _TENSOR_NAMES.get(operand.type.dtype, "") if isinstance(operand.type, TensorType)
            else type_name(operand.type)
            for operand in operands
        ])  # fmt: skip
        if names in self.accepted:
            return
        bound: dict[str, tuple[str, str]] = {}
        for formal, name in zip(self._spread(len(names)), names, strict=False):
            if name is not None:
                self._check_type(formal, name, bound, where)
            elif formal.option not in (OPTIONAL, VARIADIC):
                raise ModelError(f'required input "{formal.name}" is missing', where=where)
        self.accepted.add(names)

    def _spread(self, count: int) -> Iterator[Formal]:
        formals = self.schema.inputs
        yield from formals[:count]
        for _ in range(count - len(formals)):
            yield formals[-1]

    def _check_type(self, formal: Formal, name: str, bound: dict[str, tuple[str, str]], where: str) -> None:
        if not name:
            return
        if formal.types and name not in formal.types:
            raise TypeInferenceError(
                f'input "{formal.name}" has a type that {self.op} version {self.schema.since_version} does not take',
                where=where,
                expected=_some(formal.types),
                found=name,
            )
        if formal.option == VARIADIC and not formal.homogeneous:
            return
        first = bound.setdefault(formal.type_name, (name, formal.name))
        if first[0] != name:
            raise TypeInferenceError(
                f'inputs "{first[1]}" and "{formal.name}" must have one type',
                where=where,
                expected=first[0],
                found=name,
            )


def _some(types: frozenset[str]) -> str:
    names = sorted(types)
    return "one of " + ", ".join(names[:12]) + (", …" if len(names) > 12 else "")


def _check_count(what: str, count: int, least: int, most: int, where: str) -> None:
    if not least <= count <= most:
        limit = str(least) if least == most else f"{least} to {most}"
        many = f"at least {least}" if most > 1 << 20 else limit
        raise ModelError(f"wrong number of {what}", where=where, expected=many, found=str(count))


def type_name(type_: Type) -> str:
    """Return a type as onnx's schemas spell it, such as ``tensor(float)``; empty where it is not fully known."""
    if isinstance(type_, SequenceType):
        inner = type_name(type_.element)
        return f"seq({inner})" if inner else ""
    if isinstance(type_, OptionalType):
        inner = type_name(type_.element)
        return f"optional({inner})" if inner else ""
    if isinstance(type_, MapType) or type_ == UNKNOWN or type_.dtype == UNKNOWN_DTYPE:
        return ""
    return _TENSOR_NAMES[type_.dtype]


def find_signature(op: str, domain: str, opsets: Mapping[str, int], where: str) -> Signature | None:
    """Return the signature in force; None for an operator that only tinycomp or, perhaps, a target knows.

    Raises:
        ModelError: If the domain is not imported, or has no such operator.
        UnsupportedError: If the domain is neither known nor imported.
    """
    known = known_opsets()
    if domain in OWN_DOMAINS or ((domain, op) in OPS.operators and domain not in known):
        return None
    if domain not in known:
        if domain in opsets:
            return None
        raise unknown_domain(op, domain, where)
    if domain not in opsets:
        raise ModelError(f"the opset of domain {shown(domain)} is not imported", where=where,
                         expected="an entry in opset_import")  # fmt: skip
    signature = _signature(op, domain, opsets[domain])
    if signature is None:
        raise _unknown_operator(op, domain, opsets[domain], where)
    return signature


def _is_withdrawn(op: str, domain: str) -> bool:
    """Tell whether the newest version of an operator is deprecated: other deprecated versions have a successor."""
    newest = schema(op, domain, NEWEST)
    return newest is not None and newest.deprecated


@functools.cache
def _signature(op: str, domain: str, opset: int) -> Signature | None:
    known = schema(op, domain, opset)
    if known is None or (known.deprecated and _is_withdrawn(op, domain)):
        return None
    return Signature(op, known)


def _unknown_operator(op: str, domain: str, opset: int, where: str) -> ModelError:
    every = {since: schema(op, domain, since) for since in versions(op, domain)}
    if every and min(every) > opset:
        message = f"operator {op} came with opset {min(every)} of domain {shown(domain)}"
        return ModelError(message, where=where, expected=f"an operator of opset {opset}")
    if every:
        withdrawn = max(since for since, known in every.items() if known is not None and known.deprecated)
        message = f"operator {op} was withdrawn in opset {withdrawn}"
        return ModelError(message, where=where, expected=f"an operator of opset {opset}")
    return ModelError(
        f"unknown operator {op} in domain {shown(domain)}",
        where=where,
        expected=f"an operator of opset {opset}",
        hint=did_you_mean(op, operators(domain)),
    )
