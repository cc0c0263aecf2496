"""Pooling and local response normalisation on the C target.

Pools take images as they lie: channels last, or row-major, where every plane is an image of one channel.
"""

from __future__ import annotations

from dataclasses import fields

from tinycomp.index import named
from tinycomp.ir.graph import TINYCOMP, Node
from tinycomp.ir.types import EIGHT_BITS, tensor
from tinycomp.ops.spatial import POOLING, Window, make_window, window_attributes
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import Size, product, typical
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, nbytes
from tinycomp.targets.c.codegen.images import FLOAT, Pixels, is_planar, pixels_of, pixels_to
from tinycomp.targets.c.codegen.rules import LoweringRules
from tinycomp.targets.c.ops.conv import axes_of, axis_params, image, window_of, window_params
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, float32, ranks, sized_type

FAMILY = LoweringRules()


def _numbers(node: Node) -> Verdict:
    """Tell whether a pool is of float32, or the maximum of bytes in an image."""
    if node.op == "MaxPool" and len(node.outputs) > 1 and node.outputs[1].name:
        return reject("the indices of the maxima are asked for")
    if node.op == "MaxPool" and node.output.dtype in EIGHT_BITS:
        return ranks(3, 4)(node)
    return all_of(float32, ranks(3, 4, 5))(node)


_WIDE, _LARGE = 16, 1024
"""From these numbers of columns and of pixels on, planes are pooled as they lie; narrower ones take less channels last,
and smaller ones are transposed in no time."""


def _is_dequantized(node: Node) -> bool:
    """Tell whether a mean is one of dequantised numbers, whose sums the documentation has in the order of rows.

    Planes are summed in another one, and near a tie the order decides which number the result is rounded to.
    """
    before = node.operand(0).producer
    return node.op in named("mean") and before is not None and before.op == "DequantizeLinear"


def _pool_layout(node: Node) -> LayoutRule:
    x = node.operand(0)
    _, (_, _, *sizes) = sized_type(x)
    of_bytes = x.dtype in EIGHT_BITS or _is_dequantized(node)
    fits = not of_bytes and typical(sizes[-1]) >= _WIDE and typical(product(sizes)) >= _LARGE
    return LayoutRule.FOLLOW if fits else LayoutRule.CHANNELS_LAST


@FAMILY.lower("MaxPool", "AveragePool", check=_numbers, layout=_pool_layout, unsigned=True)
def pool(emit: Emitter, node: Node) -> None:
    """Emit a sliding-window maximum or mean; of volumes in two steps, over planes and then along the depth.

    Both steps together are exact: a window is a box also where the border cuts it, and so is what it counts.
    """
    x = node.operand(0)
    _, shape = sized_type(x)
    batch, channels, *sizes = shape
    window = window_of(node, x, tuple(node.attrs["kernel_shape"]))
    mode = None if x.dtype in EIGHT_BITS else lib.TC_POOL_MAX
    if node.op == "AveragePool":
        mode = lib.TC_POOL_AVERAGE_WITH_PADS if node.attrs.get("count_include_pad", 0) else lib.TC_POOL_AVERAGE
    if is_planar(x):
        batch, channels = batch * channels, 1
        to, of = Pixels(emit.view(node.output), 1), Pixels(emit.view(x), 1)
    else:
        to, of = pixels_to(emit, node.output), pixels_of(emit, x)
    if window.rank == 2:
        _emit_pool(emit, node, (to, of), mode, batch, channels, window)
        return
    planes = axes_of(window, 1, 3)
    pixels = product(planes.output)
    pooled = Pixels(emit.scratch(FLOAT * batch * sizes[0] * pixels * channels), channels)
    _emit_pool(emit, node, (pooled, of), mode, batch * sizes[0], channels, planes)
    untouched: Window[Size] = Window((pixels,), (1,), (1,), (1,), (0,), (0,), (pixels,))
    _emit_pool(emit, node, (to, pooled), mode, batch, channels, _joined(axes_of(window, 0, 1), untouched))


