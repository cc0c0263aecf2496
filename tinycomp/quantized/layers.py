"""Which parts of a graph are quantised layers: patterns and checks in order of precedence, for targets and the host.

A target makes composites of the kinds that it runs (:data:`KINDS`). Where no target has a layer, the host computes it
by the same rules: :func:`in_integers` finds the layers of a graph that is about to run there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops.numeric import Array, prod
from tinycomp.quantized import Rounding, patterns
from tinycomp.quantized.integers import Kernel, kernel
from tinycomp.quantized.interpolation import IntegerResize, interpolates
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.patterns import bias_per_channel, equal_counts, scaled_per_channel, spatial_pads, sums_fit
from tinycomp.quantized.reading import MEAN_WEIGHT, Requantization, fixed_point, limits
from tinycomp.quantized.softmax import IntegerSoftmax, has_lines
from tinycomp.records import dataclass
from tinycomp.remark import Remark, Verdict, reject
from tinycomp.rewrite import Composite, Match, ValuePattern
from tinycomp.rewrite.composites import Selection, outline_all

_IMAGES = (3, 4)
"""Ranks of what is convolved."""
_SHIFTS = range(-31, 32)


@dataclass(frozen=True)
class Kind:
    """Describe a kind of quantised layer.

    Attributes:
        pattern: What it looks like; its name is that of the kind.
        checks: What the pattern cannot say.
        fixed_point: Whether it is computed in integers with fixed-point factors alone.
    """

    pattern: Callable[..., ValuePattern]
    checks: tuple[Callable[[Match], Verdict], ...]
    fixed_point: bool = False


def factors_fit(factors: Array) -> Verdict:
    """Tell whether what sums are multiplied by is positive and finite in float32."""
    return bool((np.isfinite(factors) & (factors > 0)).all()) or reject("a ratio of scales leaves float32")


def is_image_or_matrix(match: Match) -> Verdict:
    """Tell whether a product is one of matrices, or of images or lines with zeros around them."""
    core = QuantizedLayer.of(match).core
    rank = core.output.rank
    if rank is None:
        return reject("the rank is unknown")
    if core.op == "Conv":
        if rank not in _IMAGES:
            return reject(f"a convolution of {rank - 2} spatial axes, not 1 or 2")
        pads = spatial_pads(match.matched, rank)
        if isinstance(pads, Remark):
            return pads
        if any(pads) and core.attrs.get("auto_pad", "NOTSET") != "NOTSET":
            return reject("a Pad before automatic padding")
    return True


def _factor_fits(match: Match) -> Verdict:
    return factors_fit(QuantizedLayer.of(match).factors)


def _is_spelled_as_rounding(match: Match) -> Verdict:
    """Tell whether explicit arithmetic is that of layers: one factor per channel, integer bounds and zero point."""
    layer, last = QuantizedLayer.of(match), match.outputs[0].producer
    assert last is not None
    if (layer.steps != 1).any():
        return reject("the sums are scaled before they are multiplied")
    to, factors = Requantization.spelled_out(last)
    rank, channels = layer.core.output.rank or 0, len(layer.product.weight)
    axis = 1 if layer.core.op == "Conv" else rank - 1
    whole = (*[1] * (rank - factors.ndim), *factors.shape)
    if factors.size != 1 and whole != tuple([channels if d == axis else 1 for d in range(rank)]):
        return reject(f"factors of shape {list(factors.shape)}, not one per channel")
    info = np.iinfo(to.dtype)
    low, high = limits(last.inputs[0])
    if not info.min <= to.zero_point <= info.max:
        return reject(f"a zero point of {to.zero_point}")
    if low < info.min or high > info.max:
        return reject(f"a range from {low} to {high}, more than {to.dtype} holds")
    return True


def deepest(layer: QuantizedLayer) -> int:
    """Return how many products of two dequantised operands int32 holds the sum of, whatever they are."""
    largest = 1
    for index in (0, 1):
        info, point = np.iinfo(layer.stored(index).dtype), layer.zero_point(index)
        largest *= max(info.max - point, point - info.min)
    return (2**31 - 1) // largest


def _run_time_sums_fit(match: Match) -> Verdict:
    """Tell whether no sum can leave int32, as far as the depth is known by now."""
    shape, most = match.a.shape, deepest(QuantizedLayer.of(match))
    depth = shape[-1] if shape else None
    if isinstance(depth, int) and depth > most:
        return reject(f"sums of {depth} products, more than the {most} that int32 holds for all data")
    return True


def has_window(match: Match) -> Verdict:
    """Tell whether channels and sizes of a mean are known, so that it is a convolution with known weights."""
    if match.x.rank not in _IMAGES:
        return reject(f"a mean over {match.x.type}")
    window = QuantizedLayer.of(match).kernel
    if not all(isinstance(size, int) for size in (match.x.shape[1], *window)):
        return reject(f"a mean of {match.x.type} over {list(window)}, of which not all is known")
    largest = 255 * MEAN_WEIGHT * prod(window)
    return largest < 2**31 or reject(f"sums may reach {largest}, which overflows the int32 accumulator")


def _ratio_fits(match: Match) -> Verdict:
    layer = QuantizedLayer.of(match)
    kind = IntegerSoftmax if layer.core.op == "Softmax" else IntegerResize
    _, shift = fixed_point(np.array([kind.of(layer).ratio]))[0]
    return shift in _SHIFTS or reject("a ratio of scales leaves the range of fixed-point factors")


_CONSTANT = (bias_per_channel, scaled_per_channel, sums_fit, is_image_or_matrix, _factor_fits)
_RUN_TIME = (_run_time_sums_fit, _factor_fits)
KINDS: Mapping[str, Kind] = MappingProxyType({
    "qconv": Kind(patterns.qconv, _CONSTANT),
    "qdense": Kind(patterns.qdense, _CONSTANT),
    "qconv_scaled": Kind(patterns.qconv_scaled, (*_CONSTANT, _is_spelled_as_rounding)),
    "qdense_scaled": Kind(patterns.qdense_scaled, (*_CONSTANT, _is_spelled_as_rounding)),
    "qavgpool": Kind(patterns.qavgpool, (equal_counts, has_window), fixed_point=True),
    "qmatmul": Kind(patterns.qmatmul, _RUN_TIME),
    "qsoftmax": Kind(patterns.qsoftmax, (has_lines, _ratio_fits), fixed_point=True),
    "qresize": Kind(patterns.qresize, (interpolates, _ratio_fits), fixed_point=True),
    "qconv_real": Kind(patterns.qconv_real, _CONSTANT),
    "qdense_real": Kind(patterns.qdense_real, _CONSTANT),
    "qmatmul_real": Kind(patterns.qmatmul_real, _RUN_TIME),
})  # fmt: skip
"""The kinds of layers whose integers are not what their definition gives in float32, in order of precedence."""


@functools.cache
def _composites(rounding: Rounding) -> Sequence[Composite]:
    made = [] if rounding == "fixed_point" else [Composite.trace(patterns.qavgpool)]
    for name, kind in KINDS.items():
        if rounding == "fixed_point" or not kind.fixed_point:
            composite = Composite.trace(kind.pattern, name=name)
            composite.checks.extend(kind.checks)
            made.append(composite)
    return made


def in_integers(graph: Graph, rounding: Rounding) -> tuple[Graph, Mapping[Node, tuple[Node, Kernel]]]:
    """Find the quantised layers of a graph that is about to run on the host.

    Returns:
        The graph, or a copy in which each layer is one node; and for these the operators of the layers and the
        functions that compute them.
    """
    copy = graph.clone()
    selection = Selection(copy)
    for composite in _composites(rounding):
        selection.choose(composite)
    layers = {}
    for node in outline_all(selection):
        layer = QuantizedLayer.of(node.body.nodes)
        layers[node] = layer.core, kernel(layer, node.body.inputs, rounding)
    return (copy, layers) if layers else (graph, {})
