"""ONNX's own node tests of If, Loop, Scan and SequenceMap: the kernels run, onnx.reference interprets the bodies."""

from __future__ import annotations

import functools
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.ops.harness import since_version
from tinycomp.ops import OPS

OPERATORS = {"If", "Loop", "Scan", "SequenceMap"}
# Its body makes an optional, which onnx.reference wraps in a list of its own.
EXEMPT = {"test_if_opt"}


@functools.cache
def _cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    nodes = {c.name: c.model.graph.node for c in cases if c.model is not None}
    names = {name for name, node in nodes.items() if len(node) == 1 and node[0].op_type in OPERATORS}
    return {c.name: c for c in cases if c.name in names - EXEMPT}


def outer_names(graph):
    """Return the names that a body reads from outside, in order."""
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    found = {}
    for node in graph.node:
        inner = [name for a in node.attribute if a.HasField("g") for name in outer_names(a.g)]
        found.update(dict.fromkeys(name for name in [*node.input, *inner] if name and name not in known))
        known.update(node.output)
    return list(found)


def as_body(graph, captured, opsets):
    """Return a body as a callable of its own inputs and then all captured values."""
    inputs = [*(v.name for v in graph.input), *captured]
    closed = onnx.GraphProto()
    closed.CopyFrom(graph)
    closed.input.extend(helper.make_empty_tensor_value_info(name) for name in captured)
    evaluator = ReferenceEvaluator(helper.make_model(closed, opset_imports=opsets))

    def body(*arrays):
        return tuple(evaluator.run(None, dict(zip(inputs, arrays, strict=True))))

    return body


def as_value(value):
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    return numpy_helper.to_optional(value) if isinstance(value, onnx.OptionalProto) else value


def declared_types(graph):
    return [
        (
            np.dtype(helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)).name,
            [d.dim_value if d.HasField("dim_value") else d.dim_param for d in v.type.tensor_type.shape.dim],
        )
        for v in graph.output
        if v.type.HasField("tensor_type")
    ]


@pytest.mark.parametrize("name", sorted(_cases()))
def test_node_case(name):
    case = _cases()[name]
    (node,) = case.model.graph.node
    opsets = case.model.opset_import
    record = OPS.find(node.op_type, "", since_version(node.op_type, opsets[0].version))
    bodies = {a.name: a.g for a in node.attribute if a.HasField("g")}
    captured = list(dict.fromkeys(n for g in bodies.values() for n in outer_names(g)))
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
    attrs |= {name: as_body(g, captured, opsets) for name, g in bodies.items()}
    if node.op_type in ("Loop", "Scan"):
        attrs["output_types"] = lambda *_: declared_types(bodies["body"])
    kernel = record.bind({**attrs, "captures": len(captured)}, len(node.output))
    for given, wanted in case.data_sets:
        feeds = {v.name: as_value(x) for v, x in zip(case.model.graph.input, given, strict=True)}
        results = kernel(*(feeds[n] if n else None for n in node.input), *(feeds[n] for n in captured))
        assert len(results) == len(wanted)
        for got, want in zip(results, map(as_value, wanted), strict=True):
            assert_equal(got, want)


def assert_equal(got, want):
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_equal(g, w)
    else:
        assert np.asarray(got).dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_there_are_cases():
    assert {c.model.graph.node[0].op_type for c in _cases().values()} == OPERATORS
