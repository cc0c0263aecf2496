"""Operators of domains outside ONNX's own that ONNX's operators define.

A node of a model that has no function of its own is imported as a call of its definition, so that a target may still
take it whole; else it is inlined. A definition is a function of a :class:`~tinycomp.frontend.definition_body.Body`, the
operands, of which absent ones are None, and the attributes; it returns the results, as many as the operator may have.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tinycomp.errors import ModelError, did_you_mean
from tinycomp.frontend.definition_body import Body
from tinycomp.index import EXTENSIONS
from tinycomp.ir.graph import Attr, Graph, Node, Value
from tinycomp.ir.types import UNKNOWN
from tinycomp.lazy import LazyTable
from tinycomp.ops.record import heads
from tinycomp.ops.typing import infer_node_types
from tinycomp.records import dataclass

OWN = "tinycomp.definition"
"""A domain in the opsets of a body that defines an operator."""

Optional = Value | None
Results = Value | Sequence[Value]
_Define = TypeVar("_Define", bound=Callable[..., Results])


@functools.cache
def _parameters(function: Callable[..., Results]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a definition: asked for several times a node, and slow to find out."""
    return inspect.signature(function).parameters


@dataclass(frozen=True)
class Extension:
    """How an operator is defined.

    Attributes:
        function: Adds the definition to a body.
        since: The opset from which on the definition means the same in every opset.
        passed: Attributes that go on to an operator of ONNX's own or to another definition, which know their defaults.
        domain: Where it belongs.
    """

    function: Callable[..., Results]
    since: int
    passed: frozenset[str]
    domain: str

    @property
    def operands(self) -> int | None:
        """The most operands; None for any number."""
        kinds = [p.kind for p in _parameters(self.function).values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            return None
        return kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) - 1  # the first one is the body

    @property
    def least_operands(self) -> int:
        """The fewest operands."""
        parameters = _parameters(self.function).values()
        needed = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
        return len(needed) - 1

    @property
    def attributes(self) -> frozenset[str]:
        """The attributes that the operator may have."""
        parameters = _parameters(self.function).values()
        return self.passed.union(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)

    @property
    def required(self) -> frozenset[str]:
        """The attributes that it must have."""
        parameters = _parameters(self.function).values()
        return frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty)

    def check_attributes(self, op: str, attrs: Mapping[str, Attr], where: str) -> None:
        """Check names and kinds of a node's attributes; those that are passed on are checked where they are used.

        Raises:
            ModelError: If one is unknown or of the wrong kind.
        """
        parameters = _parameters(self.function)
        for name, value in attrs.items():
            if name not in self.attributes:
                raise ModelError(
                    f'{self.domain or "ai.onnx"}::{op} has no attribute "{name}"',
                    where=where,
                    expected=f"one of {sorted(self.attributes)}",
                    hint=did_you_mean(name, self.attributes),
                )
            if name not in self.passed and not _is_of_kind(value, parameters[name].annotation):
                raise ModelError(
                    f'attribute "{name}" is of the wrong kind',
                    where=where,
                    expected=parameters[name].annotation.removesuffix(" | None"),
                    found=f"{type(value).__name__} {value!r}"[:80],
                )


_ELEMENTS: Mapping[str, tuple[type, ...]] = {
    "int": (int,), "float": (float, int), "str": (str,), "bytes": (str, bytes), "object": (object,),
}  # fmt: skip
"""What an attribute may be, by the annotation of the parameter that takes it."""


def _is_of_kind(value: Attr, annotation: str) -> bool:
    """Tell whether an attribute is what the parameter of a definition wants; text has to be UTF-8."""
    wanted = annotation.removesuffix(" | None")
    elements = wanted.removeprefix("Sequence[").removesuffix("]")
    if (elements != wanted) != isinstance(value, (list, tuple)) and wanted != "object":
        return False
    kinds = tuple(kind for name in elements.split(" | ") for kind in _ELEMENTS[name])
    values = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(v, kinds) for v in values)


class Extensions:
    """The definitions of one file, filled by its decorator while the file is imported.

    Args:
        domain: Where the operators belong that do not say otherwise.

    Attributes:
        definitions: By domain and name of the operator.
    """

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.definitions: dict[tuple[str, str], Extension] = {}

    def defines(
        self, op: str, since: int, passed: Iterable[str] = (), domain: str | None = None
    ) -> Callable[[_Define], _Define]:
        """Make the decorated function the definition of an operator, the same from the opset ``since`` on."""
        key = self.domain if domain is None else domain, op

        def register(function: _Define) -> _Define:
            assert key not in self.definitions, key
            self.definitions[key] = Extension(function, since, frozenset(passed), key[0])
            return function

        return register


_EXTENSIONS = LazyTable[tuple[str, str], Extension](
    __package__,
    {file: heads(names) for file, names in EXTENSIONS.items()},
    lambda module: module.EXTENSIONS.definitions,
)


def is_extension(domain: str, op: str) -> bool:
    """Tell whether there is a definition of an operator."""
    return (domain, op) in _EXTENSIONS


def operators(domain: str | None = None) -> list[str]:
    """Return the names of the operators that have a definition, all of them or those of a domain."""
    return sorted(op for own_domain, op in _EXTENSIONS if domain in (None, own_domain))


def is_extension_call(node: Node) -> bool:
    """Tell whether a node of a graph is a call of a definition, and so an operator of another domain."""
    return node.is_call and OWN in node.body.opsets


def extension(draft: Node, outputs: int, opset: int, where: str) -> Graph | None:
    """Return what defines a node, as the body of a call; None if its form is not covered.

    Args:
        draft: The node with domain, operator, attributes, and operands, of which the last may be left out.
        outputs: How many results it has.
        opset: The version of ONNX's own operators around the node; the definition has it, too, unless it is too old.
        where: The node, for messages.

    Raises:
        ModelError: If it has an attribute that the operator does not have, or one of the wrong kind.
        TypeInferenceError: If the operands do not fit the definition.
    """
    definition = _EXTENSIONS[draft.domain, draft.op]
    definition.check_attributes(draft.op, draft.attrs, where)
    if definition.required - draft.attrs.keys() or len(draft.inputs) < definition.least_operands:
        return None
    if definition.operands is not None and len(draft.inputs) > definition.operands:
        return None
    graph = Graph(draft.op, infer=infer_node_types, opsets={"": max(opset, definition.since), OWN: 1})
    formals = []
    for value in draft.inputs:
        formal = graph.add_input(
            graph.fresh("x" if value is None else value.name), UNKNOWN if value is None else value.type
        )
        formals.append(None if value is None else formal)
    body = Body(graph)
    try:
        given = definition.function(body, *formals, **draft.attrs)
    except (NotCoveredError, ArithmeticError):
        return None
    results = [given] if isinstance(given, Value) else list(given)
    if not 0 < outputs <= len(results):
        return None
    graph.set_outputs(results[:outputs])
    return graph


class NotCoveredError(Exception):
    """A part of a definition does not cover its operands or attributes."""


def covered(condition: object) -> None:
    """Leave a definition whose form does not cover the operands or attributes."""
    if not condition:
        raise NotCoveredError
