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


REQUIRED: dict[str, dict[str, object]] = {
    "LabelEncoder": {"keys_int64s": [1], "values_int64s": [2]},
    "STFT": {"frame_length": 4},
    "Split": {"num_outputs": 1},
    "SVMClassifier": {
        "coefficients": [1.0], "support_vectors": [1.0], "rho": [0.0], "vectors_per_class": [1, 0],
        "classlabels_ints": [0, 1],
    },
    "ZipMap": {"classlabels_int64s": [0]},
}  # fmt: skip
"""Attributes without which a node says nothing."""
LEAST = {"STFT": 4}
"""Operands without which it says nothing."""


@pytest.mark.parametrize("schema", PLAIN, ids=lambda s: f"{s.domain}.{s.name}")
def test_operands_of_unknown_type_are_no_error(schema: defs.OpSchema) -> None:
    graph = Graph(infer=infer_node_types)
    operands = [graph.add_input(f"x{i}", UNKNOWN) for i in range(LEAST.get(schema.name, max(schema.min_input, 1)))]
    attrs = REQUIRED.get(schema.name, {})
    node = graph.add(schema.name, operands, attrs, domain=schema.domain, outputs=max(1, schema.min_output))
    assert len(node.outputs) >= 1
