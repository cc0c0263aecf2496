"""Inserting one imported node: its operands, its results, and the types that the model declares for them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from tinycomp.errors import ModelError, TinycompWarning, TypeInferenceError
from tinycomp.frontend.scope import Context, Scope
from tinycomp.ir.graph import Attr, Graph, Node, Value
from tinycomp.ir.infer import check_declared
from tinycomp.ir.proto import attribute_from_proto
from tinycomp.ir.types import UNKNOWN, TensorType, Type
from tinycomp.ops.typing import present

_AS_ARRAY: Mapping[str, Callable[[Attr], np.ndarray]] = {
    "value": lambda v: v,
    "sparse_value": lambda v: v,
    "value_float": lambda v: np.array(v, np.float32),
    "value_floats": lambda v: np.array(v, np.float32),
    "value_int": lambda v: np.array(v, np.int64),
    "value_ints": lambda v: np.array(v, np.int64),
    "value_string": lambda v: np.array(v, object),
    "value_strings": lambda v: np.array(v, object),
}


def constant_array(attributes: Sequence[onnx.AttributeProto], context: Context, where: str) -> np.ndarray:
    """Return the array of a Constant node.

    Raises:
        ModelError: If the node does not have exactly one value.
    """
    if len(attributes) != 1:
        raise ModelError(
            "a Constant needs exactly one value",
            where=where,
            expected=f"one of {sorted(_AS_ARRAY)}",
            found=str([a.name for a in attributes]),
        )
    value = attribute_from_proto(attributes[0], where, context.read_external)
    return _AS_ARRAY[attributes[0].name](value)


def operands_of(scope: Scope, node: onnx.NodeProto, least: int, where: str) -> list[Value | None]:
    """Return the operands of a node without the absent ones at its end, but at least ``least``.

    Raises:
        ModelError: If one is never produced.
    """
    names = node.input[:]
    while len(names) > least and not names[-1]:
        names.pop()
    return [scope.lookup(name, where) for name in names]


def result_names(node: onnx.NodeProto, least: int) -> list[str]:
    """Return the result names of a node without the skipped ones at its end, but at least ``least``."""
    names: list[str] = node.output[:]
    while len(names) > max(least, 1) and not names[-1]:
        names.pop()
    return names


def insert(
    scope: Scope,
    draft: Node,
    outputs: Sequence[str],
    context: Context,
    *,
    bodies: Mapping[str, Graph] | None = None,
) -> Node:
    """Add a node to the graph of a scope, bind its results, and check their types against the declared ones.

    Args:
        scope: The scope.
        draft: Operator, domain, version, operands, attributes, captures, target and source name of the new node.
        outputs: Result names.
        context: The context.
        bodies: Nested graphs.

    Raises:
        TypeInferenceError: If the operands do not fit the operator.
        ModelError: If a declared type contradicts the inferred one.
    """
    added = scope.graph.add(
        draft.op,
        draft.inputs,
        draft.attrs,
        domain=draft.domain,
        version=draft.version,
        outputs=outputs,
        bodies=bodies,
        captures=draft.captures,
        target=draft.target,
        sources=draft.sources,
    )
    for value in added.outputs:
        if value.name:
            declared = scope.declared.get(value.name)
            if declared is not None:
                _check_kind(value, declared)
                if not context.reshaped:
                    _check_shape(value, declared)
                check_declared(value, declared)
            scope.define(value.name, value)
    return added


def _check_kind(value: Value, declared: Type) -> None:
    if UNKNOWN not in (declared, value.type) and type(present(declared)) is not type(present(value.type)):
        raise TypeInferenceError(
            "the declared type contradicts the inferred one",
            where=f'value "{value.name}"',
            expected=str(value.type),
            found=str(declared),
        )


def _check_shape(value: Value, declared: Type) -> None:
    """Warn of a declared shape that cannot be right: exporters leave such behind, and inference knows better."""
    if not isinstance(declared, TensorType) or not isinstance(value.type, TensorType):
        return
    stated, found = declared.shape, value.type.shape
    if stated is None or found is None:
        return
    pairs = zip(stated, found, strict=False)
    if len(stated) != len(found) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        message = f'value "{value.name}": declared as {declared}, but it is {value.type}; the declaration is ignored'
        warnings.warn(message, TinycompWarning, stacklevel=2)