@FAMILY.lower(
    "MaxPoolIndices",
    domain=TINYCOMP,
    check=all_of(dtypes("float32", "float64", *EIGHT_BITS), ranks(3, 4, 5)),
    layout=LayoutRule.ROW_MAJOR,
)
def max_pool_indices(emit: Emitter, node: Node) -> None:
    """Emit a search for the maxima and their places; those count in the tensor as ONNX has it, row by row."""
    x = node.operand(0)
    type_, shape = sized_type(x)
    given = window_attributes(node.attrs, POOLING)
    window = make_window(node.op, shape[2:], tuple(node.attrs["kernel_shape"]), **given)
    params = {
        "type": TYPES[type_.dtype],
        "storage_order": int(node.attrs.get("storage_order", 0)),
        "images": shape[0] * shape[1],
        **axis_params("", window.sizes, 1),
        **axis_params("out_", window.output, 1),
        **axis_params("kernel_", window.kernel, 1),
        **axis_params("stride_", window.strides, 1),
        **axis_params("dilation_", window.dilations, 1),
        **axis_params("before_", window.before, 0),
    }
    results = [v if v.name else emit.scratch(nbytes(tensor(v.type))) for v in node.outputs]
    emit.call("max_pool_indices", [*results, x], params, node)


def _joined(a: Window[Size], b: Window[Size]) -> Window[Size]:
    """Return the geometry along the axes of both."""
    return Window(*(getattr(a, f.name) + getattr(b, f.name) for f in fields(a)))


def _emit_pool(
    emit: Emitter,
    node: Node,
    images: tuple[Pixels, Pixels],
    mode: int | None,
    batch: Size,
    channels: Size,
    window: Window[Size],
) -> None:
    """Emit one call; without a mode it is the maximum of bytes."""
    to, of = images
    params = {
        "batch": batch,
        "channels": channels,
        **window_params(window),
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
    }
    if mode is not None:
        params |= {"mode": mode, "pad_bottom": window.after[0], "pad_right": window.after[1]}
    emit.call("qmaxpool2d" if mode is None else "pool2d_f32", [to.view, of.view], params, node)


def _global_layout(node: Node) -> LayoutRule:
    return LayoutRule.CHANNELS_LAST if _is_dequantized(node) else LayoutRule.FOLLOW


@FAMILY.lower("GlobalAveragePool", "GlobalMaxPool", check=all_of(float32, ranks(3, 4, 5)), layout=_global_layout)
def global_pool(emit: Emitter, node: Node) -> None:
    """Emit a pooling whose only window is the image; of planes, a reduction of rows."""
    x = node.operand(0)
    source = image(x)
    if is_planar(x):
        rows = {"outer": source.batch * source.channels, "axis1": source.height * source.width}
        op = lib.TC_REDUCE_MAX if node.op == "GlobalMaxPool" else lib.TC_REDUCE_MEAN
        emit.call("reduce_f32", [node.output, x], {"op": op, **rows, "axis0": 1, "middle": 1, "inner": 1}, node)
        return
    of = pixels_of(emit, x)
    sizes = {"height": source.height, "width": source.width}
    ones = ("out_height", "out_width", "stride_height", "stride_width", "dilation_height", "dilation_width")
    params = {
        "mode": lib.TC_POOL_MAX if node.op == "GlobalMaxPool" else lib.TC_POOL_AVERAGE,
        "batch": source.batch,
        "channels": source.channels,
        **sizes,
        **dict.fromkeys(ones, 1),
        **{f"kernel_{axis}": size for axis, size in sizes.items()},
        **dict.fromkeys(("pad_top", "pad_left", "pad_bottom", "pad_right"), 0),
        "x_pixel_stride": of.stride,
        "y_pixel_stride": source.channels,
    }
    emit.call("pool2d_f32", [node.output, of.view], params, node)


def _positive(node: Node) -> Verdict:
    bias, alpha = float(node.attrs.get("bias", 1.0)), float(node.attrs.get("alpha", 1e-4))
    return (bias > 0 and alpha >= 0) or reject(f"bias {bias} and alpha {alpha} may make the sum negative")


@FAMILY.lower("LRN", check=all_of(float32, ranks(3, 4, 5), _positive), layout=LayoutRule.CHANNELS_LAST)
def lrn(emit: Emitter, node: Node) -> None:
    """Emit a normalisation over neighbouring channels."""
    source = image(node.operand(0))
    params = {
        "pixels": source.batch * source.height * source.width,
        "channels": source.channels,
        "size": int(node.attrs["size"]),
        "alpha": float(node.attrs.get("alpha", 1e-4)),
        "beta": float(node.attrs.get("beta", 0.75)),
        "bias": float(node.attrs.get("bias", 1.0)),
    }
    emit.call("lrn_f32", [node.output, node.operand(0)], params, node)
