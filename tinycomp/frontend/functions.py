"""Resolve model-local functions: their table, their attributes, and the proof that none calls itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tinycomp.errors import ModelError, UnsupportedError, did_you_mean
from tinycomp.frontend.loading import check_text, normal_domain, opset_imports
from tinycomp.frontend.naming import bodies_of, check_nesting, produced_names, unique
from tinycomp.ir.messages import AttributeProto, FunctionProto, NodeProto
from tinycomp.ir.proto import attribute_kind
from tinycomp.records import dataclass

Key = tuple[str, str, str]
"""Domain, name, overload."""
_MAX_EXPANDED = 250_000


@dataclass(frozen=True)
class LocalFunction:
    """A function of the model, checked once.

    Attributes:
        proto: Its definition.
        opsets: Its own opset imports.
        defaults: Default values of its optional attributes.
    """

    proto: FunctionProto
    opsets: Mapping[str, int]
    defaults: Mapping[str, AttributeProto]

    @property
    def label(self) -> str:
        """The name for messages."""
        return f"function {self.proto.domain}::{self.proto.name}"

    def environment(self, attributes: Sequence[AttributeProto], where: str) -> dict[str, AttributeProto]:
        """Return the attributes that the function's body may refer to at a call with ``attributes``.

        Raises:
            ModelError: If the call gives an attribute that the function does not have, or leaves a required one out.
        """
        given = {a.name: a for a in attributes}
        known = {*self.proto.attribute, *self.defaults}
        for name in given:
            if name not in known:
                raise ModelError(
                    f'{self.label} has no attribute "{name}"',
                    where=where,
                    expected=f"one of {sorted(known)}",
                    hint=did_you_mean(name, known),
                )
        for name in self.proto.attribute:
            if name not in given and name not in self.defaults:
                raise ModelError(f'attribute "{name}" of {self.label} is missing', where=where)
        return {**self.defaults, **given}


class FunctionTable:
    """The model-local functions of a model.

    Args:
        protos: Their definitions.
        ir_version: IR version of the model.

    Raises:
        ModelError: If two have the same key, a name in one is defined twice, or one calls itself.
    """

    def __init__(self, protos: Sequence[FunctionProto], ir_version: int) -> None:
        self._functions: dict[Key, LocalFunction] = {}
        self._sizes: dict[Key, int] = {}
        for proto in protos:
            for text in (proto.domain, proto.name, proto.overload, *proto.attribute):
                check_text(text, "a function")
            key = (normal_domain(proto.domain), proto.name, proto.overload)
            where = f"function {proto.domain}::{proto.name}"
            if key in self._functions:
                raise ModelError("the function is defined twice", where=where)
            names = unique(list(proto.input), set(), "input", where)
            unique(produced_names(proto.node), names, "result", where)
            check_nesting(proto.node, where)
            defaults = {a.name: a for a in proto.attribute_proto}
            self._functions[key] = LocalFunction(proto, opset_imports(proto, where, ir_version), defaults)
        self._check_recursion()

    def find(self, node: NodeProto) -> LocalFunction | None:
        """Return the function that a node calls, or None."""
        return self._functions.get(_key(node)) if self._functions else None

    def check_expansion(self, nodes: Sequence[NodeProto], where: str) -> None:
        """Refuse a graph whose calls, each with a body of its own, would become too many nodes.

        Raises:
            UnsupportedError: If the bodies would have more than 250,000 nodes together.
        """
        expanded = self._expanded(nodes) if self._functions else 0
        if expanded > _MAX_EXPANDED:
            raise UnsupportedError(
                "the function calls expand to too many nodes",
                where=where,
                expected=f"up to {_MAX_EXPANDED} nodes",
                found=f"about {expanded:.1e}" if expanded > 1e9 else str(expanded),
            )

    def _check_recursion(self) -> None:
        """Walk the call graph depth first, iteratively; refuse a call back to a function still open, and note sizes."""
        for start in self._functions:
            path: dict[Key, None] = {}
            stack = [(start, False)]
            while stack:
                key, leaving = stack.pop()
                if leaving:
                    del path[key]
                    self._sizes[key] = self._expanded(self._functions[key].proto.node)
                elif key in path:
                    names = [k[1] for k in path]
                    cycle = [*names[list(path).index(key) :], key[1]]
                    raise ModelError(f"the function calls itself: {' -> '.join(cycle)}", where=f"function {key[1]}")
                elif key not in self._sizes:
                    path[key] = None
                    stack.append((key, True))
                    stack.extend((k, False) for k in self._calls(self._functions[key].proto.node))

    def _expanded(self, nodes: Sequence[NodeProto]) -> int:
        """Return the number of nodes that the calls among ``nodes`` bring, with ``nodes`` themselves."""
        return len(nodes) + sum(self._sizes[key] * count for key, count in self._calls(nodes).items())

    def _calls(self, nodes: Sequence[NodeProto]) -> Counter[Key]:
        calls: Counter[Key] = Counter()
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if _key(node) in self._functions:
                calls[_key(node)] += 1
            for body in bodies_of(node):
                pending.extend(body.node)
        return calls


def _key(node: NodeProto) -> Key:
    return (normal_domain(node.domain), node.op_type, node.overload)


def resolve(
    attributes: Sequence[AttributeProto], environment: Mapping[str, AttributeProto] | None, where: str
) -> list[AttributeProto]:
    """Replace references to a function's attributes by their values at this call; absent ones are left out.

    Raises:
        ModelError: If there is a reference outside a function, or one of another kind than the value.
    """
    resolved = []
    for attribute in attributes[:]:
        if not attribute.ref_attr_name:
            resolved.append(attribute)
            continue
        check_text(attribute.ref_attr_name, where)
        if environment is None:
            raise ModelError(
                f'attribute "{attribute.name}" refers to an attribute of a function, but this is not a function',
                where=where,
                found=attribute.ref_attr_name,
            )
        value = environment.get(attribute.ref_attr_name)
        if value is None:
            continue
        if attribute.type and attribute_kind(value) != attribute.type:
            raise ModelError(
                f'attribute "{attribute.name}" refers to "{attribute.ref_attr_name}", which is of another kind',
                where=where,
            )
        copy = type(value)()
        copy.CopyFrom(value)
        copy.name = attribute.name
        resolved.append(copy)
    return resolved
