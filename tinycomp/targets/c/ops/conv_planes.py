"""Convolutions of row-major images with row-major results: filters times columns of windows.

A product with the filters on its left gives planes as they are wanted. Its right factor holds, for every position of a
filter, the numbers that the windows have there (im2col); where those lie evenly in the image, they are read in place.
"""

from __future__ import annotations

from math import prod

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ops.spatial import Window
from tinycomp.symbolic import Size, product
from tinycomp.targets.c.codegen.emitter import Emitter, View, nd_params
from tinycomp.targets.c.codegen.epilogue import Fused
from tinycomp.targets.c.codegen.images import FLOAT
from tinycomp.targets.c.codegen.placement import emit_copy
from tinycomp.targets.common.checks import sized_type

_WINOGRAD = (3, 3)
"""Such windows are better computed channels last, with fewer multiplications."""
_DEEPEST = 256
"""Deeper products are worth filters that are packed, and the transpositions around them."""
_FEWEST_PIXELS = 1024
"""Smaller images are transposed in no time, and channels last they can be cut into lines to take less memory."""


def fits_planes(fused: Fused, window: Window[Size]) -> bool:
    """Tell whether a convolution of images of known size may be such a product, and takes less than transpositions."""
    _, w = fused.factors
    filters, own, *kernel = sized_type(w)[1]
    sizes = (*window.sizes, *window.output, *window.before)
    if fused.anchor.attrs.get("group", 1) != 1 or fused.addends or not all(isinstance(n, int) for n in sizes):
        return False
    if tuple(kernel) == _WINOGRAD and set(window.strides) == {1}:
        return False
    if product(window.output) < _FEWEST_PIXELS:
        return False
    depth = int(own * product(kernel))
    return depth <= min(int(own + filters), _DEEPEST)


def emit_planes(emit: Emitter, node: Node, fused: Fused, window: Window[Size]) -> None:
    """Emit the product, and before it the copies that make its right factor where there have to be any."""
    x, w = fused.factors
    assert w.const is not None
    batch, _channels, *_ = sized_type(x)[1]
    filters = w.const.reshape(len(w.const), -1)
    bias = fused.operands[2] if len(fused.operands) > 2 else None
    if bias is not None:
        assert bias.const is not None
        filters = np.concatenate([filters, bias.const.reshape(-1, 1)], axis=1)
    rows, depth = filters.shape
    columns = product(window.output)
    places, steps = _columns(emit, node, x, window, has_bias=bias is not None)
    params = {
        "batch0": 1,
        "batch1": batch,
        "m": rows,
        "n": columns,
        "k": depth,
        **{f"{letter}_batch0": 0 for letter in "abcr"},
        "a_batch1": 0,
        "a_row": depth,
        "a_column": 1,
        "b_batch1": steps[0],
        "b_row": steps[1],
        "b_column": steps[2],
        **{f"{letter}_batch1": rows * columns for letter in "cr"},
        **{f"{letter}_row": columns for letter in "cr"},
        "block_rows": 0,
        "alpha": 1.0,
        **fused.activation.params(),
    }
    operands = [emit.view(fused.output), emit.constant(np.ascontiguousarray(filters)), places, None, None]
    emit.call("matmul_f32", operands, params, node)


def _columns(
    emit: Emitter, node: Node, x: Value, window: Window[Size], *, has_bias: bool
) -> tuple[View, tuple[Size, Size, Size]]:
    """Return where the right factor lies, and its steps from batch to batch, row to row and column to column."""
    batch, channels, *_ = sized_type(x)[1]
    height, width = window.sizes
    image = height * width
    if not has_bias and window.is_pointwise and set(window.strides) == {1}:
        return emit.view(x), (channels * image, image, 1)
    is_line = channels == height == window.kernel[0] == window.output[0] == 1
    if not has_bias and is_line and set(window.before) == set(window.after) == {0}:
        return emit.view(x), (width, window.dilations[1], window.strides[1])
    lines, across = window.output
    columns, taps = lines * across, prod(window.kernel)
    depth = channels * taps + has_bias
    place = emit.scratch(FLOAT * batch * depth * columns)
    if set(window.before) | set(window.after) != {0}:
        _fill(emit, node, place, (1, batch * depth * columns), 0, 0.0)
    for tap in range(taps):
        (top, bottom, y), (left, right, column) = (
            _inside(window, axis, at) for axis, at in enumerate(divmod(tap, window.kernel[1]))
        )
        emit_copy(
            emit, node, place.at(FLOAT * (tap * columns + top * across + left)),
            emit.view(x).at(FLOAT * (y * width + column)),
            [batch, channels, bottom - top, right - left],
            [depth * columns, taps * columns, across, 1],
            [channels * image, image, window.strides[0] * width, window.strides[1]],
            FLOAT,
        )  # fmt: skip
    if has_bias:
        _fill(emit, node, place.at(FLOAT * (depth - 1) * columns), (batch, columns), depth * columns, 1.0)
    return place, (depth * columns, columns, 1)


def _inside(window: Window[Size], axis: int, tap: int) -> tuple[Size, Size, Size]:
    """Return the positions of the result whose windows have this tap inside the image, and what the first one sees."""
    stride, shift = window.strides[axis], window.before[axis] - tap * window.dilations[axis]
    first, last = (min(max(-(-n // stride), 0), window.output[axis]) for n in (shift, window.sizes[axis] + shift))
    last = max(first, last)
    return first, last, first * stride - shift if last > first else 0


def _fill(emit: Emitter, node: Node, place: View, shape: tuple[Size, Size], row: Size, value: float) -> None:
    pattern = int.from_bytes(np.float32(value).tobytes(), "little")
    params = {"element_size": FLOAT, "pattern": pattern, **nd_params(shape, stride=(row, 1))}
    emit.call("fill", [place], params, node)
