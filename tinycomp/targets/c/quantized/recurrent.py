"""The LSTM of quantised weights on the C target: one integer product for the inputs of all steps, then the steps."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ir.types import EIGHT_BITS
from tinycomp.ops.numeric import Array
from tinycomp.ops.recurrent import QUANTIZED
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.reading import without_zero_point
from tinycomp.rewrite import reject
from tinycomp.symbolic import product
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.recurrent import read_results
from tinycomp.targets.common.checks import Verdict, all_of, constant, dtypes, sized_type

FAMILY = LoweringRules()
_DEEPEST = (2**31 - 1) // 255**2


def _matrices_fit(node: Node) -> Verdict:
    for weight in (node.operand(1), node.operand(2)):
        depth = (weight.static_shape or (0, 0))[1]
        if weight.dtype not in EIGHT_BITS or depth > _DEEPEST:
            return reject(f'"{weight.name}" is {weight.type}, not of 8 bits and at most {_DEEPEST} rows')
    return True


@FAMILY.lower(
    "LSTM", domain=QUANTIZED, layout=LayoutRule.ROW_MAJOR,
    check=all_of(dtypes("float32", operands=(0, 3, 5, 7, 8, 9)), known_rank, constant(*range(1, 8)), _matrices_fit),
)  # fmt: skip
def lstm(emit: Emitter, node: Node) -> None:
    """Emit the quantisation of the inputs, their product with the weights, and the steps."""
    x, forward = node.operand(0), node.attrs.get("direction", "forward") != "reverse"
    steps, batch, width = sized_type(x)[1]
    (w, *of_w), (r, *of_r) = _columns(node, 1, 3), _columns(node, 2, 5)
    ways, hidden, columns = r.shape
    stored, scale, zero = emit.scratch(product((steps, batch, width))), emit.scratch(4), emit.scratch(1)
    emit.call("quantize_dynamic", [stored, scale, zero, x], {"count": product((steps, batch, width))}, node)
    rows, sums = steps * batch, emit.scratch(steps * batch * (4 * ways * columns))
    params = {
        "m": rows, "n": ways * columns, "k": width, "x_row_stride": width, "y_row_stride": ways * columns,
        "trans_b": 0, "x_zero_point": 0, "weight_type": TYPES[w.dtype.name], "type": TYPES["int32"], "rule": 0,
        "y_zero_point": 0, "low": 0, "high": 0, "block_rows": 0,
    }  # fmt: skip
    side_by_side = np.ascontiguousarray(w.swapaxes(0, 1)).reshape(w.shape[1], -1)
    emit.call("qgemm", [sums, stored, emit.constant(side_by_side), None, None, None], params, node)
    y, last_h, last_c = read_results(emit, node)
    bias = node.const(7)
    added = None if bias is None else emit.constant(bias.reshape(ways, 2, columns).sum(axis=1))
    first = (node.optional_operand(8), node.optional_operand(9))
    operands = [
        y, sums, emit.constant(r), *map(emit.constant, of_r), last_h, last_c,
        scale, zero, *map(emit.constant, of_w), added, *first,
    ]  # fmt: skip
    sizes = {"steps": steps, "batch": batch, "hidden": hidden, "directions": ways}
    emit.call("qlstm", operands, {**sizes, "reverse": int(not forward), "weight_type": TYPES[r.dtype.name]}, node)


def _columns(node: Node, place: int, scale: int) -> tuple[Array, Array, Array]:
    """Return a weight without its zero point, the sums of its columns, and what a step of each is worth."""
    weight, scales, point = node.const(place), node.const(scale), node.const(scale + 1)
    assert weight is not None
    assert scales is not None
    assert point is not None
    ways, _, columns = weight.shape
    whole = without_zero_point(weight, point.reshape(ways, 1, -1))
    worth = np.array(np.broadcast_to(scales.reshape(ways, -1), (ways, columns)))
    return np.ascontiguousarray(whole), whole.sum(axis=1, dtype=np.int32), worth
