from __future__ import annotations

import pytest
from onnx import defs

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
