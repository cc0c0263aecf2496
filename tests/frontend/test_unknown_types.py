from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import defs

import tinycomp
from tinycomp.errors import MemoryLimitError, TinycompError
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import UNKNOWN
from tinycomp.ops.typing import infer_node_types

PLAIN = [
    s
    for s in defs.get_all_schemas()
    if s.max_input and not s.deprecated and not any(a.required for a in s.attributes.values())
]


@pytest.mark.parametrize("schema", PLAIN, ids=lambda s: f"{s.domain}.{s.name}")
def test_operands_of_unknown_type_are_no_error(schema: defs.OpSchema) -> None:
    graph = Graph(infer=infer_node_types)
    operands = [graph.add_input(f"x{i}", UNKNOWN) for i in range(max(schema.min_input, 1))]
    node = graph.add(schema.name, operands, domain=schema.domain, outputs=max(1, schema.min_output))
    assert len(node.outputs) >= 1


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "ai.onnx.preview": 1]> {text}')


def test_operands_of_unknown_elements_stay_on_the_host() -> None:
    damaged = model("m (float[4] data, int64[2, 1] at, float[2] new) => (float[4] y) { y = ScatterND(data, at, new) }")
    damaged.graph.input[2].type.tensor_type.elem_type = 0
    report = tinycomp.compile(damaged, "c").report()
    assert report.where("y") is None or report.why("y")
    assert 'nobody knows the element type of operand 2 ("new")' in str(report.why("y")[0].reasons)


def test_a_shape_beyond_what_integers_hold_is_refused() -> None:
    huge = model("m (float[3, 9223372036854775807, 5] x) => (float[a, b] y) { y = Flatten<axis = 1>(x) }")
    with pytest.raises(MemoryLimitError, match="more memory would be needed"):
        tinycomp.compile(huge, "c")


def test_a_scan_along_an_axis_that_is_not_there_fails_with_its_name() -> None:
    text = """m (float s, float[4] x) => (float t) {
        t = Scan<num_scan_inputs = 1, scan_input_axes = [1], body = b (float a, float c) => (float d) { d = Add(a, c) }>
            (s, x) }"""
    with pytest.raises(TinycompError, match="Scan"):
        tinycomp.compile(model(text), "c")(np.float32(0), np.zeros(4, np.float32))
