"""The last tier: operators without a kernel of their own run in ``onnx.reference``.

A one-node model is built and an evaluator made from it once per node, never per call. The evaluator is ONNX's own and
slow, but knows nearly every operator, those of ``ai.onnx.ml`` included. It is not meant for untrusted input, so the
importer and the module validate everything in front of it, and whatever it raises becomes a typed error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tinycomp.errors import ExecutionError, UnsupportedError
from tinycomp.ir.schemas import schema
from tinycomp.ir.to_proto import attribute_to_proto, type_to_proto
from tinycomp.ir.types import UNKNOWN, TensorType, Type, numpy_dtype
from tinycomp.ops.cast import cast_array

Bound = Callable[..., tuple[Any, ...]]
_IR_VERSION = 10


def bind_reference(
    op: str,
    domain: str,
    version: int,
    attrs: Mapping[str, Any],
    input_types: Sequence[Type | None],
    output_types: Sequence[Type | None],
    where: str = "",
) -> Bound:
    """Return a function of the operand arrays that runs one operator in ``onnx.reference``.

    Args:
        op: Operator name.
        domain: Operator domain.
        version: The operator's since-version.
        attrs: Attributes as plain Python values.
        input_types: Types of the operands, None for an absent optional one.
        output_types: Types of the results, None for one that is not wanted.
        where: Name of the node, for messages.

    Returns:
        A function that takes one argument per input (None for an absent one) and returns one result per output (None
        for one that is not wanted), with the dtypes of ``output_types``.

    Raises:
        UnsupportedError: If ``onnx.reference`` does not know the operator.
    """
    from onnx.reference import ReferenceEvaluator

    model = _single_node_model(op, domain, version, attrs, input_types, output_types)
    try:
        evaluator = ReferenceEvaluator(model)
    except Exception as error:  # the evaluator raises many unrelated classes for "not implemented"
        raise UnsupportedError(
            f"no kernel for operator {op}, version {version} of domain {domain or 'ai.onnx'}: {error}",
            where=where,
            hint="Offload the node to a target that supports it, or register a kernel for it.",
        ) from error
    feeds = [None if t is None else f"i{i}" for i, t in enumerate(input_types)]
    wanted = [t for t in output_types if t is not None]
    slots = [i for i, t in enumerate(output_types) if t is not None]

    def run(*inputs: Any) -> tuple[Any, ...]:
        # An operand that is there may hold None: an optional without element.
        present = {name: x for name, x in zip(feeds, inputs, strict=True) if name is not None}
        try:
            with np.errstate(all="ignore"):
                computed = evaluator.run(None, present)
        except MemoryError:
            raise
        except Exception as error:
            raise ExecutionError(f"{op} failed in onnx.reference: {error}", where=where) from error
        results: list[Any] = [None] * len(output_types)
        for slot, value, type_ in zip(slots, computed, wanted, strict=True):
            results[slot] = _conform(value, _fixed_dtype(type_))
            _check_shape(results[slot], type_, op, where)
        return tuple(results)

    return run


def _single_node_model(
    op: str,
    domain: str,
    version: int,
    attrs: Mapping[str, Any],
    input_types: Sequence[Type | None],
    output_types: Sequence[Type | None],
) -> onnx.ModelProto:
    names = ["" if t is None else f"i{i}" for i, t in enumerate(input_types)]
    results = ["" if t is None else f"o{i}" for i, t in enumerate(output_types)]
    node = onnx.NodeProto(op_type=op, domain=domain, input=names, output=results)
    definition = schema(op, domain, version)
    node.attribute.extend(attribute_to_proto(k, v, definition) for k, v in attrs.items())
    inputs = [_value_info(n, t) for n, t in zip(names, input_types, strict=True) if t is not None]
    outputs = [_value_info(n, t) for n, t in zip(results, output_types, strict=True) if t is not None]
    graph = helper.make_graph([node], "node", inputs, outputs)
    opsets = {domain: version}
    opsets.setdefault("", onnx.defs.onnx_opset_version())
    imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def _value_info(name: str, type_: Type) -> onnx.ValueInfoProto:
    if type_ == UNKNOWN:
        return helper.make_empty_tensor_value_info(name)
    return onnx.ValueInfoProto(name=name, type=type_to_proto(type_))


def _fixed_dtype(type_: Type) -> np.dtype[Any] | None:
    """Return the dtype that a result must have, or None where only the values decide."""
    if not isinstance(type_, TensorType) or type_.dtype == UNKNOWN.dtype:
        return None
    return numpy_dtype(type_.dtype)


def _check_shape(value: Any, type_: Type, op: str, where: str) -> None:
    """Refuse a result of another shape than was inferred: the reference computes on when operands do not fit."""
    shape = type_.shape if isinstance(type_, TensorType) else None
    if shape is None or not isinstance(value, np.ndarray):
        return
    pairs = zip(shape, value.shape, strict=False)
    if len(shape) != value.ndim or any(isinstance(d, int) and d != n for d, n in pairs):
        raise ExecutionError(
            f"{op} gave a result of another shape than its operands' shapes promise",
            where=where, expected=str(type_), found=f"shape {list(value.shape)}",
            hint="Check the shapes of the operands against the operator's specification.",
        )  # fmt: skip


def _conform(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """Give a result the form that kernels promise: arrays, text as objects, and the dtype that ONNX asks for."""
    if isinstance(value, (list, dict)) or value is None:
        return value
    array = np.asarray(value)
    if array.dtype.kind in "US":
        array = array.astype(object)
    if dtype is None or array.dtype == dtype:
        return array
    return cast_array(array, dtype)
