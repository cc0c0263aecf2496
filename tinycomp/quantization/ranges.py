"""Choosing the range of a value from what was seen of it: the four methods of calibration.

``minmax`` covers everything. The others cut off what is rare, so that what is frequent gets finer steps:
``percentile`` a fixed share; ``mse`` what makes the mean squared error of rounding and cutting off smallest;
``entropy`` what changes the distribution least, by the Kullback-Leibler divergence (after S. Migacz, "8-bit Inference
with TensorRT", 2017).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from tinycomp.quantization.encoding import Encoding
from tinycomp.quantization.histogram import Extremes, Histogram

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")
PERCENTILE = 99.999
"""Per cent of the numbers that a range holds unless somebody says otherwise."""
Range = tuple[float, float]
Cost = Callable[[float, float], float]
_SHRINK = np.concatenate([np.linspace(1.0, 0.5, 51), np.geomspace(0.49, 0.02, 30)])
"""The shares of the whole range that a search tries; 1 first, so that it wins a draw."""


def observer(method: Method) -> Extremes:
    """Return what has to watch a value."""
    return Extremes() if method == "minmax" else Histogram()


def choose_range(seen: Extremes, method: Method, encoding: Encoding, percentile: float | None = None) -> Range:
    """Return the range to represent.

    Args:
        seen: What :func:`observer` returned, after the calibration.
        method: How to choose.
        encoding: What the range is for.
        percentile: For the method of this name: how many per cent of the numbers the range holds; None for
            :data:`PERCENTILE`.
    """
    if not isinstance(seen, Histogram) or not seen.counts.any():
        return seen.low, seen.high
    if method == "percentile":
        return _percentile(seen, encoding.symmetric, PERCENTILE if percentile is None else percentile)
    cost = squared_error(seen, encoding) if method == "mse" else divergence(seen, encoding)
    return _search(seen, cost, encoding.symmetric)


def _percentile(seen: Histogram, symmetric: bool, percentile: float) -> Range:
    """Cut the same share off both ends; of the magnitudes where zero is the middle. A bin that is cut into stays."""
    cut = 1 - percentile / 100
    counts, edges = seen.counts.copy(), seen.edges
    counts[int(np.searchsorted(edges, 0.0))] += seen.zeros
    if symmetric:
        reach = np.maximum(np.abs(edges[1:]), np.abs(edges[:-1]))
        order = np.argsort(reach)
        limit = float(reach[order][_first_reaching(counts[order], 1 - cut)])
        return max(seen.low, -limit), min(seen.high, limit)
    one_sided = seen.low == 0 or seen.high == 0
    share = cut if one_sided else cut / 2
    high = edges[1 + _first_reaching(counts, 1 - share)]
    low = edges[-2 - _first_reaching(counts[::-1], 1 - share)]
    return max(seen.low, min(float(low), 0.0)), min(seen.high, max(float(high), 0.0))


def _first_reaching(counts: np.ndarray, share: float) -> int:
    """Return the first bin at which ``share`` of all has been counted; the sums are whole numbers below 2**53."""
    sums = np.cumsum(counts)
    return int(np.searchsorted(sums, min(share * float(sums[-1]), float(sums[-1]))))


def _search(seen: Histogram, cost: Cost, symmetric: bool) -> Range:
    """Return the range of least cost: both ends are drawn in together first, then each by itself."""
    low, high = seen.low, seen.high
    if symmetric:
        reach = max(-low, high)
        best = min(_SHRINK, key=lambda share: cost(-share * reach, share * reach)) * reach
        return max(low, -best), min(high, best)
    share = min(_SHRINK, key=lambda share: cost(share * low, share * high))
    low, high = share * low, share * high
    if low < 0 < high:
        high = min(_ends(high, seen.high), key=lambda end: cost(low, end))
        low = min(_ends(low, seen.low), key=lambda end: cost(end, high))
    return float(low), float(high)


def _ends(now: float, furthest: float) -> list[float]:
    """The ends to try: the one there is, then shares of the furthest."""
    return [now, *(furthest * _SHRINK)]


def squared_error(seen: Histogram, encoding: Encoding) -> Cost:
    """Return what a range costs as the sum of squared errors; every number counts as the middle of its bin."""
    places = np.flatnonzero(seen.counts)
    centres, counts = seen.centres[places].astype(np.float32), seen.counts[places].astype(np.float64)

    def cost(low: float, high: float) -> float:
        affine = encoding.affine(low, high)
        error = affine.dequantize(affine.quantize(centres)) - centres
        return float((error.astype(np.float64) ** 2 * counts).sum())

    return cost


def divergence(seen: Histogram, encoding: Encoding) -> Cost:
    """Return what a range costs as the divergence of the rounded distribution from the one that was seen.

    The bins of one step share their counts equally, as far as they hold any. What lies outside the range counts at its
    ends in the rounded distribution, and is missing where it was seen: cutting off costs by how much is cut off. The
    whole range has one or two bins per step; with finer ones the peaks of a distribution, which a finer step tells
    from their neighbours, would weigh more than its tails.
    """
    coarse = seen.coarse(_COARSE)
    counts, edges = coarse.counts.astype(np.float64), coarse.edges
    width, levels = coarse.width, encoding.levels
    wanted, places = counts / counts.sum(), np.arange(counts.size)

    def cost(low: float, high: float) -> float:
        first = int(np.clip(np.floor((low - edges[0]) / width), 0, counts.size - 1))
        last = int(np.clip(np.floor((high - edges[0]) / width) + 1, first + 1, counts.size))
        size = last - first
        step = (np.clip(places, first, last - 1) - first) * levels // max(size, levels)
        held = (counts > 0) & (places >= first) & (places < last)
        share = np.bincount(step, wanted) / np.maximum(np.bincount(step, held), 1)
        return _divergence(wanted, np.where(held, share[step], 0.0))

    return cost


_COARSE = 3
_SMOOTH = 1e-4


def _divergence(wanted: np.ndarray, found: np.ndarray) -> float:
    """The Kullback-Leibler divergence; where nothing was found, almost nothing is taken for it."""
    places = wanted > 0
    p, q = wanted[places], np.maximum(found[places], _SMOOTH / wanted.size)
    return float((p * np.log(p / q)).sum())
