"""Every element-wise and movement operator on arrays without elements (and none of them may warn or crash)."""

from __future__ import annotations

import onnx
import pytest

from tests.ops.harness import allowed, run_ours, sample
from tinycomp.ops import OPS

ATTRS = {"BitShift": {"direction": "LEFT"}, "Cast": {"to": 7}, "BitCast": {"to": 6}, "Concat": {"axis": 0}}
NEEDS_OTHER_OPERANDS = {"CastLike", "Dropout"}


def _elementwise():
    newest = {r.name: r for r in OPS.all() if r.kernel is not None and not r.domain}
    return sorted(n for n, r in newest.items() if "elementwise" in r.traits and n not in NEEDS_OTHER_OPERANDS)


def _operands(op, shapes):
    schema = onnx.defs.get_schema(op)
    count = max(schema.min_input, 1) if schema.max_input > 2 else schema.max_input
    types = []
    for operand in schema.inputs[:count]:
        options = allowed(op, schema.since_version, operand.type_str) if operand.type_str[0] != "t" else ["bool"]
        types.append("float32" if "float32" in options else options[0])
    return [sample(dtype, shapes[min(i, 1)], i) for i, dtype in enumerate(types)]


@pytest.mark.parametrize("op", _elementwise())
def test_elementwise(op):
    for shapes, want in ([((0, 3), (0, 3)), (0, 3)], [((0,), (1,)), (0,)], [((2, 0), (2, 1)), (2, 0)]):
        operands = _operands(op, shapes)
        if op == "SwiGLU":
            operands = [operands[0], operands[0]]
        result = run_ours(op, operands, ATTRS.get(op))[0]
        assert result.shape == want, op
