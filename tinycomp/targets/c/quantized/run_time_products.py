"""Products of two 8-bit matrices that come in at run time, as attention has them: integer sums on the C target."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.errors import TargetError
from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.layers import deepest
from tinycomp.symbolic import maximum
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.c.ops.matmul import factors, geometry
from tinycomp.targets.c.quantized.products import finish, layer_of
from tinycomp.targets.common.checks import sized_type
from tinycomp.targets.common.composites import operands_of

FAMILY = LoweringRules()


def emit_matmul(
    emit: Emitter,
    node: Node,
    matrices: tuple[Value, Value],
    points: Sequence[Value | View | None],
    layer: QuantizedLayer | None = None,
    point_count: int = 1,
) -> None:
    """Emit the kernel call of a product.

    Args:
        emit: Where the call is added.
        node: The node.
        matrices: The factors.
        points: Their zero points, where there are any: one of the left one, one or one per column of the right one.
        layer: What the node computes; None where it gives the sums.
        point_count: How many zero points the right factor has.
    """
    x, w = matrices
    left, right = factors(emit, x, w)
    operands, params = geometry(emit, node, node.output, left, right, "xwy")
    multiplied, results = finish(emit, node, layer)
    params = {
        **params,
        "x_type": TYPES[x.dtype],
        "w_type": TYPES[w.dtype],
        "w_zeros": point_count,
        **results,
    }
    emit.call("qmatmul", [*operands, *points, multiplied], params, node)


@FAMILY.lower(
    "c.qmatmul", "c.qmatmul_real",
    check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE, unsigned=True, either=True,
)  # fmt: skip
def qmatmul(emit: Emitter, node: Node) -> None:
    """Emit a product of dequantised matrices.

    Raises:
        TargetError: If the depth, which was not known when the composite was made, lets sums leave int32.
    """
    layer, outer = layer_of(node), operands_of(node)
    x, w = (outer.get(v, v) for v in map(layer.stored, (0, 1)))
    depth, most = sized_type(x)[1][-1], deepest(layer)
    if not isinstance(depth, int):
        emit.demand(maximum(depth - most, 0), f"sums of more than {most} 8-bit products may leave int32", node)
    elif depth > most:
        raise TargetError(
            "sums of that many 8-bit products may overflow int32",
            where=node.label,
            expected=f"a depth of {most} at most",
            found=str(depth),
            hint="Exclude the node from the target (a policy's exclude=), so that it is computed in float32.",
        )
    points = [
        emit.constant(np.array([point], v.dtype)) if (point := layer.zero_point(i)) else None
        for i, v in enumerate(map(layer.stored, (0, 1)))
    ]
    emit_matmul(emit, node, (x, w), points, layer)
