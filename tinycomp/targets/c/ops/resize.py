"""Resizing images on the C target, by tables of cells and weights for each axis.

Images lie channels last; those of few channels are resized plane by plane where they come row-major.

Tables of axes whose sizes and scales are known are constants; the others are made by a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import memory_order, strides
from tinycomp.ops.resize import resize as numpy_resize
from tinycomp.ops.resize import upsample_9
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import Size, maximum, minimum, product, typical
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter, Strided, View, nd_params
from tinycomp.targets.c.codegen.images import is_planar, pixels_of, pixels_to
from tinycomp.targets.c.codegen.placement import element_size, leave
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.conv import image
from tinycomp.targets.c.ops.movement import movable
from tinycomp.targets.common.checks import Verdict, all_of, settled, sized_type

FAMILY = LoweringRules()

_LARGEST = 4096
"""The largest input size along an axis whose table is read off a square matrix of this size."""
_NUMPY_FORM = 11


def _forms(node: Node) -> Verdict:
    """Tell whether a run finds scales, sizes and regions where they are expected."""
    if node.op == "Upsample" and node.version < 7:
        return reject("Upsample before opset 7")
    for index, dtypes in ((1, _FLOATS), (2, _FLOATS), (3, ("int64",))):
        value = node.optional_operand(index)
        if value is not None and not value.is_const and value.dtype not in dtypes:
            return reject(f'operand {index} ("{value.name}") is {value.type}, not {dtypes[0]}')
    if _keeps_ratio(node) or node.version < _NUMPY_FORM or node.op == "Upsample":
        return True
    return settled(3)(node)


_FLOATS = ("float32",)


def _is_crop(node: Node) -> bool:
    return node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"


def _keeps_ratio(node: Node) -> bool:
    return node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch" and _operand(node, 3) is not None


def _operand(node: Node, index: int) -> Value | None:
    """Return an operand that is there and has elements."""
    value = node.optional_operand(index)
    return None if value is None or value.static_shape == (0,) else value


def _numbers(node: Node) -> Verdict:
    """Tell whether numbers are float32, or only repeated or left out."""
    if node.operand(0).dtype == "float32":
        return True
    if node.attrs.get("mode", "nearest") != "nearest":
        return reject(f"interpolation between numbers of {node.operand(0).dtype}")
    if _is_crop(node):
        return reject(f"a crop of numbers of {node.operand(0).dtype}")
    return movable(node)


_IMAGE_RANK = 4
_FEW_CHANNELS = 8
"""Up to this number of channels, planes are resized as they lie: channels last would leave most of a vector empty."""


def _layout(node: Node) -> LayoutRule:
    x = node.operand(0)
    few = x.rank == _IMAGE_RANK and x.dtype == "float32" and typical(sized_type(x)[1][1]) <= _FEW_CHANNELS
    return LayoutRule.FOLLOW if few else LayoutRule.CHANNELS_LAST


@FAMILY.lower("Resize", "Upsample", check=all_of(_numbers, known_rank, _forms), layout=_layout)
def resize(emit: Emitter, node: Node) -> None:
    """Emit one resampling; every interpolation mode is a weighted sum of a few rows and columns."""
    x = node.operand(0)
    plan = _Plan.of(emit, node)
    changed = plan.changed
    if not changed:
        type_ = sized_type(x)[0]
        leave(emit, node, node.output, Strided(emit.view(x), strides(type_)))
    elif x.dtype != "float32":
        _emit_nearest(emit, plan)
    elif x.rank == _IMAGE_RANK and changed <= {2, 3} and not is_planar(x):
        _emit_image(emit, plan)
    else:
        _emit_axes(emit, plan)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a node resizes, and where a run finds by how much.

    Attributes:
        node: The node.
        axes: The axes that it may resize, in the order of its operands.
        scales: Where f64 scales of these axes lie that only a run shows.
        regions: Where the regions of a crop lie.
    """

    node: Node
    axes: tuple[int, ...]
    scales: View | None
    regions: View | None

    @classmethod
    def of(cls, emit: Emitter, node: Node) -> _Plan:
        """Read the operands of a node, and emit the scales that a run finds."""
        rank = node.operand(0).rank or 0
        axes = tuple(int(axis) % rank for axis in node.attrs.get("axes") or range(rank))
        regions = _operand(node, 1) if _is_crop(node) else None
        whole = np.repeat(np.array([0, 1], np.float32), len(axes))
        found = None if not _is_crop(node) else emit.constant(whole) if regions is None else _float_view(emit, regions)
        return cls(node, axes, _emit_scales(emit, node, axes), found)

    @property
    def changed(self) -> set[int]:
        """The axes that are not surely left as they are."""
        before, after = sized_type(self.node.operand(0))[1], sized_type(self.node.output)[1]
        asked = set(self.axes) if self.scales is not None or self.regions is not None else set()
        return asked | {
            axis
            for axis, (size, output) in enumerate(zip(before, after, strict=True))
            if size != output or _scale(self.node, axis) not in (0.0, 1.0)
        }

    def operands(self, axis: int) -> tuple[View | None, View | None]:
        """Return where the scale and the region of an axis lie."""
        return (self.scales, self.regions) if axis in self.axes else (None, None)


