"""The code generator: which primitives each node of a region becomes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tinycomp.ir.graph import Node, Value
from tinycomp.ops.spatial import Window, make_window
from tinycomp.rewrite.traits import is_structural
from tinycomp.targets.common.composites import opened
from tinycomp.targets.dnnl.eltwise import UNARY, Chain, activation
from tinycomp.targets.dnnl.emit import Emitter, shape_of
from tinycomp.targets.dnnl.fused import take_apart
from tinycomp.targets.dnnl.library import Library
from tinycomp.targets.dnnl.primitives import BINARY, DST, MULTIPLE_SRC, POOL, SRC, SRC_1, PostOps
from tinycomp.targets.dnnl.products import Shape, convolution, gemm, matmul, padded, window_of
from tinycomp.targets.dnnl.program import Program

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


# Windows --------------------------------------------------------------------------------------------------------------


def _pool(emit: Emitter, node: Node) -> None:
    x = _first(node)
    window = window_of(node, shape_of(x), tuple(node.attrs["kernel_shape"]))
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


def _emit_pool(emit: Emitter, node: Node, kind: int, window: Window, shape: Shape) -> None:
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


# Element by element ---------------------------------------------------------------------------------------------------


def _binary(emit: Emitter, node: Node) -> None:
    fused = take_apart(node, frozenset(BINARY))
    shape = shape_of(node.output)
    a, b = fused.operand(0), fused.operand(1)
    if shape_of(a) != shape:
        a, b = b, a
    left = emit.found(a)
    same = shape_of(b) == shape
    right = emit.form(b, left.layout) if same else emit.viewed(b, padded(shape_of(b), len(shape)))
    post = PostOps(eltwise=fused.eltwise)
    primitive = emit.make.binary(BINARY[fused.anchor.op], left.layout, right.layout, left.layout, post)
    result = emit.fresh(left.layout)
    emit.emit(primitive, {SRC: left, SRC_1: right, DST: result})
    emit.define(node.output, result)


def _eltwise(emit: Emitter, node: Node) -> None:
    """An activation by itself, or else of arithmetic on two tensors."""
    body, _ = opened(node)
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


def _first(node: Node) -> Value:
    value = node.inputs[0]
    assert value is not None, node
    return value


VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")

COMPOSITES: Mapping[str, Lower] = {
    "conv": convolution,
    "gemm": gemm,
    "matmul": matmul,
    "eltwise": _eltwise,
}
OPERATORS: Mapping[str, Lower] = {
    "Conv": convolution,
    "Gemm": gemm,
    "MatMul": matmul,
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
