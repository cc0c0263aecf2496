"""Normalisations on the C target."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.symbolic import product
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.epilogue import IDENTITY
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.conv import image
from tinycomp.targets.common.checks import (
    Verdict,
    all_of,
    constant,
    float32,
    ranks,
    sized_type,
    surely_equal,
)

FAMILY = LoweringRules()


def _trailing_scale(node: Node) -> Verdict:
    """Scale and bias must have exactly the normalised shape; only the first result is computed."""
    if len(node.used_outputs()) > 1:
        return reject("the mean or the inverse deviation is asked for")
    shape = node.operand(0).shape or ()
    axis = int(node.attrs.get("axis", -1)) % max(len(shape), 1)
    for value in node.inputs[1:]:
        if value is not None and not surely_equal(value.shape, shape[axis:]):
            return reject(f'"{value.name}" is {value.type}, not of the normalised shape {shape[axis:]}')
    return True


@FAMILY.lower(
    "LayerNormalization", "RMSNormalization",
    check=all_of(float32, known_rank, _trailing_scale), layout=LayoutRule.ROW_MAJOR,
)  # fmt: skip
def layer_norm(emit: Emitter, node: Node) -> None:
    """Emit a normalisation of every row."""
    _, shape = sized_type(node.operand(0))
    axis = int(node.attrs.get("axis", -1)) % len(shape)
    params = {
        "rows": product(shape[:axis]),
        "columns": product(shape[axis:]),
        "rms": int(node.op == "RMSNormalization"),
        "epsilon": float(node.attrs.get("epsilon", 1e-5)),
    }
    operands = [node.output, node.operand(0), node.optional_operand(1), node.optional_operand(2)]
    emit.call("layer_norm_f32", operands, params, node)


def _group_check(node: Node) -> Verdict:
    """From opset 21 GroupNormalization has a scale per channel; before, one per group."""
    old = node.op == "GroupNormalization" and node.version < 21
    return not old or reject("scale and bias per group (before opset 21)")


@FAMILY.lower(
    "InstanceNormalization", "GroupNormalization",
    check=all_of(float32, ranks(3, 4, 5), _group_check), layout=LayoutRule.CHANNELS_LAST,
)  # fmt: skip
def group_norm(emit: Emitter, node: Node) -> None:
    """Emit a normalisation of every group of channels of every image."""
    source = image(node.operand(0))
    params = {
        "batch": source.batch,
        "pixels": source.height * source.width,
        "channels": source.channels,
        "groups": int(node.attrs.get("num_groups", source.channels)),
        "epsilon": float(node.attrs.get("epsilon", 1e-5)),
    }
    operands = [node.output, node.operand(0), node.optional_operand(1), node.optional_operand(2)]
    emit.call("group_norm_f32", operands, params, node)


def _inference(node: Node) -> Verdict:
    if len(node.used_outputs()) > 1 or node.attrs.get("training_mode", 0):
        return reject("training mode")
    return node.attrs.get("spatial", 1) == 1 or reject("statistics per element")


@FAMILY.lower(
    "BatchNormalization",
    check=all_of(float32, ranks(2, 3, 4, 5), constant(1, 2, 3, 4), _inference), layout=LayoutRule.CHANNELS_LAST,
)  # fmt: skip
def batch_norm(emit: Emitter, node: Node) -> None:
    """Emit a batch normalisation that could not be folded, as one multiply-add per element."""
    source = image(node.operand(0))
    scale, bias, mean, variance = (
        v.const.astype(np.float64) for v in node.inputs[1:5] if v is not None and v.const is not None
    )
    factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
    shift = emit.constant((bias - mean * factor).astype(np.float32))
    params = {
        "pixels": source.batch * source.height * source.width,
        "channels": source.channels,
        **IDENTITY.params(),
    }
    operands: list[Value | View | None] = [
        node.output,
        node.operand(0),
        emit.constant(factor.astype(np.float32)),
        shift,
    ]
    emit.call("channel_affine_f32", operands, params, node)