def _float_view(emit: Emitter, value: Value) -> View:
    return emit.view(value) if value.const is None else emit.constant(value.const.astype(np.float32))


_POLICIES = {"not_larger": lib.TC_RESIZE_NOT_LARGER, "not_smaller": lib.TC_RESIZE_NOT_SMALLER}


def _emit_scales(emit: Emitter, node: Node, axes: Sequence[int]) -> View | None:
    """Emit the scales that are no constants, or that follow from a ratio to keep; None where all are known."""
    place = 1 if _is_old(node) else 2
    given, asked = _operand(node, place), _operand(node, 3) if _keeps_ratio(node) else None
    if asked is None and (given is None or given.const is not None):
        return None
    before, after = sized_type(node.operand(0))[1], sized_type(node.output)[1]
    scales = emit.scratch(_CELL * len(axes))
    first: View | None = None if asked is not None or given is None else _float_view(emit, given)
    second = None if asked is None else emit.view(asked)
    params = {
        "count": len(axes),
        "policy": lib.TC_RESIZE_BY_SCALES if asked is None else _POLICIES[node.attrs["keep_aspect_ratio_policy"]],
        **{f"size{i}": n for i, n in enumerate(_padded([before[axis] for axis in axes]))},
        **{f"output{i}": n for i, n in enumerate(_padded([after[axis] for axis in axes]))},
    }
    emit.call("resize_scales", [scales, first, second], params, node)
    return scales


def _padded(sizes: Sequence[Size]) -> list[Size]:
    return [*sizes, *[1] * (MAX_RANK - len(sizes))]


def _emit_image(emit: Emitter, plan: _Plan) -> None:
    """Resize rows and columns of images at once."""
    node = plan.node
    x = node.operand(0)
    places, sizes = resized_images(emit, x, node.output)
    _emit_plane(emit, node, places, (_taps(emit, plan, 2), _taps(emit, plan, 3)), sizes)


def resized_images(emit: Emitter, x: Value, y: Value) -> tuple[tuple[View, View], dict[str, Size]]:
    """Return where the result and the operand of a Resize of images lie, and the sizes that its kernels take."""
    source, result = image(x), image(y)
    to, of = pixels_to(emit, y), pixels_of(emit, x)
    sizes = {
        "batch": source.batch,
        "height": source.height,
        "width": source.width,
        "channels": source.channels,
        "out_height": result.height,
        "out_width": result.width,
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
    }
    return (to.view, of.view), sizes


