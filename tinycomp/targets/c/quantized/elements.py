"""Element-wise work and maxima on 8-bit numbers on the C target: tables of 256 entries, and sums of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ir.layout import memory_order, strides
from tinycomp.ir.types import tensor
from tinycomp.quantized import patterns
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.tables import looked_up, one_variable, table_of
from tinycomp.rewrite import Match, reject
from tinycomp.runtime.native.library import codes
from tinycomp.symbolic import Size, product, typical
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import broadcast_steps
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter, Strided, nd_params
from tinycomp.targets.c.codegen.images import pixels_of, pixels_to
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.common.checks import Verdict, sized_type
from tinycomp.targets.common.composites import operands_of

FAMILY = LoweringRules()
_IMAGES = (3, 4, 5)
_CODES = codes("tc_binary", "TC_BINARY_")


def add_elements(target: Target) -> None:
    """Add the composites of element-wise operators between 8-bit numbers."""
    target.composite(patterns.qbinary).check(_known_ranks)
    target.composite(patterns.qtable).check(one_variable)


def _known_ranks(match: Match) -> Verdict:
    for value in (match.a, match.b):
        rank = value.rank
        if rank is None or rank > MAX_RANK:
            return reject(f'"{value.name}" has rank {rank}')
    return True


@FAMILY.lower("c.qtable", check=taken, domain=COMPOSITE, unsigned=True)
def qtable(emit: Emitter, node: Node) -> None:
    """Emit a lookup in a table of the results of all 256 bytes."""
    x = looked_up(node)
    table, shape = table_of(node), sized_type(node.output)[1]
    rows: Size = 1
    columns = read = written = product(shape)
    of, to = None, None
    if len(shape) in _IMAGES and tensor(x.type).layout:
        source, result = pixels_of(emit, x), pixels_to(emit, node.output)
        of, to = source.view, result.view
        if (source.stride, result.stride) != (shape[1], shape[1]):
            rows, columns, read, written = product(shape) // shape[1], shape[1], source.stride, result.stride
    params = {
        "element_size": table.itemsize,
        "rows": rows,
        "columns": columns,
        "x_row_stride": read,
        "y_row_stride": written,
    }
    emit.call("qlookup", [to or node.output, of or x, emit.constant(table)], params, node)


@FAMILY.lower("c.qbinary", check=taken, domain=COMPOSITE, unsigned=True)
def qbinary(emit: Emitter, node: Node) -> None:
    """Emit the sum, difference or product of two 8-bit tensors, broadcast as ONNX has it."""
    layer, outer = QuantizedLayer.of(node.body.nodes), operands_of(node)
    to = layer.result
    result, shape = sized_type(node.output)
    places = [_broadcast(emit, outer[layer.stored(i)], node.output) for i in (0, 1)]
    order = sorted(range(len(shape)), key=lambda d: -typical(strides(result)[d]))
    a, b = places
    params = {
        "op": _CODES[layer.core.op.upper()],
        **{f"{name}_zero_point": layer.zero_point(i) for i, name in enumerate("ab")},
        **{f"{name}_scale": layer.scale(i) for i, name in enumerate("ab")},
        "y_zero_point": to.zero_point,
        "y_scale": float(to.scale),
        "low": to.low,
        "high": to.high,
        **nd_params(
            [shape[d] for d in order],
            y_stride=[strides(result)[d] for d in order],
            a_stride=[a.strides[d] for d in order],
            b_stride=[b.strides[d] for d in order],
        ),
    }
    emit.call("qbinary", [node.output, a.view, b.view], params, node)


def _broadcast(emit: Emitter, value: Value, result: Value) -> Strided:
    """Return where an operand lies, with stride 0 along the axes of the result that it is repeated along."""
    _, shape = sized_type(value)
    rank = len(sized_type(result)[1])
    if value.const is not None:
        order = memory_order(tensor(result.type).layout, rank) if len(shape) == rank else range(len(shape))
        where = Strided(emit.constant(value.const.transpose(list(order))), _strides_in(shape, list(order)))
    else:
        where = emit.where(value)
    return Strided(where.view, tuple(broadcast_steps(shape, where.strides, sized_type(result)[1])))


def _strides_in(shape: Sequence[Size], order: list[int]) -> tuple[Size, ...]:
    """Return the strides by dimension of an array whose dimensions lie in memory in ``order``."""
    steps: list[Size] = [0] * len(shape)
    step: Size = 1
    for dim in reversed(order):
        steps[dim], step = step, step * shape[dim]
    return tuple(steps)
