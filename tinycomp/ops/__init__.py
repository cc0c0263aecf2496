"""Operators: what is true of each on every machine, and the two host tiers that can run it.

:data:`OPS` holds a record per operator and version; it imports the family of an operator that it is asked about.
:func:`bind` turns a node into a function of arrays, with the numpy kernel of its record where there is one (tier
``"numpy"``), else with ``onnx.reference`` (tier ``"reference"``).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.errors import ExecutionError, TinycompError, TypeInferenceError, UnsupportedError, did_you_mean
from tinycomp.index import FAMILIES, named
from tinycomp.ir.graph import MOST_CONTENTS, Graph, Node
from tinycomp.ir.schemas import known_opsets
from tinycomp.ir.types import Dim, TensorType, Type, tensor
from tinycomp.lazy import LazyTable
from tinycomp.memory.budget import reserve
from tinycomp.ops.record import Kernel, OpFamily, OpRecord, OpTable, heads
from tinycomp.ops.rule import run_check

if TYPE_CHECKING:
    from tinycomp.ops.reference import Bound

__all__ = [
    "OPS",
    "OpFamily",
    "OpRecord",
    "OpTable",
    "bind",
    "factors",
    "is_opaque",
    "traits_of",
    "unknown_domain",
    "zero_points",
]

OPS = OpTable(
    LazyTable(
        __name__,
        {family: heads(operators) for family, operators in FAMILIES.items()},
        lambda module: module.FAMILY.operators,
    )
)


@functools.cache
def traits_of(op: str, domain: str, version: int) -> frozenset[str]:
    """Return the traits of an operator in a version: those of all its versions, and of the record in force."""
    operator, found = OPS.of(op, domain), OPS.find(op, domain, version)
    return frozenset() if operator is None else operator.traits.union(() if found is None else found.traits)


def zero_points(node: Node) -> Mapping[int, int]:
    """Return which operands hold the integers that a node multiplies, and where their zero points stand."""
    operator = OPS.of(node.op, node.domain)
    return {} if operator is None else operator.zero_points


def factors(node: Node) -> tuple[int, ...]:
    """Return the places of the two operands that a node multiplies."""
    return tuple(zero_points(node)) or (0, 1)


# A memory-reuse hint of operators before opset 6 that never changed a result.
_MEANINGLESS = frozenset({"consumed_inputs"})
_BRIEF = 40


def bind(node: Node, bodies: Mapping[str, Callable[..., Any]] | None = None) -> tuple[Bound, str]:
    """Return a function that computes ``node`` from arrays, and the name of its tier.

    The function takes one argument per operand (None for an absent one) and returns a tuple with one entry per result.
    A result may share memory with an operand where the operator only changes the shape.

    Args:
        node: Any node without nested graphs, or one that holds graphs together with ``bodies``.
        bodies: A callable per attribute that holds a graph.

    Raises:
        ModelError: If an attribute is not one of the operator's.
        UnsupportedError: If no tier knows the operator.

    The function itself raises ExecutionError, naming the node, when values or shapes do not fit.
    """
    attrs = {k: v for k, v in node.attrs.items() if k not in _MEANINGLESS}
    record, operator = OPS.find(node.op, node.domain, node.version), OPS.of(node.op, node.domain)
    check = None if operator is None or operator.infer is None else run_check(node, operator.infer)
    if record is not None and record.kernel is not None:
        if "bodies" in record.traits:
            attrs |= _body_keywords(node, bodies or {})
        kernel = record.bind(attrs, len(node.outputs), node.label)
        if "elementwise" in record.traits and len(node.inputs) > 1 and not _is_static(node.outputs[0].type):
            kernel = _with_room(kernel, node.op)
        return _as_tuple(kernel, node, check), "numpy"
    if is_opaque(node):
        raise unknown_form(node)
    from tinycomp.ops.reference import bind_reference

    input_types = [None if v is None else v.type for v in node.inputs]
    output_types = [v.type if v.name else None for v in node.outputs]
    bound = bind_reference(node.op, node.domain, node.version, attrs, input_types, output_types, node.label)
    return bound if check is None else _as_tuple(bound, node, check), "reference"


def _body_keywords(node: Node, bodies: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """Return what kernels with bodies take besides plain attributes: see :mod:`tinycomp.ops.control_flow`."""
    keywords: dict[str, Any] = {**bodies, "captures": node.captures}
    if node.op in named("stacking"):  # they need types where the body never runs
        keywords["output_types"] = functools.partial(_types_for, node.body)
    return keywords


def _types_for(body: Graph, *arguments: Any) -> list[tuple[str, Sequence[Dim] | None]]:
    """Return the types of what a body returns for some arguments, as far as they follow from these."""
    copy = body.clone()
    for array, formal in zip(arguments, copy.inputs, strict=True):
        formal.type = _type_of(array, formal.type)
    with contextlib.suppress(TypeInferenceError):  # the body would fail, but it is not run
        for node in copy.nodes:
            copy.infer_again(node)
    return [(t.dtype, t.shape) for t in (tensor(value.type) for value in copy.outputs)]


def _type_of(array: Any, known: Type) -> Type:
    if not isinstance(array, np.ndarray):
        return known
    is_small = array.dtype in (np.int32, np.int64) and array.size <= MOST_CONTENTS
    contents = tuple(map(int, array.reshape(-1))) if is_small else None
    return TensorType(tensor(known).dtype, array.shape, contents=contents)


def _is_static(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.static_shape is not None


def _with_room(kernel: Kernel, op: str) -> Kernel:
    """Make an elementwise kernel ask for its result's memory: operands of differing shapes may broadcast to more."""

    def run(*inputs: Any) -> Any:
        arrays = [x for x in inputs if isinstance(x, np.ndarray)]
        if len({x.shape for x in arrays}) > 1:
            with contextlib.suppress(ValueError):  # what does not broadcast is the kernel's to refuse
                reserve(np.broadcast_shapes(*(x.shape for x in arrays)), arrays[0].itemsize, op)
        return kernel(*inputs)

    return run


def _as_tuple(kernel: Kernel, node: Node, check: Callable[[Sequence[Any]], None] | None) -> Bound:
    """Make a kernel return a tuple, its operands be checked by its rule before, and its failures name the node."""
    op, outputs, where = node.op, len(node.outputs), f"{node.label} ({node.op})"

    def run(*inputs: Any) -> tuple[Any, ...]:
        if check is not None:
            check(inputs)
        try:
            result = kernel(*inputs)
        except TinycompError as error:
            if error.where not in ("", op):  # a body's node is already named
                raise
            parts = {"expected": error.expected, "found": error.found, "hint": error.hint}
            raise type(error)(error.message, where=where, **parts) from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ExecutionError(f"the operands do not fit the operator: {error}", where=where) from error
        return result[:outputs] if isinstance(result, tuple) else (result,)

    return run


def is_opaque(node: Node) -> bool:
    """Tell whether there is neither a schema nor a record nor a body to say what a node does.

    Such a node can be imported, and only a target can run it.
    """
    if node.is_call or (node.domain, node.op) in OPS.operators:
        return False
    return node.domain not in known_opsets()


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
        hint=did_you_mean(domain, [d or "ai.onnx" for d in sorted(known_opsets())])
        or "Export the model with a function body for this operator, or compile for a target with a rule for it.",
    )
