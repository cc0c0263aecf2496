"""What ONNX's schemas say of operators, without onnx, whose import takes longer than most compiles.

``schemas.json`` holds it, written by ``.ci/index`` from an installed onnx package; a test compares the two. Of opsets
that are newer than the file the installed package is asked.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SINGLE, OPTIONAL, VARIADIC = range(3)
"""Whether a formal parameter must be there, may be absent, or stands for any number of operands."""
NEWEST = 1 << 30
"""Asks for an operator as the newest opset has it."""


class Formal(NamedTuple):
    """An operand that an operator has.

    Attributes:
        name: Its name.
        option: :data:`SINGLE`, :data:`OPTIONAL` or :data:`VARIADIC`.
        homogeneous: Whether the operands that a variadic one stands for have one type.
        type_name: The name of its type; operands of one name have one type.
        types: The types that it may have, as ONNX spells them.
    """

    name: str
    option: int
    homogeneous: bool
    type_name: str
    types: frozenset[str]


class Attribute(NamedTuple):
    """An attribute that an operator has: its kind (``AttributeProto.type``), and a default, or None without one."""

    kind: int
    required: bool
    default: Any


class Schema(NamedTuple):
    """An operator of one version.

    Attributes:
        since_version: The version.
        deprecated: Whether it is withdrawn.
        has_function: Whether ONNX defines it by other operators.
        inputs: Its operands.
        outputs: For each result :data:`SINGLE`, :data:`OPTIONAL` or :data:`VARIADIC`.
        attributes: Its attributes by name.
        min_input: The fewest operands; ``max_input``, ``min_output`` and ``max_output`` likewise.
    """

    since_version: int
    deprecated: bool
    has_function: bool
    inputs: tuple[Formal, ...]
    outputs: tuple[int, ...]
    attributes: Mapping[str, Attribute]
    min_input: int
    max_input: int
    min_output: int
    max_output: int


@functools.cache
def schema(op: str, domain: str, version: int) -> Schema | None:
    """Return the schema in force at ``version``, or None for an operator that ONNX does not define."""
    newest = known_opsets().get(domain)
    if newest is None:
        return None
    if newest < version < NEWEST:
        return _installed(op, domain, version)
    rows = _rows(_key(op, domain))
    place = next((i for i in reversed(range(len(rows))) if rows[i][0] <= version), None)
    return None if place is None else _of_row(op, domain, place)


def since_version(op: str, domain: str, opset: int | None) -> int:
    """Return the version of the operator in force in ``opset`` (None: the newest); 1 where ONNX has no schema."""
    known = schema(op, domain, NEWEST if opset is None else opset)
    return 1 if known is None else known.since_version


@functools.cache
def versions(op: str, domain: str) -> tuple[int, ...]:
    """Return the versions of an operator, oldest first."""
    return tuple([row[0] for row in _rows(_key(op, domain))])


@functools.cache
def operators(domain: str) -> frozenset[str]:
    """Return the names of a domain's operators, withdrawn ones among them."""
    split = (key.rpartition("::") for key in _known()["operators"])
    return frozenset(name for own, _, name in split if own == domain)


def known_opsets() -> Mapping[str, int]:
    """Return the newest opset of each domain that the file knows."""
    opsets: Mapping[str, int] = _known()["opsets"]
    return opsets


def known_ir_version() -> int:
    """Return the newest IR version that the file knows."""
    return int(_known()["ir_version"])


def installed() -> tuple[Mapping[str, int], int]:
    """Return the newest opset of each domain and the newest IR version that the installed onnx package knows."""
    onnx = importlib.import_module("onnx")
    return _opsets(onnx), int(onnx.IR_VERSION)


