"""Convolution, pooling and resizing: weights, groups, and windows that leave an output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ops.conv import transposed_window
from tinycomp.ops.facts import Facts
from tinycomp.ops.spatial import make_window, spatial_tuple

_WEIGHTS = {"Conv": 1, "ConvInteger": 1, "ConvTranspose": 1, "QLinearConv": 3}
"""Which operand is the weight."""
_BIASES = {"Conv": 2, "ConvTranspose": 2, "QLinearConv": 8}


def _checked(facts: Facts, compute: Callable[..., Any], *args: Any, **attrs: Any) -> None:
    """Run a kernel's own check of its attributes, and let it refuse in the name of the node."""
    try:
        compute(facts.node.op, *args, **attrs)
    except ModelError as error:
        facts.fail(error.message.removeprefix(f"{facts.node.op}: "), expected=error.expected, found=error.found)


def _known(sizes: Sequence[object] | None) -> tuple[int, ...] | None:
    known = [s for s in sizes or () if isinstance(s, int)]
    return None if sizes is None or len(known) < len(sizes) else tuple(known)


def _require_space(facts: Facts, least: int) -> None:
    rank = facts.rank(0)
    if rank is not None and rank < least:
        facts.fail("the input has too few dimensions", expected=f"at least {least}: batch, channels, space", found=rank)


def _check_channels(facts: Facts, weight: int, transposed: bool) -> None:
    group, channels = int(facts.attr("group", 1)), facts.dim(0, 1)
    if group < 1:
        facts.fail("group is out of range", expected="1 or more", found=group)
    if channels is not None and channels % group:
        facts.fail("group does not divide the input channels", expected=f"a divisor of {channels}", found=group)
    outer = facts.dim(weight, 0)
    if transposed:
        facts.require_size(weight, 0, channels, "axis 0 of the weight")
    else:
        facts.require_size(weight, 1, None if channels is None else channels // group, "axis 1 of the weight")
        if outer is not None and outer % group:
            facts.fail("group does not divide the output channels", expected=f"a divisor of {outer}", found=group)
    bias = _BIASES.get(facts.node.op)
    inner = facts.dim(weight, 1)
    results = (None if inner is None else inner * group) if transposed else outer
    if bias is not None:
        facts.require_vector(bias, results, "the bias")


def _conv(facts: Facts) -> None:
    _require_space(facts, 3)
    weight, transposed = _WEIGHTS[facts.node.op], facts.node.op == "ConvTranspose"
    rank, weight_shape = facts.rank(0), facts.shape(weight)
    if rank is not None and weight_shape is not None and len(weight_shape) != rank:
        facts.fail("input and weight differ in rank", expected=f"{rank} dimensions", found=len(weight_shape))
    _check_channels(facts, weight, transposed)
    kernel = _known(None if weight_shape is None else weight_shape[2:])
    stated = facts.attr("kernel_shape")
    if kernel is not None and stated and tuple(stated) != kernel:
        facts.fail("kernel_shape does not fit the weight", expected=str(list(kernel)), found=list(stated))
    shape = facts.shape(0)
    sizes = _known(None if shape is None else shape[2:])
    if sizes is None or kernel is None:
        return
    attrs = {name: facts.attr(name) for name in ("strides", "dilations", "pads")}
    attrs["auto_pad"] = facts.attr("auto_pad", "NOTSET")
    if transposed:
        _checked(facts, spatial_tuple, "output_padding", facts.attr("output_padding"), len(sizes), 0, 0)
        adjust = facts.attr("output_padding") or (0,) * len(sizes)
        _checked(facts, transposed_window, sizes, kernel, adjust, facts.attr("output_shape"), **attrs)
    else:
        _checked(facts, make_window, sizes, kernel, **attrs)


def _pool(facts: Facts) -> None:
    _require_space(facts, 3)
    shape, kernel = facts.shape(0), facts.attr("kernel_shape")
    sizes = _known(None if shape is None else shape[2:])
    if sizes is None or kernel is None:
        return
    attrs = {name: facts.attr(name) for name in ("strides", "dilations", "pads")}
    ceil_mode = bool(facts.attr("ceil_mode", 0))
    _checked(facts, make_window, sizes, kernel, auto_pad=facts.attr("auto_pad", "NOTSET"), ceil_mode=ceil_mode, **attrs)


def _unpool(facts: Facts) -> None:
    rank = facts.rank(0)
    if rank is not None:
        for name in ("kernel_shape", "strides"):
            _checked(facts, spatial_tuple, name, facts.attr(name), rank - 2, 1, 1)
    if facts.sizes(0) is not None and facts.sizes(1) is not None and facts.sizes(0) != facts.sizes(1):
        facts.fail("indices and input differ in shape", expected=str(list(facts.sizes(0) or ())), found=facts.sizes(1))


def _global_pool(facts: Facts) -> None:
    _require_space(facts, 2)


def _resize(facts: Facts) -> None:
    if facts.node.version < 11:
        _check_scales(facts, 1)
        return
    axes, rank = facts.attr("axes"), facts.rank(0)
    if not rank:  # a scalar stays as it is
        return
    given = [i for i in (2, 3) if facts.operand(i) is not None and facts.dim(i, 0) != 0]
    if len(given) != 1 and all(facts.dim(i, 0) is not None for i in given):
        facts.fail("the output size is not determined", expected="either scales or sizes",
                   found="both" if given else "neither")  # fmt: skip
    if axes is not None:
        for axis in axes:
            facts.require_axis(axis, rank, "an entry of axes")
        facts.require_distinct(axes, rank)
    count = len(axes) if axes is not None else rank
    for index in given:
        facts.require_vector(index, count, "scales" if index == 2 else "sizes")
    _check_scales(facts, 2)
    sizes = facts.const(3)
    if sizes is not None and sizes.size and int(sizes.min()) < 0:
        facts.fail("a size is negative", expected="sizes of 0 or more", found=sizes.tolist())


def _check_scales(facts: Facts, index: int) -> None:
    scales = facts.const(index)
    if scales is not None and not (np.isfinite(scales) & (scales > 0)).all():
        facts.fail("a scale is not positive", expected="finite scales above 0", found=scales.tolist())


CHECKS: dict[str, Callable[[Facts], None]] = {
    **dict.fromkeys(_WEIGHTS, _conv),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _global_pool),
    "MaxUnpool": _unpool,
    "Resize": _resize,
}