def _emit_plane(
    emit: Emitter, node: Node, places: tuple[View, View], taps: tuple[_Taps, _Taps], sizes: Mapping[str, Size]
) -> None:
    lines, columns = taps
    plain = lines.weights is None and columns.weights is None
    tables = [
        lines.cells,
        columns.cells,
        None if plain else _weights(emit, lines, sizes["out_height"]),
        None if plain else _weights(emit, columns, sizes["out_width"]),
    ]
    params = {
        **sizes,
        "line_taps": lines.count,
        "column_taps": columns.count,
        "crops": int(_is_crop(node)),
        "extrapolation": float(node.attrs.get("extrapolation_value", 0.0)),
    }
    emit.call("resize2d_f32", [*places, *tables], params, node)


def _emit_axes(emit: Emitter, plan: _Plan) -> None:
    """Resize any axes, two neighbours in memory at a time: what lies before them is a batch, behind them channels."""
    node, changed = plan.node, plan.changed
    order, now, wanted = _in_memory(node)
    groups: list[list[int]] = []
    for place, axis in enumerate(order):
        if axis in changed and groups and len(groups[-1]) == 1 and groups[-1][0] == place - 1:
            groups[-1].append(place)
        elif axis in changed:
            groups.append([place])
    of = emit.view(node.operand(0))
    for places in groups:
        first, last = places[0], places[-1]
        taps = [_taps(emit, plan, order[place]) for place in places]
        channels = product(now[last + 1 :])
        height, out_height = now[first], wanted[first]
        width, out_width = (now[last], wanted[last]) if len(places) > 1 else (1, 1)
        sizes = {
            "batch": product(now[:first]),
            "height": height,
            "width": width,
            "channels": channels,
            "out_height": out_height,
            "out_width": out_width,
            "x_pixel_stride": maximum(channels, 1),
            "y_pixel_stride": maximum(channels, 1),
        }
        now = [*now[:first], *wanted[first : last + 1], *now[last + 1 :]]
        to = emit.view(node.output) if places is groups[-1] else emit.scratch(_WEIGHT * product(now))
        columns = taps[1] if len(places) > 1 else _Taps(1, emit.constant(np.zeros((1, 1), np.int64)), None)
        _emit_plane(emit, node, (to, of), (taps[0], columns), sizes)
        of = to


def _emit_nearest(emit: Emitter, plan: _Plan) -> None:
    """Emit the choice of elements along one axis after the other; numbers that lie in no cell do not occur."""
    node, changed = plan.node, plan.changed
    order, now, wanted = _in_memory(node)
    places = [place for place, axis in enumerate(order) if axis in changed]
    of, size = emit.view(node.operand(0)), element_size(node.output)
    for place in places:
        params = {
            "outer": product(now[:place]),
            "axis": now[place],
            "inner": product(now[place + 1 :]),
            "count": wanted[place],
            "element_size": size,
            "index_size": _CELL,
        }
        now = [*now[:place], wanted[place], *now[place + 1 :]]
        to = emit.view(node.output) if place == places[-1] else emit.scratch(size * product(now))
        emit.call("gather", [to, of, _taps(emit, plan, order[place]).cells], params, node)
        of = to


def _in_memory(node: Node) -> tuple[list[int], list[Size], list[Size]]:
    """Return the axes, the sizes of the operand and those of the result, in the order of memory."""
    type_, before = sized_type(node.operand(0))
    after = sized_type(node.output)[1]
    order = list(memory_order(type_.layout, len(before)))
    return order, [before[axis] for axis in order], [after[axis] for axis in order]


@dataclass(frozen=True, eq=False)
class _Taps:
    """Where the tables of an axis lie; without weights it is one tap of weight 1."""

    count: Size
    cells: View
    weights: View | None


_CELL, _WEIGHT = 8, 4
"""Bytes of an entry of either table."""
_LONGEST_TABLE = 1 << 20
"""A longer one is made in the run."""


