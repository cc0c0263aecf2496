"""Sampling of images at arbitrary places on the C target: GridSample, and RoiAlign for the regions of a detector."""

from __future__ import annotations

from tinycomp.ir.graph import TINYCOMP, Node
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import Size, product
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.images import pixels_of, pixels_to
from tinycomp.targets.c.codegen.rules import LoweringRules
from tinycomp.targets.c.ops.conv import image
from tinycomp.targets.common.checks import all_of, dtypes, float32, ranks, sized_type

FAMILY = LoweringRules()

_MODES = {
    "nearest": lib.TC_RESIZE_NEAREST,
    "linear": lib.TC_RESIZE_LINEAR, "bilinear": lib.TC_RESIZE_LINEAR,
    "cubic": lib.TC_RESIZE_CUBIC, "bicubic": lib.TC_RESIZE_CUBIC,
}  # fmt: skip
_PADDINGS = {
    "zeros": lib.TC_GRID_ZEROS,
    "border": lib.TC_GRID_BORDER,
    "reflection": lib.TC_GRID_REFLECTION,
}


@FAMILY.lower("GridSample", check=all_of(float32, ranks(3, 4, 5)), layout=LayoutRule.IMAGE)
def grid_sample(emit: Emitter, node: Node) -> None:
    """Emit one interpolation at all points of a grid."""
    _emit_samples(emit, node, int(node.attrs.get("align_corners", 0)))


_CELLS = 2
"""What the kernel calls coordinates that are cells."""


@FAMILY.lower("SampleCells", domain=TINYCOMP, check=all_of(float32, ranks(3, 4, 5)), layout=LayoutRule.IMAGE)
def sample_cells(emit: Emitter, node: Node) -> None:
    """Emit one interpolation between cells."""
    _emit_samples(emit, node, _CELLS)


def _emit_samples(emit: Emitter, node: Node, coordinates: int) -> None:
    x, grid = node.operand(0), node.operand(1)
    batch, channels, *spatial = sized_type(x)[1]
    sizes: list[Size] = [*[1] * (3 - len(spatial)), *spatial]
    depth, height, width = sizes
    to, of = pixels_to(emit, node.output), pixels_of(emit, x)
    params: dict[str, float | Size] = {
        "batch": batch,
        "depth": depth,
        "height": height,
        "width": width,
        "channels": channels,
        "axes": len(spatial),
        "points": product(sized_type(grid)[1][1:-1]),
        "mode": _MODES[str(node.attrs.get("mode", "linear"))],
        "padding": _PADDINGS[str(node.attrs.get("padding_mode", "zeros"))],
        "aligned": coordinates,
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
    }
    emit.call("grid_sample_f32", [to.view, of.view, grid], params, node)


_HALF_PIXEL = 16
"""From this opset on coordinates are those of edges of pixels, unless told otherwise."""


@FAMILY.lower(
    "RoiAlign",
    check=all_of(dtypes("float32", operands=(0, 1)), ranks(4)),
    layout=LayoutRule.IMAGE,
)
def roi_align(emit: Emitter, node: Node) -> None:
    """Emit the pooling of all regions."""
    x = node.operand(0)
    source, result, attrs = image(x), image(node.output), node.attrs
    to, of = pixels_to(emit, node.output), pixels_of(emit, x)
    how = attrs.get("coordinate_transformation_mode", "half_pixel")
    params: dict[str, float | Size] = {
        "batch": source.batch,
        "height": source.height,
        "width": source.width,
        "channels": source.channels,
        "rois": result.batch,
        "out_height": result.height,
        "out_width": result.width,
        "ratio": int(attrs.get("sampling_ratio", 0)),
        "scale": float(attrs.get("spatial_scale", 1.0)),
        "half_pixel": int(node.version >= _HALF_PIXEL and how == "half_pixel"),
        "largest": int(attrs.get("mode", "avg") == "max"),
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
    }
    emit.call("roi_align_f32", [to.view, of.view, node.operand(1), node.operand(2)], params, node)