def described(onnx: Any) -> dict[str, Any]:
    """Return what the file is to hold, of an onnx package."""
    every = sorted(onnx.defs.get_all_schemas_with_history(), key=lambda s: (s.domain, s.name, s.since_version))
    types: dict[frozenset[str], int] = {}
    rows: dict[str, list[Any]] = {}
    for found in every:
        rows.setdefault(_key(found.name, found.domain), []).append(_row(found, types))
    named = [sorted(each) for each in types]
    head = {"onnx": onnx.__version__, "ir_version": int(onnx.IR_VERSION), "opsets": _opsets(onnx)}
    return head | {"types": named, "operators": rows}


def _key(op: str, domain: str) -> str:
    return f"{domain}::{op}" if domain else op


def _opsets(onnx: Any) -> dict[str, int]:
    newest = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": onnx.defs.onnx_ml_opset_version()}
    return newest | dict.fromkeys(("ai.onnx.preview", "ai.onnx.preview.training"), 1)


@functools.cache
def _known() -> Mapping[str, Any]:
    """Return what the file says, with types and operators, a line each, as texts: few are needed, and all take long."""
    lines = Path(__file__).with_name("schemas.json").read_text(encoding="utf-8").replace(",\n", "\n").splitlines()
    types, operators = lines.index('"types":['), lines.index('"operators":{')
    head: dict[str, Any] = json.loads(f"{{{','.join(lines[1:types])}}}")
    rows = [line.split(":[", 1) for line in lines[operators + 1 : -2]]
    return head | {"types": lines[types + 1 : operators - 1], "operators": {key[1:-1]: f"[{row}" for key, row in rows}}


@functools.cache
def _rows(key: str) -> Sequence[Any]:
    text = _known()["operators"].get(key)
    rows: Sequence[Any] = () if text is None else json.loads(text)
    return rows


@functools.cache
def _of_row(op: str, domain: str, place: int) -> Schema:
    row, types = _rows(_key(op, domain))[place], _known()["types"]
    return _schema(row, {number: json.loads(types[number]) for *_, number in row[3]})


def _installed(op: str, domain: str, version: int) -> Schema | None:
    """Return what the installed onnx package says of an opset that the file does not know."""
    defs = importlib.import_module("onnx.defs")
    try:
        found = defs.get_schema(op, max_inclusive_version=version, domain=domain)
    except defs.SchemaError:
        return None
    types: dict[frozenset[str], int] = {}
    return _schema(_row(found, types), {number: sorted(each) for each, number in types.items()})


def _row(found: Any, types: dict[frozenset[str], int]) -> list[Any]:
    """Return a schema of onnx as the file has it; ``types`` numbers sets of types."""
    numbered = [types.setdefault(frozenset(p.types), len(types)) for p in found.inputs]
    return [
        int(found.since_version),
        int(found.deprecated),
        int(bool(found.all_function_opset_versions)),
        [
            [p.name, int(p.option.value), int(p.is_homogeneous), p.type_str, number]
            for p, number in zip(found.inputs, numbered, strict=True)
        ],
        [int(p.option.value) for p in found.outputs],
        {name: _attribute(found.attributes[name]) for name in sorted(found.attributes)},
        found.min_input,
        found.max_input,
        found.min_output,
        found.max_output,
    ]


def _attribute(found: Any) -> list[Any]:
    row = [int(found.type.value), int(found.required)]
    if not found.default_value.name:
        return row
    value = importlib.import_module("onnx.helper").get_attribute_value(found.default_value)
    values = [each.decode() if isinstance(each, bytes) else each for each in (value if _is_many(value) else [value])]
    return [*row, values if _is_many(value) else values[0]]


def _is_many(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _schema(row: Sequence[Any], types: Mapping[int, Sequence[str]]) -> Schema:
    since, deprecated, has_function, inputs, outputs, attributes, *counts = row
    formals = [Formal(name, option, bool(alike), of, frozenset(types[at])) for name, option, alike, of, at in inputs]
    known = {
        name: Attribute(kind, bool(required), default[0] if default else None)
        for name, (kind, required, *default) in attributes.items()
    }
    return Schema(since, bool(deprecated), bool(has_function), tuple(formals), tuple(outputs), known, *counts)