def _weights(emit: Emitter, taps: _Taps, size: Size) -> View:
    if taps.weights is not None:
        return taps.weights
    if isinstance(size, int) and size <= _LONGEST_TABLE:
        return emit.constant(np.ones((size, 1), np.float32))
    weights = emit.scratch(size * _WEIGHT)
    one = int.from_bytes(np.float32(1).tobytes(), "little")
    emit.call("fill", [weights], {"element_size": _WEIGHT, "pattern": one, **nd_params((size,), stride=(1,))})
    return weights


def _taps(emit: Emitter, plan: _Plan, axis: int) -> _Taps:
    """Return the tables of an axis: constants where it is known and not too large, else made by a call."""
    node = plan.node
    size, output = (sized_type(value)[1][axis] for value in (node.operand(0), node.output))
    scales, regions = plan.operands(axis)
    is_known = isinstance(size, int) and isinstance(output, int) and scales is None and regions is None
    if is_known and isinstance(size, int) and size <= _LARGEST:
        cells, factors = _known_taps(_axis_matrix(node, axis))
        return _Taps(cells.shape[1], emit.constant(cells), None if factors is None else emit.constant(factors))
    params = _mode_params(node)
    scale = 0.0 if scales is not None else _scale(node, axis)
    is_nearest = params["mode"] == lib.TC_RESIZE_NEAREST
    is_centred = params["coordinates"] == lib.TC_RESIZE_HALF_PIXEL_SYMMETRIC
    count = 1 if is_nearest else _most_taps(size, output, scale, params, is_found=scales is not None)
    cells_at = emit.scratch(output * count * _CELL)
    weights_at = None if is_nearest else emit.scratch(output * count * _WEIGHT)
    own = {
        "size": size,
        "output": output,
        "taps": count,
        "scale": scale,
        "whole": int((_keeps_ratio(node) and not is_centred) or (scale == 0.0 and scales is None)),
        "place": plan.axes.index(axis) if axis in plan.axes else 0,
        "places": len(plan.axes),
    }
    if regions is None and params["coordinates"] == lib.TC_RESIZE_CROP:  # an axis that the crop does not concern
        params["coordinates"] = lib.TC_RESIZE_HALF_PIXEL
    emit.call("resize_taps", [cells_at, weights_at, scales, regions], {**own, **params}, node)
    return _Taps(count, cells_at, weights_at)


_MODES = {"nearest": lib.TC_RESIZE_NEAREST, "linear": lib.TC_RESIZE_LINEAR, "cubic": lib.TC_RESIZE_CUBIC}
_COORDINATES = {
    "half_pixel": lib.TC_RESIZE_HALF_PIXEL,
    "half_pixel_symmetric": lib.TC_RESIZE_HALF_PIXEL_SYMMETRIC,
    "pytorch_half_pixel": lib.TC_RESIZE_PYTORCH_HALF_PIXEL,
    "align_corners": lib.TC_RESIZE_ALIGN_CORNERS,
    "asymmetric": lib.TC_RESIZE_ASYMMETRIC,
    "tf_half_pixel_for_nn": lib.TC_RESIZE_HALF_PIXEL_FOR_NEAREST,
    "tf_crop_and_resize": lib.TC_RESIZE_CROP,
}
_ROUNDINGS = {
    "round_prefer_floor": lib.TC_RESIZE_ROUND_PREFER_FLOOR,
    "round_prefer_ceil": lib.TC_RESIZE_ROUND_PREFER_CEIL,
    "floor": lib.TC_RESIZE_FLOOR,
    "ceil": lib.TC_RESIZE_CEIL,
}


def _is_old(node: Node) -> bool:
    """Tell whether a node resizes as ONNX did it first: by scales alone, from asymmetric coordinates."""
    return node.op == "Upsample" or node.version < _NUMPY_FORM


