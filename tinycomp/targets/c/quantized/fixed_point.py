"""Layers of 8-bit numbers that are computed in integers by the fixed-point rule alone: softmax and linear Resize."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.interpolation import IntegerResize
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.reading import Requantization, fixed_point
from tinycomp.quantized.softmax import IntegerSoftmax
from tinycomp.symbolic import product
from tinycomp.targets.c.codegen.emitter import Emitter, Params
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.c.ops.resize import resized_images
from tinycomp.targets.common.checks import sized_type
from tinycomp.targets.common.composites import operands_of

FAMILY = LoweringRules()


def _requantized(ratio: float, to: Requantization) -> Params:
    multiplier, shift = fixed_point(np.array([ratio]))[0].tolist()
    return {
        "multiplier": multiplier, "shift": shift, "y_zero_point": to.zero_point, "low": to.low, "high": to.high,
    }  # fmt: skip


@FAMILY.lower("c.qsoftmax", check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE, unsigned=True)
def qsoftmax(emit: Emitter, node: Node) -> None:
    """Emit the shares of lines along an axis."""
    layer, (x,) = IntegerSoftmax.of(QuantizedLayer.of(node.body.nodes)), operands_of(node).values()
    _, shape = sized_type(x)
    params = {
        "outer": product(shape[: layer.axis]),
        "axis": shape[layer.axis],
        "inner": product(shape[layer.axis + 1 :]),
        "inverse_shift": layer.inverse_shift,
        **_requantized(layer.ratio, layer.to),
    }
    tables = emit.constant(layer.powers), emit.constant(layer.inverses)
    emit.call("qsoftmax", [emit.view(node.output), emit.view(x), *tables], params, node)


@FAMILY.lower("c.qresize", check=taken, layout=LayoutRule.CHANNELS_LAST, domain=COMPOSITE, unsigned=True)
def qresize(emit: Emitter, node: Node) -> None:
    """Emit the interpolation of images."""
    layer, (x,) = IntegerResize.of(QuantizedLayer.of(node.body.nodes)), operands_of(node).values()
    places, sizes = resized_images(emit, x, node.output)
    params = {
        **sizes,
        "line_steps": layer.lines.numerator,
        "column_steps": layer.columns.numerator,
        "x_zero_point": layer.zero_point,
        **_requantized(layer.ratio, layer.to),
    }
    tables = emit.constant(layer.lines.taps()), emit.constant(layer.columns.taps())
    emit.call("qresize2d", [*places, *tables], params, node)
