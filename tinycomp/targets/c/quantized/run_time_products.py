"""Products of two 8-bit matrices that come in at run time, as attention has them: integer sums on the C target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tinycomp.errors import TargetError
from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ops.numeric import Array
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized import patterns
from tinycomp.quantized.reading import (
    Requantization,
    dequantizer,
    first,
    fixed_point,
    scale_of,
    zero_point_of,
)
from tinycomp.rewrite import Match, ValuePattern, reject
from tinycomp.symbolic import maximum
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank, taken
from tinycomp.targets.c.ops.matmul import factors, geometry
from tinycomp.targets.c.quantized.products import factors_fit
from tinycomp.targets.common.checks import Verdict, sized_type
from tinycomp.targets.common.composites import operands_of

FAMILY = LoweringRules()


def add_run_time_products(target: Target) -> None:
    """Add the composite whose result is requantised."""
    _add(target, patterns.qmatmul)


def add_real_run_time_products(target: Target) -> None:
    """Add the composite whose result is float32; it comes behind all that are requantised."""
    _add(target, patterns.qmatmul_real)


def _add(target: Target, pattern: Callable[..., ValuePattern]) -> None:
    composite = target.composite(pattern)
    for check in (_has_geometry, _sums_fit, _factor_fits):
        composite.check(check)


def _has_geometry(match: Match) -> Verdict:
    return known_rank(first(match.matched, "MatMul"))


def _sums_fit(match: Match) -> Verdict:
    """Tell whether no sum can leave int32, as far as the depth is known by now."""
    product = first(match.matched, "MatMul")
    shape, most = match.a.shape, deepest(product)
    depth = shape[-1] if shape else None
    if isinstance(depth, int) and depth > most:
        return reject(f"sums of {depth} products, more than the {most} that int32 holds for all data")
    return True


def _factor_fits(match: Match) -> Verdict:
    product = first(match.matched, "MatMul")
    last = next((n for n in match.matched if n.op == "QuantizeLinear"), None)
    scale = _step(product)
    return factors_fit(scale.astype(np.float32) if last is None else Requantization.read(last).factors(scale))


def _step(product: Node) -> Array:
    """Return what one step of the sums is worth, in float64."""
    scales = [scale_of(dequantizer(v)) for v in product.inputs[:2]]
    return np.array(scales[0] * scales[1]).reshape(-1)


def deepest(product: Node) -> int:
    """Return how many products of dequantised 8-bit integers int32 holds the sum of, whatever they are."""
    largest = 1
    for value in product.inputs[:2]:
        node = dequantizer(value)
        info, point = np.iinfo(node.operand(0).dtype), zero_point_of(node).item()
        largest *= max(info.max - point, point - info.min)
    return (2**31 - 1) // largest


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
        "rule": int(fixed),
        "y_zero_point": 0 if to is None else to.zero_point,
        "low": 0 if to is None else to.low,
        "high": 0 if to is None else to.high,
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
    product, outer = first(node.body.nodes, "MatMul"), operands_of(node)
    stored = [dequantizer(v).operand(0) for v in product.inputs[:2]]
    x, w = (outer.get(v, v) for v in stored)
    depth, most = sized_type(x)[1][-1], deepest(product)
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
    points: list[View | None] = []
    for value, factor in zip(stored, product.inputs[:2], strict=True):
        point = zero_point_of(dequantizer(factor))
        dtype = value.dtype
        points.append(emit.constant(point.reshape(1).astype(dtype)) if point.any() else None)
    last, scale = node.body.outputs[0].producer, _step(product)
    assert last is not None
    if last.op != "QuantizeLinear":
        result = RunTimeProduct(x, w, node.output, (points[0], points[1]), factors=scale.astype(np.float32))
    else:
        to = Requantization.read(last)
        ratios = scale / np.float64(to.scale)
        result = RunTimeProduct(x, w, node.output, (points[0], points[1]), ratios, to.factors(scale), to)
    emit_matmul(emit, node, result)