def _mode_params(node: Node) -> dict[str, float | int]:
    """Return how a coordinate becomes cells and weights, in the terms of the kernel."""
    attrs = node.attrs
    mode = str(attrs.get("mode", "nearest"))
    params = {"cubic_a": 0.0, "exclude_outside": 0, "antialias": 0}
    if _is_old(node):
        return params | {
            "mode": _MODES["linear" if mode == "bilinear" else mode],
            "coordinates": lib.TC_RESIZE_ASYMMETRIC,
            "rounding": lib.TC_RESIZE_FLOOR_UNLESS_SHRINKING,
        }
    return {
        "mode": _MODES[mode],
        "coordinates": _COORDINATES[attrs.get("coordinate_transformation_mode", "half_pixel")],
        "rounding": _ROUNDINGS[attrs.get("nearest_mode", "round_prefer_floor")],
        "cubic_a": float(attrs.get("cubic_coeff_a", -0.75)),
        "exclude_outside": int(attrs.get("exclude_outside", 0)),
        "antialias": int(attrs.get("antialias", 0)),
    }


def _scale(node: Node, axis: int) -> float:
    """Return the scale of an axis, or 0 where it follows from its sizes."""
    if _is_old(node):
        return _old_scales(node)[axis]
    scale = _given_scale(node, axis)
    return 0.0 if scale is None else float(scale[0])


def _most_taps(size: Size, output: Size, scale: float, params: Mapping[str, float | int], *, is_found: bool) -> Size:
    """Return how many cells a position reads at most; a scale that a run finds gives the output, rounded either way."""
    radius = 2 if params["mode"] == lib.TC_RESIZE_CUBIC else 1
    reach: Size = radius
    if params["antialias"] and scale:
        reach = math.ceil(radius / min(scale, 1.0))
    elif params["antialias"] and is_found:
        reach = maximum(radius, (2 * radius * size) // maximum(2 * output - 1, 1) + 2)
    elif params["antialias"]:  # one more, as the quotient may be rounded up
        reach = maximum(radius, (radius * size) // maximum(output, 1) + 2)
    return maximum(minimum(2 * reach, size), 1)


def _axis_matrix(node: Node, axis: int) -> np.ndarray:
    """Return the linear map [output, input] along one axis: what the numpy kernel makes of the unit vectors."""
    size = sized_type(node.operand(0))[1][axis]
    assert isinstance(size, int), node
    unit = np.eye(size, dtype=np.float32)
    attrs = {k: v for k, v in node.attrs.items() if k not in ("axes", "scales")}
    if _is_old(node):
        given = _old_scales(node)
        return np.asarray(upsample_9(unit, np.array([given[axis], 1.0], np.float32), **attrs))
    scales = _given_scale(node, axis)
    sizes = None if scales is not None else np.array([sized_type(node.output)[1][axis]])
    return np.asarray(numpy_resize(unit, None, scales, sizes, axes=[0], **attrs))


def _old_scales(node: Node) -> Sequence[float]:
    """Return the scales of every axis, before opset 11: an attribute or an operand; 0 where a run finds them."""
    given = node.optional_operand(1)
    if given is not None and given.const is None:
        return [0.0] * (node.operand(0).rank or 0)
    return [float(s) for s in (node.attrs["scales"] if given is None or given.const is None else given.const)]


def _given_scale(node: Node, axis: int) -> np.ndarray | None:
    """Return the scale of one axis as an array of one element, or None if sizes are given."""
    scales = node.const(2)
    if scales is None or not scales.size:
        return None
    rank = node.operand(0).rank or 1
    axes = [a % rank for a in node.attrs.get("axes", range(rank))]
    return scales.reshape(-1)[[axes.index(axis)]] if axis in axes else np.ones(1, np.float32)


def _known_taps(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the cells that each output reads and their weights (None: one cell each, of weight 1)."""
    count = max(1, int((matrix != 0).sum(axis=1).max(initial=0)))
    # A stable sort by "is zero" brings the cells in use to the front, in order.
    cells = np.argsort(matrix == 0, axis=1, kind="stable")[:, :count].astype(np.int64)
    weights = np.take_along_axis(matrix, cells, axis=1).astype(np.float32)
    return cells, None if count == 1 and (weights == 1).all() else weights
