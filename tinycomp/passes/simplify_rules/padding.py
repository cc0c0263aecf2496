"""Rules on padding: explicit pads instead of ``auto_pad``, and Pad nodes merged into convolutions and pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import tensor
from tinycomp.ops.spatial import make_window
from tinycomp.passes.edits import replace
from tinycomp.passes.simplify_rules.facts import constant, ints, is_private, operand, producer, shape
from tinycomp.rewrite import rule

_WINDOWED = ("Conv", "ConvInteger", "MaxPool", "AveragePool", "LpPool", "QLinearConv")
_WEIGHT = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}


@rule(*_WINDOWED)
def explicit_pads(graph: Graph, node: Node) -> bool:
    """``auto_pad`` becomes ``pads`` where the sizes are known."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto == "NOTSET" or node.attrs.get("ceil_mode", 0):
        return False
    attrs = {key: value for key, value in node.attrs.items() if key not in ("auto_pad", "pads")}
    pads = _automatic_pads(node, auto)
    if pads is None:
        return False
    node.attrs = attrs | {"pads": pads}
    return True


def _automatic_pads(node: Node, auto: str) -> list[int] | None:
    x, sizes, kernel = operand(node, 0), None, kernel_of(node)
    if x is not None:
        sizes = tensor(x.type).static_shape
    if kernel is not None and auto == "VALID":
        return [0] * (2 * len(kernel))
    if sizes is None or kernel is None:
        return None
    strides, dilations = node.attrs.get("strides"), node.attrs.get("dilations")
    try:
        window = make_window(node.op, sizes[2:], kernel, strides=strides, dilations=dilations, auto_pad=auto)
    except ModelError:
        return None
    return [*window.before, *window.after]


def kernel_of(node: Node) -> list[int] | None:
    """Return the spatial extent of a convolution's or pool's kernel, or None where it is not known."""
    if "kernel_shape" in node.attrs:
        return list(node.attrs["kernel_shape"])
    weight = operand(node, _WEIGHT[node.op]) if node.op in _WEIGHT else None
    sizes = None if weight is None else tensor(weight.type).static_shape
    return None if sizes is None else list(sizes[2:])


@rule("Conv")
def merge_pad_into_conv(graph: Graph, node: Node) -> bool:
    """A Pad with zeros of spatial axes becomes ``pads`` of the Conv behind it."""
    return _merge_pad(graph, node, 0.0)


@rule("AveragePool")
def merge_pad_into_average_pool(graph: Graph, node: Node) -> bool:
    """A Pad with zeros becomes ``pads`` that count; pads that the pool has and does not count forbid it."""
    counts = node.attrs.get("count_include_pad", 0)
    if node.version < 7 or node.attrs.get("ceil_mode", 0) or (any(node.attrs.get("pads", ())) and not counts):
        return False
    return _merge_pad(graph, node, 0.0, {"count_include_pad": 1})


@rule("MaxPool")
def merge_pad_into_max_pool(graph: Graph, node: Node) -> bool:
    """A Pad with minus infinity becomes ``pads``, which a maximum never sees; indices would change."""
    if node.attrs.get("ceil_mode", 0) or any(value.name for value in node.outputs[1:]):
        return False
    return _merge_pad(graph, node, -np.inf)


def _merge_pad(graph: Graph, node: Node, fill: float, more: dict[str, Any] | None = None) -> bool:
    pad = producer(node.inputs[0], "Pad")
    if pad is None or not is_private(graph, pad.output) or node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return False
    outer, kernel = pads_of(pad, fill), kernel_of(node)
    if outer is None or kernel is None or len(outer) != 2 * len(kernel):
        return False
    own = node.attrs.get("pads") or [0] * len(outer)
    pads = [a + b for a, b in zip(outer, own, strict=True)]
    if node.op != "Conv" and not _sees_input(node, kernel, pads):
        return False
    attrs = {**node.attrs, **(more or {}), "pads": pads}
    return replace(graph, node, node.op, [pad.inputs[0], *node.inputs[1:]], attrs, merged=[pad], version=node.version)


def _sees_input(node: Node, kernel: list[int], pads: list[int]) -> bool:
    """Whether no window of a pool can lie wholly in the padding, which ONNX forbids."""
    dilations = node.attrs.get("dilations") or [1] * len(kernel)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return all(pad < extent for pad, extent in zip(pads, extents * 2, strict=True))


def pads_of(pad: Node, fill: float) -> list[int] | None:
    """Return the spatial pads of a Pad that fills batch and channels not at all and the rest with ``fill``."""
    dims = shape(pad.inputs[0])
    pads = ints(pad, 1, "pads" if pad.version > 1 else "paddings")
    if dims is None or pads is None or pad.attrs.get("mode", "constant") != "constant" or _fill(pad) != fill:
        return None
    axes = ints(pad, 3, "")
    if axes is None:
        if operand(pad, 3) is not None:
            return None
        axes = list(range(len(dims)))
    both = [[0] * len(dims), [0] * len(dims)]
    for index, axis in enumerate(axes):
        both[0][axis], both[1][axis] = pads[index], pads[index + len(axes)]
    if min(*both[0], *both[1]) < 0 or any(both[0][:2] + both[1][:2]):
        return None
    return both[0][2:] + both[1][2:]


def _fill(pad: Node) -> float | None:
    if pad.version < 11:
        return float(pad.attrs.get("value", 0.0))
    if operand(pad, 2) is None:
        return 0.0
    value = constant(pad, 2)
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


RULES = (explicit_pads, merge_pad_into_conv, merge_pad_into_average_pool, merge_pad_into_max_pool)
