"""Products of two 8-bit matrices that come in at run time, as attention has them: integer sums on the C target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinycomp.errors import TargetError
from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ops.numeric import Array
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.layers import deepest
from tinycomp.quantized.reading import (
    Requantization,
    fixed_point,
)
from tinycomp.symbolic import maximum
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.c.ops.matmul import factors, geometry
from tinycomp.targets.c.quantized.products import rounding
from tinycomp.targets.common.checks import sized_type
from tinycomp.targets.common.composites import operands_of

FAMILY = LoweringRules()


@dataclass(frozen=True)
class RunTimeProduct:
    """A product of two 8-bit matrices, as the kernel takes it.

    Attributes:
        x: The left one.
        w: The right one.
        y: The result.
        points: The zero points of both, where there are any: one number of ``x``, one or one per column of ``w``.
        ratios: float64, what a step of the sums is worth in steps of ``y``, one or one per column; None where ``y`` are
            the sums.
        factors: The same in float32, as the float rule has it.
        to: How floats become those of ``y``; None where ``y`` is float, or the sums.
    """

    x: Value
    w: Value
    y: Value
    points: tuple[Value | View | None, Value | View | None]
    ratios: Array | None = None
    factors: Array | None = None
    to: Requantization | None = None
    point_count: int = 1


def emit_matmul(emit: Emitter, node: Node, product: RunTimeProduct) -> None:
    """Emit the kernel call of a product."""
    to = product.to
    fixed = to is not None and emit.settings.requantize == "fixed_point"
    multiplied = product.factors
    if fixed:
        assert product.ratios is not None
        multiplied = fixed_point(product.ratios)
    left, right = factors(emit, product.x, product.w)
    operands, params = geometry(emit, node, product.y, left, right, "xwy")
    params = {
        **params,
        "x_type": TYPES[product.x.dtype],
        "w_type": TYPES[product.w.dtype],
        "w_zeros": product.point_count,
        "factors": 1 if multiplied is None else len(multiplied),
        "type": TYPES[product.y.dtype],
        **rounding(to, fixed=fixed),
    }
    last = None if multiplied is None else emit.constant(multiplied)
    emit.call("qmatmul", [*operands, *product.points, None, last], params, node)


@FAMILY.lower(
    "c.qmatmul", "c.qmatmul_real",
    check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE, unsigned=True, either=True,
)  # fmt: skip
def qmatmul(emit: Emitter, node: Node) -> None:
    """Emit a product of dequantised matrices.

    Raises:
        TargetError: If the depth, which was not known when the composite was made, lets sums leave int32.
    """
    layer, outer = QuantizedLayer.of(node.body.nodes), operands_of(node)
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
    ratios = None if layer.to is None else layer.ratios()
    result = RunTimeProduct(x, w, node.output, (points[0], points[1]), ratios, layer.factors, layer.to)
    emit_matmul(emit, node, result)
