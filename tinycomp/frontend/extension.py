"""Operators of other domains that stand for a few of ONNX's: their definitions, in ONNX's own text.

The files in ``extensions`` hold functions; a node of a model that has none of its own is imported as a call of one. A
function may have several forms. What a form is for stands behind its name, after two underscores each:

- ``with_x``, ``without_x``: whether the operand or attribute ``x`` is there;
- ``x_is_v``, ``x_is_v_or_w``, ``x_below_n``: the value of the attribute ``x``, which may be its default;
- ``X_has_rank_n``: the rank of the operand ``X``;
- ``X_like_Z``: whether the operands ``X`` and ``Z`` are of one element type.

The first form that is for a node defines it; a node that none is for stays what it is. ``[[…]]`` is repeated for the
operands that are left over, with their number in the place of ``$``. Attributes without a default may be absent. A call
that gives a list of numbers as ``x`` gives its first as ``x_0``, and so on, for definitions to refer to. A definition
has to mean the same in every opset from that in the head of its file on.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import onnx

from tinycomp.frontend.functions import LocalFunction
from tinycomp.frontend.loading import normal_domain, opset_imports
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import TensorType

OWN = "tinycomp.definition"
"""The domain of functions that only other definitions call."""
_IR_VERSION = 10
_SUFFIX = ".onnxtxt"
_REPEATED = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_NAME = re.compile(r"\w+")
_CONDITION = re.compile(
    r"(?P<how>with|without)_(?P<what>\w+)|(?P<name>\w+?)_(?P<test>is|below|has_rank|like)_(?P<value>.*)"
)


def is_extension(node: onnx.NodeProto) -> bool:
    """Whether there are definitions of the node's operator."""
    return bool(node.domain) and (normal_domain(node.domain), node.op_type) in _forms()


def extension(
    node: onnx.NodeProto, attributes: Sequence[onnx.AttributeProto], operands: Sequence[Value | None], opset: int
) -> LocalFunction | None:
    """Return the definition of a node, if there is one for its attributes and operands.

    Args:
        node: The node; only its name, its domain and the number of its results are looked at.
        attributes: Its attributes, none of which refers to a function's.
        operands: Its operands, of which the last may be left out.
        opset: The version of ONNX's own operators around the node; the definition has it, too, unless it is too old.
    """
    for text in _forms().get((normal_domain(node.domain), node.op_type), ()):
        form = text.form(len(operands))
        if (
            form is not None
            and form.is_for(attributes, operands)
            and len(node.output) <= len(form.function.proto.output)
        ):
            opsets = form.function.opsets
            defaults = {**form.function.defaults, **_elements(attributes)}
            return replace(form.function, opsets={**opsets, "": max(opset, opsets[""])}, defaults=defaults)
    return None


def _elements(attributes: Sequence[onnx.AttributeProto]) -> dict[str, onnx.AttributeProto]:
    """Return the elements of lists of numbers by the name of the list and their place."""
    lists = [(a.name, [*a.floats, *a.ints]) for a in attributes]
    return {f"{name}_{i}": onnx.helper.make_attribute(f"{name}_{i}", v) for name, vs in lists for i, v in enumerate(vs)}


def is_extension_call(node: Node) -> bool:
    """Whether a node of a graph is a call of such a definition, and so an operator of another domain."""
    return node.is_call and OWN in node.body.opsets


@dataclass(frozen=True)
class _Form:
    """A function and what it is for."""

    function: LocalFunction
    conditions: tuple[re.Match[str], ...]

    def gives(self, outputs: int) -> bool:
        """Whether the function has so many results."""
        return outputs <= len(self.function.proto.output)

    def is_for(self, attributes: Sequence[onnx.AttributeProto], operands: Sequence[Value | None]) -> bool:
        """Whether all conditions hold for a node."""
        formals = self.function.proto.input
        if len(operands) > len(formals):
            return False
        given = {**self.function.defaults, **{a.name: a for a in attributes}}
        values = {name: onnx.helper.get_attribute_value(a) for name, a in given.items()}
        present = {name: v for name, v in zip(formals, operands, strict=False) if v is not None}
        return all(_holds(condition, values, present) for condition in self.conditions)


