"""ONNX's own node tests: against the numpy kernel where there is one, else against the bound reference."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.ops.harness import assert_same, since_version
from tinycomp.ir.proto import type_from_proto
from tinycomp.ops import OPS
from tinycomp.ops.reference import bind_reference

pytestmark = pytest.mark.rows(300)

# What ``onnx.reference`` imports for an operator, where that is not a dependency of its own.
REFERENCE_NEEDS = {"ImageDecoder": "PIL"}


@functools.cache
def _cases():
    return {name: case for name, case in _single_node_cases().items() if _record(case.model) is not None}


@functools.cache
def _reference_cases():
    known = {name: case for name, case in _single_node_cases().items() if _record(case.model) is None}
    return {name: case for name, case in known.items() if _version(case.model) is not None}


@functools.cache
def _single_node_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    chosen = {}
    for case in cases:
        model = case.model
        if model is None or len(model.graph.node) != 1 or model.graph.initializer:
            continue
        node = model.graph.node[0]
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            continue
        chosen[case.name] = case
    return chosen


def _version(model):
    node = model.graph.node[0]
    opset = next((o.version for o in model.opset_import if o.domain == node.domain), None)
    if opset is None or not onnx.defs.has(node.op_type, domain=node.domain):
        return None
    return since_version(node.op_type, opset, node.domain)


def _record(model):
    node, version = model.graph.node[0], _version(model)
    record = None if version is None else OPS.find(node.op_type, node.domain, version)
    return record if record is not None and record.kernel is not None else None


def _attributes(node):
    values = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif attribute.type == onnx.AttributeProto.STRINGS:
            value = [v.decode() for v in value]
        elif isinstance(value, (list, tuple)) or hasattr(value, "append"):
            value = list(value)
        values[attribute.name] = value
    return values


def _array(value):
    if isinstance(value, (onnx.TensorProto,)):
        value = numpy_helper.to_array(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "US":
        return value.astype(object)
    if isinstance(value, np.generic):
        return np.asarray(value)
    return value


def _awkward(value):
    """Return the same array read-only and with gaps between its elements, as a caller's array may be."""
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim:
        spaced = np.empty((*value.shape[:-1], 2 * value.shape[-1]), value.dtype)
        spaced[..., ::2] = value
        value = spaced[..., ::2]
    else:
        value = value.copy()
    value.flags.writeable = False
    return value


@pytest.mark.parametrize("form", [_array, lambda v: _awkward(_array(v))], ids=["plain", "awkward"])
@pytest.mark.parametrize("name", sorted(_cases()))
def test_node_case(name, form):
    case = _cases()[name]
    node = case.model.graph.node[0]
    record = _record(case.model)
    if "random" in record.traits:
        pytest.skip("the operator is random")
    kernel = record.bind(_attributes(node), len(node.output))
    for given, wanted in case.data_sets:
        feeds = iter([form(v) for v in given])
        inputs = [next(feeds) if operand else None for operand in node.input]
        result = kernel(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        kept = [r for r, output in zip(results, node.output, strict=False) if output]
        assert len(kept) == len(wanted)
        for got, want in zip(kept, wanted, strict=True):
            _compare(got, want, case)


@pytest.mark.parametrize("name", sorted(_reference_cases()))
def test_reference_case(name):
    case = _reference_cases()[name]
    node = case.model.graph.node[0]
    if node.op_type in REFERENCE_NEEDS:
        pytest.importorskip(REFERENCE_NEEDS[node.op_type])
    types = {v.name: type_from_proto(v.type) for v in [*case.model.graph.input, *case.model.graph.output]}
    attrs = {k: type_from_proto(v) if isinstance(v, onnx.TypeProto) else v for k, v in _attributes(node).items()}
    run = bind_reference(
        node.op_type, node.domain, _version(case.model), attrs, [types[n] if n else None for n in node.input],
        [types[n] if n else None for n in node.output], name,
    )  # fmt: skip
    for given, wanted in case.data_sets:
        feeds = iter([_array(v) for v in given])
        results = run(*(next(feeds) if operand else None for operand in node.input))
        kept = [r for r, output in zip(results, node.output, strict=True) if output]
        for got, want in zip(kept, wanted, strict=True):
            _compare(got, want, case)


def _compare(got, want, case):
    if isinstance(want, list):
        assert isinstance(got, (list, tuple))
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            _compare(g, w, case)
    elif want is None:
        assert got is None
    else:
        assert_same(got, _array(want), rtol=case.rtol, atol=max(case.atol, 1e-6), label=case.name)


def test_there_are_cases():
    assert len(_cases()) > 1000
    assert len(_reference_cases()) > 50
