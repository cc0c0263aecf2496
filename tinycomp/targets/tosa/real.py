"""What TOSA computes in float32: operators one by one, within the target's tolerance of the reference."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ops.numeric import prod
from tinycomp.quantized.reading import constant as array_of
from tinycomp.quantized.reading import limits
from tinycomp.rewrite import reject
from tinycomp.targets.common.checks import Verdict, all_of, constant, ranks
from tinycomp.targets.tosa.emitter import Emitter, shape_of
from tinycomp.targets.tosa.integer import Rule, batches_are_equal, common_order, matmul, plane, ranks_are_known
from tinycomp.targets.tosa.program import Tensor

_UNARY = {
    "Abs": "ABS", "Ceil": "CEIL", "Cos": "COS", "Erf": "ERF", "Exp": "EXP", "Floor": "FLOOR", "Log": "LOG",
    "Reciprocal": "RECIPROCAL", "Sigmoid": "SIGMOID", "Sin": "SIN", "Tanh": "TANH",
}  # fmt: skip
_BINARY = {"Add": "ADD", "Div": "MUL", "Mul": "MUL", "Pow": "POW", "Sub": "SUB"}
_REDUCE = {
    "ReduceMax": "REDUCE_MAX", "ReduceMean": "REDUCE_SUM", "ReduceMin": "REDUCE_MIN", "ReduceProd": "REDUCE_PRODUCT",
    "ReduceSum": "REDUCE_SUM",
}  # fmt: skip


def _emit_unary(emit: Emitter, node: Node) -> None:
    order = emit.order(node.operand(0))
    x = emit.read(node.operand(0), order)
    y = emit.add(_UNARY[node.op], [x], x.shape) if node.op in _UNARY else emit.clamp(x, *limits(node.output))
    emit.write(node.output, y, order)


def _emit_binary(emit: Emitter, node: Node) -> None:
    values = [node.operand(0), node.operand(1)]
    order = common_order(emit, values, node.output)
    a, b = (emit.read_wide(value, order) for value in values)
    shape = [shape_of(node.output)[axis] for axis in order]
    if node.op == "Div":
        b = emit.add("RECIPROCAL", [b], b.shape)
    emit.write(node.output, _combined(emit, _BINARY[node.op], a, b, shape), order)


def _combined(emit: Emitter, op: str, a: Tensor, b: Tensor, shape: list[int] | tuple[int, ...]) -> Tensor:
    return emit.add(op, [a, b, *([emit.point(0, "int8")] if op == "MUL" else [])], shape)


def _emit_conv(emit: Emitter, node: Node) -> None:
    weight, given = array_of(node.inputs[1]), node.const(2)
    images, bias = emit.image(node.operand(0)), np.zeros(len(weight), np.float32) if given is None else given
    window = plane(node, images, weight.shape[2:])
    emit.write_image(node.output, emit.convolve(images, weight, bias, window, node.attrs.get("group", 1)))


def _transposes_plainly(node: Node) -> Verdict:
    if node.attrs.get("group", 1) != 1 or any(d != 1 for d in node.attrs.get("dilations", ())):
        return reject("TRANSPOSE_CONV2D has neither groups nor dilations")
    if node.output.static_shape is None or node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return reject("the pads must be given, and the sizes known")
    return True


def _emit_conv_transpose(emit: Emitter, node: Node) -> None:
    x, weight, given = emit.image(node.operand(0)), array_of(node.inputs[1]), node.const(2)
    bias = np.zeros(weight.shape[1], np.float32) if given is None else given
    strides = list(node.attrs.get("strides", (1, 1)))
    pads = node.attrs.get("pads", (0, 0, 0, 0))
    sizes = [shape_of(node.output)[axis] for axis in (2, 3)]
    # The first edge is moved by the pads; the other lies where the result ends.
    ends = [
        size - (n - 1) * step - k + p
        for size, n, step, k, p in zip(sizes, x.shape[1:3], strides, weight.shape[2:], pads[:2], strict=True)
    ]
    out_pad = [-pads[0], ends[0], -pads[1], ends[1]]
    operands = [
        x, *map(emit.program.const, (np.ascontiguousarray(weight.transpose(1, 2, 3, 0)), bias)),
        emit.point(0, "float32"), emit.point(0, "float32"),
    ]  # fmt: skip
    shape = (x.shape[0], *sizes, len(bias))
    attributes = {"out_pad": out_pad, "stride": strides, "local_bound": False, "acc_type": "FP32"}
    emit.write_image(node.output, emit.add("TRANSPOSE_CONV2D", operands, shape, **attributes))


def _is_plain_gemm(node: Node) -> Verdict:
    weight = node.const(1)
    if weight is None:
        return reject("the second factor is not a constant")
    plain = node.attrs.get("alpha", 1.0) == node.attrs.get("beta", 1.0) == 1.0 and not node.attrs.get("transA", 0)
    bias = node.optional_operand(2)
    columns = weight.shape[0 if node.attrs.get("transB", 0) else 1]
    per_column = bias is None or (bias.const is not None and bias.const.size in (1, columns))
    return (plain and per_column) or reject("only x @ w + b with one constant b per column is a convolution")


def _emit_gemm(emit: Emitter, node: Node) -> None:
    weight, given = array_of(node.inputs[1]), node.const(2)
    weight = (weight if node.attrs.get("transB", 0) else weight.T)[:, :, None, None]
    bias = np.zeros(len(weight), np.float32) if given is None else np.broadcast_to(given.reshape(-1), (len(weight),))
    x = emit.matrix(node.operand(0))
    y = emit.convolve(x, weight, np.ascontiguousarray(bias), plane(node, x, (1, 1)), 1)
    emit.write(node.output, emit.reshape(y, shape_of(node.output)))


def _emit_matmul(emit: Emitter, node: Node) -> None:
    points = [emit.point(0, "float32")] * 2
    y = matmul(emit, node.operand(0), node.operand(1), points)
    emit.write(node.output, emit.reshape(y, shape_of(node.output)))


def _axes_of(node: Node) -> list[int]:
    rank, given = len(shape_of(node.operand(0))), node.const(1)
    axes = node.attrs.get("axes") if given is None else given.tolist()
    if not axes and not node.attrs.get("noop_with_empty_axes", 0):
        axes = range(rank)
    return [axis % rank for axis in axes or ()]


def _emit_reduce(emit: Emitter, node: Node) -> None:
    axes, x = _axes_of(node), node.operand(0)
    y = emit.reduce(_REDUCE[node.op], emit.read(x), axes)
    if node.op == "ReduceMean":
        share = np.full([1] * len(y.shape), 1 / prod([shape_of(x)[axis] for axis in axes]), np.float32)
        y = _combined(emit, "MUL", y, emit.program.const(share), y.shape)
    emit.write(node.output, emit.reshape(y, shape_of(node.output)))


def _emit_softmax(emit: Emitter, node: Node) -> None:
    value = node.operand(0)
    x, axis = emit.read(value), node.attrs.get("axis", -1) % len(shape_of(value))
    shifted = emit.add("SUB", [x, emit.reduce("REDUCE_MAX", x, [axis])], x.shape)
    powers = emit.add("EXP", [shifted], x.shape)
    total = emit.reduce("REDUCE_SUM", powers, [axis])
    share = emit.add("RECIPROCAL", [total], total.shape)
    emit.write(node.output, _combined(emit, "MUL", powers, share, x.shape))


def _counts_equally(node: Node) -> Verdict:
    padded = any(node.attrs.get("pads", ())) or node.attrs.get("auto_pad", "NOTSET").startswith("SAME")
    if node.attrs.get("ceil_mode", 0) or (padded and node.attrs.get("count_include_pad", 0)):
        return reject("AVG_POOL2D counts no pads, and has whole windows only")
    return True


def _emit_mean(emit: Emitter, node: Node) -> None:
    images = emit.image(node.operand(0))
    window = plane(node, images, node.attrs.get("kernel_shape", images.shape[1:3]))
    x, pads = emit.windows(images, window)
    emit.write_image(node.output, emit.average(x, window, pads))


def _opset_13(node: Node) -> Verdict:
    return node.version >= 13 or reject("before opset 13 it is a Softmax of rows")


RULES: dict[str, Rule] = {
    **dict.fromkeys(_UNARY, Rule(_emit_unary)),
    **dict.fromkeys(_BINARY, Rule(_emit_binary, ranks_are_known)),
    **dict.fromkeys(_REDUCE, Rule(_emit_reduce, all_of(constant(1), ranks_are_known))),
    "AveragePool": Rule(_emit_mean, all_of(ranks(4), _counts_equally)),
    "Clip": Rule(_emit_unary, constant(1, 2)),
    "Conv": Rule(_emit_conv, all_of(ranks(3, 4), constant(1, 2))),
    "ConvTranspose": Rule(_emit_conv_transpose, all_of(ranks(4), constant(1, 2), _transposes_plainly)),
    "Gemm": Rule(_emit_gemm, _is_plain_gemm),
    "GlobalAveragePool": Rule(_emit_mean, ranks(4)),
    "MatMul": Rule(_emit_matmul, lambda node: batches_are_equal(node.operand(0), node.operand(1))),
    "Relu": Rule(_emit_unary),
    "Softmax": Rule(_emit_softmax, all_of(_opset_13, ranks_are_known)),
}
"""The operators, by their names in ONNX."""
