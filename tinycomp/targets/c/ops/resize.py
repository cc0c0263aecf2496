"""Resizing images on the C target: channels last, with tables of cells and weights made at compile time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ops.resize import resize as numpy_resize
from tinycomp.ops.resize import upsample_9
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.symbolic import Size
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.images import pixels_of, pixels_to
from tinycomp.targets.c.codegen.rules import LoweringRules
from tinycomp.targets.c.ops.conv import image
from tinycomp.targets.common.checks import Verdict, all_of, constant, dtypes, ranks, sized_type
from tinycomp.targets.common.quantized.patterns import EIGHT_BITS

FAMILY = LoweringRules()

_LARGEST = 4096
"""The largest input size along an axis: its table is read off a square matrix of this size."""
_NUMPY_FORM = 11


def _separable(node: Node) -> Verdict:
    """Rows and columns must be resized independently, and nothing else with them."""
    if node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return reject("cropping to a region of interest")
    if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return reject("keeping the aspect ratio")
    if node.op == "Upsample" and node.version < 7:
        return reject("Upsample before opset 7")
    before, after = node.operand(0).shape, node.output.shape
    if before is None or after is None or before[:2] != after[:2]:
        return reject("batch or channels are resized")
    sizes = [d for d in before[2:] if isinstance(d, int)]
    return max(sizes, default=0) <= _LARGEST or reject(f"a side of {max(sizes)} pixels, more than {_LARGEST}")


def _numbers(node: Node) -> Verdict:
    """Tell whether numbers are float32, or bytes that are only repeated or left out."""
    if node.operand(0).dtype in EIGHT_BITS:
        return node.attrs.get("mode", "nearest") == "nearest" or reject("interpolation between 8-bit numbers")
    return dtypes("float32", operands=(0,))(node)


@FAMILY.lower(
    "Resize", "Upsample",
    check=all_of(_numbers, ranks(4), constant(1, 2, 3), _separable), layout=LayoutRule.CHANNELS_LAST,
)  # fmt: skip
def resize(emit: Emitter, node: Node) -> None:
    """Emit one resampling; every interpolation mode is a weighted sum of a few rows and columns."""
    x = node.operand(0)
    if x.dtype in EIGHT_BITS:
        _emit_nearest(emit, node)
        return
    source, result = image(x), image(node.output)
    to, of = pixels_to(emit, node.output), pixels_of(emit, x)
    lines, columns = _axis_matrix(node, 2), _axis_matrix(node, 3)
    line_cells, line_weights = _taps(lines)
    column_cells, column_weights = _taps(columns)
    plain = line_weights is None and column_weights is None
    params = {
        "batch": source.batch,
        "height": source.height,
        "width": source.width,
        "channels": source.channels,
        "out_height": result.height,
        "out_width": result.width,
        "line_taps": line_cells.shape[1],
        "column_taps": column_cells.shape[1],
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
    }
    operands: list[View | None] = [
        to.view,
        of.view,
        emit.constant(line_cells),
        emit.constant(column_cells),
        None if plain else _weights(emit, line_weights, line_cells),
        None if plain else _weights(emit, column_weights, column_cells),
    ]
    emit.call("resize2d_f32", operands, params, node)


def _emit_nearest(emit: Emitter, node: Node) -> None:
    """Emit the choice of rows and then of columns of 8-bit images; numbers that lie in no cell do not occur."""
    source, result = image(node.operand(0)), image(node.output)
    rows, columns = (_taps(_axis_matrix(node, axis))[0] for axis in (2, 3))
    chosen = emit.scratch(source.batch * result.height * source.width * source.channels)
    line = source.width * source.channels
    _emit_choice(emit, node, (chosen, emit.view(node.operand(0))), rows, (source.batch, source.height, line))
    pixels = (source.batch * result.height, source.width, source.channels)
    _emit_choice(emit, node, (emit.view(node.output), chosen), columns, pixels)


def _emit_choice(
    emit: Emitter, node: Node, places: tuple[View, View], cells: np.ndarray, sizes: tuple[Size, Size, Size]
) -> None:
    outer, axis, inner = sizes
    params = {
        "outer": outer,
        "axis": axis,
        "inner": inner,
        "count": len(cells),
        "element_size": 1,
        "index_size": cells.itemsize,
    }
    emit.call("gather", [*places, emit.constant(cells)], params, node)


def _weights(emit: Emitter, weights: np.ndarray | None, cells: np.ndarray) -> View:
    return emit.constant(np.ones(cells.shape, np.float32) if weights is None else weights)


def _axis_matrix(node: Node, axis: int) -> np.ndarray:
    """Return the linear map [output, input] along one axis: what the numpy kernel makes of the unit vectors."""
    size = sized_type(node.operand(0))[1][axis]
    assert isinstance(size, int), node
    unit = np.eye(size, dtype=np.float32)
    attrs = {k: v for k, v in node.attrs.items() if k not in ("axes", "scales")}
    if node.op == "Upsample" or node.version < _NUMPY_FORM:
        given = _old_scales(node)
        return np.asarray(upsample_9(unit, np.array([given[axis], 1.0], np.float32), **attrs))
    scales, sizes = _entry(node, 2, axis), _entry(node, 3, axis)
    return np.asarray(numpy_resize(unit, None, scales, sizes, axes=[0], **attrs))


def _old_scales(node: Node) -> Sequence[float]:
    """Return the scales of every axis, before opset 11: an attribute or an operand."""
    scales = node.const(1)
    return [float(s) for s in (node.attrs["scales"] if scales is None else scales)]


def _entry(node: Node, index: int, axis: int) -> np.ndarray | None:
    """Return the scale or size of one axis as an array of one element, or None if the operand is absent or empty."""
    value = node.optional_operand(index)
    if value is None or value.const is None or not value.const.size:
        return None
    axes = [a % 4 for a in node.attrs.get("axes", range(4))]
    if axis in axes:
        return np.array([value.const.reshape(-1)[axes.index(axis)]])
    return np.ones(1, np.float32) if index == 2 else np.array([sized_type(node.operand(0))[1][axis]])


def _taps(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the cells that each output reads and their weights (None: one cell each, of weight 1)."""
    count = max(1, int((matrix != 0).sum(axis=1).max(initial=0)))
    # A stable sort by "is zero" brings the cells in use to the front, in order.
    cells = np.argsort(matrix == 0, axis=1, kind="stable")[:, :count].astype(np.int64)
    weights = np.take_along_axis(matrix, cells, axis=1).astype(np.float32)
    return cells, None if count == 1 and (weights == 1).all() else weights