def _holds(condition: re.Match[str], values: Mapping[str, Any], operands: Mapping[str, Value]) -> bool:
    if condition["how"]:
        there = condition["what"] in operands or condition["what"] in values
        return there == (condition["how"] == "with")
    if condition["test"] in ("has_rank", "like"):
        return _operand_holds(condition, operands)
    value = values.get(condition["name"])
    if condition["test"] == "below":
        return isinstance(value, int) and value < int(condition["value"])
    return (value.decode() if isinstance(value, bytes) else str(value)) in condition["value"].split("_or_")


def _operand_holds(condition: re.Match[str], operands: Mapping[str, Value]) -> bool:
    type_ = _tensor_type(operands, condition["name"])
    if condition["test"] == "has_rank":
        return type_ is not None and type_.rank == int(condition["value"])
    other = _tensor_type(operands, condition["value"])
    return type_ is not None and other is not None and type_.dtype == other.dtype


def _tensor_type(operands: Mapping[str, Value], name: str) -> TensorType | None:
    type_ = operands[name].type if name in operands else None
    return type_ if isinstance(type_, TensorType) else None


@dataclass(frozen=True)
class _Text:
    """One function of a file.

    Attributes:
        header: Its domain and opsets.
        body: The rest.
    """

    header: str
    body: str

    @property
    def name(self) -> str:
        """Its name with its conditions."""
        found = _NAME.match(self.body)
        assert found is not None, self.body
        return found[0]

    def form(self, operands: int) -> _Form | None:
        """Return the function for a number of operands; None if something of it would have to be repeated in part."""
        repeated = _REPEATED.search(self.body)
        if repeated is None:
            return _form(self, 0)
        signature = self.body[: repeated.start()].rpartition("(")[2]
        left = operands - len(_NAME.findall(signature))
        times, rest = divmod(left, repeated[1].count("$"))
        return None if rest or times < 1 else _form(self, times)


@functools.lru_cache(256)
def _form(text: _Text, times: int) -> _Form:
    def spread(found: re.Match[str]) -> str:
        between = "\n" if "=" in found[1] else ", "
        return between.join(found[1].replace("$", str(i)) for i in range(times))

    proto = onnx.parser.parse_function(text.header + _REPEATED.sub(spread, text.body))
    proto.name, *conditions = proto.name.split("__")
    optional = frozenset(proto.attribute)
    del proto.attribute[:]  # those that a call must give
    found = [_CONDITION.fullmatch(condition) for condition in conditions]
    assert all(found), text.name
    defaults = {a.name: a for a in proto.attribute_proto}
    function = LocalFunction(proto, opset_imports(proto, text.name, _IR_VERSION), defaults, optional)
    return _Form(function, tuple(c for c in found if c is not None))


@functools.cache
def _forms() -> Mapping[tuple[str, str], tuple[_Text, ...]]:
    """Return the forms of every operator by domain and name, in the order of the files."""
    forms: dict[tuple[str, str], list[_Text]] = {}
    folder = importlib.resources.files("tinycomp.frontend") / "extensions"
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if not file.name.endswith(_SUFFIX):
            continue
        header, *functions = _blocks(file.read_text(encoding="utf-8"))
        domain = header.split('"')[1]
        for body in functions:
            text = _Text(header, body)
            forms.setdefault((domain, text.name.partition("__")[0]), []).append(text)
    return MappingProxyType({key: tuple(texts) for key, texts in forms.items()})


def _blocks(text: str) -> list[str]:
    """Return what stands between empty lines, without comments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    return [block.strip() for block in re.split(r"\n\s*\n", lines) if block.strip()]


def operators() -> dict[str, list[str]]:
    """Return the names of the operators that models may have, by domain."""
    found: dict[str, set[str]] = {}
    for domain, name in _forms():
        if domain != OWN:
            found.setdefault(domain, set()).add(name)
    return {domain: sorted(names) for domain, names in found.items()}
