"""Products: convolution, Gemm and MatMul, with bias, residual and activation as post-ops."""

from __future__ import annotations

import math

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor
from tinycomp.ops.spatial import Window, make_window
from tinycomp.targets.common.checks import channel_vector
from tinycomp.targets.dnnl.emit import Emitter, shape_of
from tinycomp.targets.dnnl.fused import Fused, take_apart
from tinycomp.targets.dnnl.primitives import BIAS, DST, SRC, WEIGHTS, PostOps
from tinycomp.targets.dnnl.program import Tensor

Shape = tuple[int, ...]


def convolution(emit: Emitter, node: Node) -> None:
    """Emit a convolution in the layouts that the library chooses, its weights packed now."""
    fused = take_apart(node, frozenset({"Conv"}))
    x, w = fused.operand(0), fused.operand(1)
    assert w.const is not None, node
    window = window_of(fused.anchor, shape_of(x), w.const.shape[2:])
    groups = int(fused.anchor.attrs.get("group", 1))
    channels, *rest = w.const.shape
    weights = w.const.reshape((groups, channels // groups, *rest) if groups > 1 else w.const.shape)
    bias, residual, _ = _addends(fused, (), axis=1)
    own = fused.operands[2] if len(fused.operands) > 2 else None
    if own is not None and own.const is not None:
        bias = own.const if bias is None else own.const + bias
    held = None if bias is None else emit.constant(bias)
    post = PostOps(None if residual is None else 1.0, fused.eltwise)
    shapes = (shape_of(x), weights.shape, shape_of(node.output))
    primitive = emit.make.convolution(shapes, None if held is None else held.layout, window, post)
    assert primitive.source is not None
    assert primitive.weights is not None
    args = {SRC: emit.form(x, primitive.source), WEIGHTS: emit.converted(emit.constant(weights), primitive.weights)}
    before = None if residual is None else emit.form(residual, primitive.result)
    result = emit.destination(before, primitive.result, [args[SRC]])
    emit.emit(primitive, {**args, **_present(BIAS, held), DST: result})
    emit.define(node.output, result)


def gemm(emit: Emitter, node: Node) -> None:
    """Emit ``alpha A B + beta C``; alpha goes into the weights."""
    fused = take_apart(node, frozenset({"Gemm"}))
    attrs = fused.anchor.attrs
    x = _transposable(emit, fused.operand(0), bool(attrs.get("transA", 0)))
    w = fused.operand(1)
    if w.const is None:
        weights = _transposable(emit, w, bool(attrs.get("transB", 0)))
    else:
        array = w.const.T if attrs.get("transB", 0) else w.const
        weights = emit.constant(array * np.float32(attrs.get("alpha", 1.0)))
    rows, columns = shape_of(w)
    w_shape = (columns, rows) if attrs.get("transB", 0) else (rows, columns)
    _product(emit, fused, x, weights, (w_shape, shape_of(node.output)), fused.operands[2:])


def _transposable(emit: Emitter, value: Value, transposed: bool) -> Tensor:
    rows, columns = shape_of(value)
    return emit.viewed(value, (columns, rows), (1, columns)) if transposed else emit.plain(value)


def matmul(emit: Emitter, node: Node) -> None:
    """Emit a product of matrices or vectors, batched or not."""
    fused = take_apart(node, frozenset({"MatMul"}))
    a, b = fused.operand(0), fused.operand(1)
    a_shape, b_shape = shape_of(a), shape_of(b)
    a_shape = (1, *a_shape) if len(a_shape) == 1 else a_shape
    b_shape = (*b_shape, 1) if len(b_shape) == 1 else b_shape
    if len(b_shape) == 2:
        a_shape = (math.prod(a_shape[:-1]), a_shape[-1])
    rank = max(len(a_shape), len(b_shape))
    a_shape, b_shape = padded(a_shape, rank), padded(b_shape, rank)
    batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    y_shape = (*batch, a_shape[-2], b_shape[-1])
    _product(emit, fused, emit.viewed(a, a_shape), emit.viewed(b, b_shape), (b_shape, y_shape))


def _product(
    emit: Emitter, fused: Fused, x: Tensor, w: Tensor, shapes: tuple[Shape, Shape], own: tuple[Value | None, ...] = ()
) -> None:
    """Emit ``x w`` of one rank; ``own`` is Gemm's third operand. Constant weights are packed as the library likes.

    Args:
        emit: Takes the steps.
        fused: The post-ops and the result.
        x: Left operand.
        w: Right operand.
        shapes: Of the right operand and of the result, as the library is to see them.
        own: Addends that the anchor has itself.
    """
    library = emit.library
    w_shape, y_shape = shapes
    result = library.plain(y_shape)
    vector, residual, scale = _addends(fused, own, axis=-1)
    bias = None if vector is None else emit.constant(vector.reshape(padded((y_shape[-1],), len(y_shape))))
    post = PostOps(None if residual is None else scale, fused.eltwise)
    wanted = w.layout if w.storage.data is None else library.undecided(w_shape)
    primitive = emit.make.matmul(x.layout, wanted, None if bias is None else bias.layout, result, post)
    assert primitive.weights is not None
    before = None if residual is None else emit.viewed(residual, y_shape)
    args = {SRC: x, WEIGHTS: emit.converted(w, primitive.weights), **_present(BIAS, bias)}
    args[DST] = emit.destination(before, result, [x, w])
    emit.emit(primitive, args)
    emit.define_view(fused.output, args[DST])


def _addends(fused: Fused, own: tuple[Value | None, ...], axis: int) -> tuple[np.ndarray | None, Value | None, float]:
    """Return the sum of all constants per channel, the residual, and the factor of the residual."""
    beta = float(fused.anchor.attrs.get("beta", 1.0))
    terms = [(v, beta) for v in own if v is not None] + [(v, 1.0) for v in fused.addends]
    shape = tensor(fused.output.type)
    bias, residual, scale = None, None, 1.0
    for value, factor in terms:
        vector = None if value.const is None else channel_vector(value.const, shape, axis)
        if vector is None:
            assert residual is None, f"{fused.output.name} has two residuals"
            residual, scale = value, factor
        else:
            bias = vector * np.float32(factor) + (0 if bias is None else bias)
    return bias, residual, scale


def window_of(node: Node, x: Shape, kernel: Shape) -> Window:
    """Return the geometry of a convolution or pooling on an operand of shape ``x``."""
    attrs = {k: node.attrs[k] for k in ("strides", "dilations", "pads", "auto_pad") if k in node.attrs}
    return make_window(node.op, x[2:], kernel, ceil_mode=bool(node.attrs.get("ceil_mode", 0)), **attrs)


def padded(shape: Shape, rank: int) -> Shape:
    """Return a shape with ones in front up to ``rank``."""
    return (1,) * (rank - len(shape)) + shape


def _present(number: int, operand: Tensor | None) -> dict[int, Tensor]:
    return {} if operand is None else {number: operand}
