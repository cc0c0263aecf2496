"""The lowering: which primitives each node of a region becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tinycomp.target_api import Node, Value, Window, checks, composites, is_structural, make_window, tensor
from tinycomp_dnnl.composites import UNARY, Chain, Fused, activation, take_apart
from tinycomp_dnnl.emitter import Emitter, shape_of
from tinycomp_dnnl.interface import BIAS, BINARY, DST, MULTIPLE_SRC, POOL, SRC, SRC_1, WEIGHTS
from tinycomp_dnnl.library import Library
from tinycomp_dnnl.primitives import PostOps
from tinycomp_dnnl.program import Program, Tensor

Shape = tuple[int, ...]
Lower = Callable[[Emitter, Node], None]


def generate(region: Node, library: Library) -> Program:
    """Return the program of a region whose shapes are static; all its primitives and packed weights are made here."""
    emit = Emitter(library, region.body)
    for node in region.body.nodes:
        emit.begin(node)
        _lowering(node)(emit, node)
    return emit.finish()


def _lowering(node: Node) -> Lower:
    if node.is_composite:
        return COMPOSITES[node.op.rpartition(".")[2]]
    return _view if is_structural(node) else OPERATORS[node.op]


# Products -------------------------------------------------------------------------------------------------------------


def _convolution(emit: Emitter, node: Node) -> None:
    """Emit a convolution in the layouts that the library chooses, its weights packed now."""
    fused = take_apart(node, frozenset({"Conv"}))
    x, w = fused.operand(0), fused.operand(1)
    assert w.const is not None, node
    window = _window_of(fused.anchor, shape_of(x), w.const.shape[2:])
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


def _gemm(emit: Emitter, node: Node) -> None:
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


def _matmul(emit: Emitter, node: Node) -> None:
    """Emit a product of matrices or vectors, batched or not."""
    fused = take_apart(node, frozenset({"MatMul"}))
    a, b = fused.operand(0), fused.operand(1)
    a_shape, b_shape = shape_of(a), shape_of(b)
    a_shape = (1, *a_shape) if len(a_shape) == 1 else a_shape
    b_shape = (*b_shape, 1) if len(b_shape) == 1 else b_shape
    if len(b_shape) == 2:
        a_shape = (math.prod(a_shape[:-1]), a_shape[-1])
    rank = max(len(a_shape), len(b_shape))
    a_shape, b_shape = _padded(a_shape, rank), _padded(b_shape, rank)
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
    bias = None if vector is None else emit.constant(vector.reshape(_padded((y_shape[-1],), len(y_shape))))
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
        vector = None if value.const is None else checks.channel_vector(value.const, shape, axis)
        if vector is None:
            assert residual is None, f"{fused.output.name} has two residuals"
            residual, scale = value, factor
        else:
            bias = vector * np.float32(factor) + (0 if bias is None else bias)
    return bias, residual, scale


def _present(number: int, operand: Tensor | None) -> dict[int, Tensor]:
    return {} if operand is None else {number: operand}


# Windows --------------------------------------------------------------------------------------------------------------


def _pool(emit: Emitter, node: Node) -> None:
    x = _first(node)
    window = _window_of(node, shape_of(x), tuple(node.attrs["kernel_shape"]))
    # Without padding both means are one, and the library takes this one dilated as well.
    whole = node.attrs.get("count_include_pad", 0) or not any(
        (*window.before, *window.after, node.attrs.get("ceil_mode", 0))
    )
    kind = "max" if node.op == "MaxPool" else "mean_with_pads" if whole else "mean"
    _emit_pool(emit, node, POOL[kind], window, shape_of(node.output))


def _global_pool(emit: Emitter, node: Node) -> None:
    shape = shape_of(_first(node))
    window = make_window(node.op, shape[2:], shape[2:])
    kind = "max" if node.op == "GlobalMaxPool" else "mean"
    _emit_pool(emit, node, POOL[kind], window, (*shape[:2], *window.output))


def _emit_pool(emit: Emitter, node: Node, kind: int, window: Window[int], shape: Shape) -> None:
    x = emit.found(_first(node))
    ends = [(n - 1) * s + e for n, s, e in zip(window.output, window.strides, window.extents, strict=True)]
    # The padding behind that the windows reach, which rounding makes more or less than what was asked for.
    after = [max(end - size - b, 0) for end, size, b in zip(ends, window.sizes, window.before, strict=True)]
    primitive = emit.make.pool(kind, x.layout, shape, window, after)
    result = emit.fresh(primitive.result)
    emit.emit(primitive, {SRC: x, DST: result})
    if shape == shape_of(node.output):
        emit.define(node.output, result)
    else:
        emit.define_view(node.output, emit.converted(result, emit.library.plain(shape)))


def _window_of(node: Node, x: Shape, kernel: Shape) -> Window[int]:
    """Return the geometry of a convolution or pooling on an operand of shape ``x``."""
    attrs = {k: node.attrs[k] for k in ("strides", "dilations", "pads", "auto_pad") if k in node.attrs}
    return make_window(node.op, x[2:], kernel, ceil_mode=bool(node.attrs.get("ceil_mode", 0)), **attrs)


# Element by element ---------------------------------------------------------------------------------------------------


def _binary(emit: Emitter, node: Node) -> None:
    fused = take_apart(node, frozenset(BINARY))
    shape = shape_of(node.output)
    a, b = fused.operand(0), fused.operand(1)
    if shape_of(a) != shape:
        a, b = b, a
    left = emit.found(a)
    same = shape_of(b) == shape
    right = emit.form(b, left.layout) if same else emit.viewed(b, _padded(shape_of(b), len(shape)))
    post = PostOps(eltwise=fused.eltwise)
    primitive = emit.make.binary(BINARY[fused.anchor.op], left.layout, right.layout, left.layout, post)
    result = emit.fresh(left.layout)
    emit.emit(primitive, {SRC: left, SRC_1: right, DST: result})
    emit.define(node.output, result)


def _eltwise(emit: Emitter, node: Node) -> None:
    """An activation by itself, or else of arithmetic on two tensors."""
    body, _ = composites.opened(node)
    argument = next(v for v in body.inputs if v.users)
    chain = activation(argument, body.outputs[0])
    if chain is None:
        _binary(emit, node)
    else:
        _emit_chain(emit, node, chain)


def _unary(emit: Emitter, node: Node) -> None:
    _emit_chain(emit, node, UNARY[node.op](node))


def _emit_chain(emit: Emitter, node: Node, chain: Chain) -> None:
    source = emit.found(_first(node))
    result = emit.fresh(source.layout)
    for function in chain:
        emit.emit(emit.make.eltwise(function, source.layout), {SRC: source, DST: result})
        source = result
    emit.define(node.output, result)


# The rest -------------------------------------------------------------------------------------------------------------

FLATTENING_BEFORE = 13
"""Until this opset softmax works on the axis and everything behind it as one."""


def _softmax(emit: Emitter, node: Node) -> None:
    shape = shape_of(_first(node))
    flattening = node.version < FLATTENING_BEFORE
    axis = int(node.attrs.get("axis", 1 if flattening else -1)) % len(shape)
    if flattening:
        shape, axis = (math.prod(shape[:axis]), math.prod(shape[axis:])), 1
    x = emit.viewed(_first(node), shape)
    primitive = emit.make.softmax(x.layout, axis, logarithm=node.op == "LogSoftmax")
    result = emit.fresh(x.layout)
    emit.emit(primitive, {SRC: x, DST: result})
    emit.define_view(node.output, result)


def _concat(emit: Emitter, node: Node) -> None:
    operands = [emit.found(v) for v in node.inputs if v is not None]
    axis = int(node.attrs["axis"]) % len(shape_of(node.output))
    primitive = emit.make.concat([t.layout for t in operands], axis)
    result = emit.fresh(primitive.result)
    emit.emit(primitive, {**{MULTIPLE_SRC + i: t for i, t in enumerate(operands)}, DST: result})
    emit.define(node.output, result)


def _view(emit: Emitter, node: Node) -> None:
    """The same elements under another shape, or under the same: no step at all."""
    x = _first(node)
    if shape_of(x) == shape_of(node.output):
        emit.define(node.output, emit.found(x))
    else:
        emit.define_view(node.output, emit.plain(x))


def _padded(shape: Shape, rank: int) -> Shape:
    """Return a shape with ones in front up to ``rank``."""
    return (1,) * (rank - len(shape)) + shape


def _first(node: Node) -> Value:
    value = node.inputs[0]
    assert value is not None, node
    return value


VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")

COMPOSITES: Mapping[str, Lower] = {
    "conv": _convolution,
    "gemm": _gemm,
    "matmul": _matmul,
    "eltwise": _eltwise,
}
OPERATORS: Mapping[str, Lower] = {
    "Conv": _convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalMaxPool": _global_pool,
    "GlobalAveragePool": _global_pool,
    "ReduceMean": _global_pool,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Concat": _concat,
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(UNARY, _unary),
    **dict.fromkeys(VIEWS, _view),
}
"""The lowering of every operator and composite that the target knows."""
