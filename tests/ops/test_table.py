"""The operator table against ONNX's schemas: names, versions, attributes and operands."""

from __future__ import annotations

import inspect

import onnx
import pytest

from tests.host_only import DOMAIN
from tinycomp.index import named
from tinycomp.ops import OPS

SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if OPS.find(s.name, s.domain, s.since_version)]
WITH_KERNEL = [s for s in SCHEMAS if OPS.find(s.name, s.domain, s.since_version).kernel]


OTHER_DEFAULTS = {
    ("RNN", "output_sequence"): "whether the node names the output says the same",
    ("GRU", "output_sequence"): "likewise",
    ("LSTM", "output_sequence"): "likewise",
    ("GRU", "direction"): "the schema of version 1 says `foward`",
    ("GridSample", "mode"): "`linear` was called `bilinear` at first, and means the same",
}


def test_every_operator_has_a_record():
    assert all(operator.records or operator.infer for operator in OPS.operators.values())


def test_every_operator_has_a_rule_but_control_flow():
    lacking = {name for name, operator in OPS.operators.items() if operator.infer is None}
    assert lacking == {("", name) for name in named("control_flow")}


def label(schema):
    return f"{schema.name}-{schema.since_version}"


@pytest.mark.parametrize("schema", WITH_KERNEL, ids=label)
def test_kernels_take_every_attribute(schema):
    kernel = OPS.find(schema.name, schema.domain, schema.since_version).kernel
    parameters = inspect.signature(kernel).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return  # it reads them itself
    known = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    missing = set(schema.attributes) - known - {"consumed_inputs"}
    assert not missing


@pytest.mark.parametrize("schema", WITH_KERNEL, ids=label)
def test_kernels_take_every_operand(schema):
    kernel = OPS.find(schema.name, schema.domain, schema.since_version).kernel
    parameters = list(inspect.signature(kernel).parameters.values())
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        assert len(positional) >= schema.max_input
        assert sum(p.default is p.empty for p in positional) <= max(schema.min_input, 0)


@pytest.mark.parametrize("schema", WITH_KERNEL, ids=label)
def test_defaults_are_those_of_onnx(schema):
    kernel = OPS.find(schema.name, schema.domain, schema.since_version).kernel
    parameters = inspect.signature(kernel).parameters
    for name, attribute in schema.attributes.items():
        if (schema.name, name) in OTHER_DEFAULTS:
            continue
        if name not in parameters or attribute.default_value.type == onnx.AttributeProto.UNDEFINED:
            continue
        want = onnx.helper.get_attribute_value(attribute.default_value)
        want = want.decode() if isinstance(want, bytes) else want
        got = parameters[name].default
        if isinstance(want, float):
            assert got == pytest.approx(want, rel=1e-6), name
        elif isinstance(want, int | str):
            assert got == want, name


def test_every_record_belongs_to_an_operator_of_onnx():
    names = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    foreign = ("tinycomp", "com.microsoft", DOMAIN)
    ours = {(r.domain, r.name) for r in OPS.all() if not r.domain.startswith(foreign)}
    assert ours <= names
