"""Find the range of every value that will be rounded, from one pass over the data.

:class:`Extremes` and :class:`Histogram` watch values go by in constant memory: their range, and how often which of them
occurs. :func:`choose_range` chooses from that by one of four methods. ``minmax`` covers everything. The others cut off
what is rare, so that what is frequent gets finer steps: ``percentile`` a fixed share; ``mse`` what makes the mean
squared error of rounding and cutting off smallest; ``entropy`` what changes the distribution least, by the
Kullback-Leibler divergence (after S. Migacz, "8-bit Inference with TensorRT", 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.driver.compile import compile as compile_model
from tinycomp.driver.tune import Bar
from tinycomp.errors import FeedError, QuantizationError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.quantization.bias_correction import MeanErrors
from tinycomp.quantization.encoding import Affine, Encoding
from tinycomp.quantization.layers import Layer, Slot
from tinycomp.quantization.options import Method, Options

BINS = 4096
"""The most bins that a histogram has; a range takes at least half of them, minus one."""
_LEAST_EXPONENT = -140
PERCENTILE = 99.999
"""Per cent of the numbers that a range holds unless somebody says otherwise."""
Range = tuple[float, float]
Cost = Callable[[float, float], float]
_SHRINK = np.concatenate([np.linspace(1.0, 0.5, 51), np.geomspace(0.49, 0.02, 30)])
"""The shares of the whole range that a search tries; 1 first, so that it wins a draw."""
_COARSE = 3
_SMOOTH = 1e-4
Feeds = dict[str, np.ndarray]
_HINT = 'Give an iterable of inputs, each a dict such as {"%s": array}; of a model with one input, the array will do.'
Scales = dict[Slot, Affine]
"""Scale and zero point by value and dtype."""


class Extremes:
    """The smallest and largest number seen; 0 counts as seen, because every range must represent it."""

    def __init__(self) -> None:
        self.low = 0.0
        self.high = 0.0
        self.count = 0

    def add(self, array: np.ndarray) -> None:
        """Look at the numbers of a float32 array."""
        if array.size:
            # Unlike Python's own, these hand NaN on.
            self.low = float(np.minimum(self.low, array.min()))
            self.high = float(np.maximum(self.high, array.max()))
            self.count += array.size

    @property
    def finite(self) -> bool:
        """Whether no number was infinite or NaN."""
        return math.isfinite(self.low) and math.isfinite(self.high)


class Histogram(Extremes):
    """How often numbers occur, in bins that grow with the range.

    A bin is as wide as a power of two, and begins at a multiple of it. Where the range outgrows :data:`BINS`,
    neighbours are joined, which loses no count: the result does not depend on the order in which the numbers come, nor
    on how they are divided into arrays. Zeros are counted apart; they are what rounding never changes.

    >>> histogram = Histogram()
    >>> histogram.add(np.float32([0, 1, 2, 3]))
    >>> histogram.add(np.float32([1000]))
    >>> histogram.counts.sum(), histogram.zeros, histogram.high
    (np.int64(4), 1, 1000.0)
    """

    def __init__(self) -> None:
        super().__init__()
        self.zeros = 0
        self._exponent = _LEAST_EXPONENT
        self._first = 0
        self._counts: NDArray[np.int64] = np.zeros(1, np.int64)

    def add(self, array: np.ndarray) -> None:
        """Count the numbers of a float32 array."""
        super().add(array)
        if not array.size or not self.finite:
            return
        self._grow()
        flat = array.reshape(-1)
        nonzero = flat[flat != 0]
        self.zeros += flat.size - nonzero.size
        places = np.floor(np.ldexp(nonzero.astype(np.float64), -self._exponent)).astype(np.int64) - self._first
        self._counts += np.bincount(places, minlength=self._counts.size)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often numbers other than 0 occur, by bin."""
        return self._counts

    @property
    def width(self) -> float:
        """How wide a bin is."""
        return math.ldexp(1.0, self._exponent)

    @property
    def edges(self) -> NDArray[np.float64]:
        """Where the bins begin, and where the last one ends."""
        return np.ldexp(np.arange(self._first, self._first + self._counts.size + 1).astype(np.float64), self._exponent)

    @property
    def centres(self) -> NDArray[np.float64]:
        """The middle of every bin."""
        edges = self.edges
        return (edges[1:] + edges[:-1]) / 2

    def _grow(self, doublings: int = 0) -> None:
        """Make bins for the whole range, wider ones if there would be too many or if it is asked for."""
        exponent = max(self._exponent, self._needed()) + doublings
        first, last = (math.floor(math.ldexp(end, -exponent)) for end in (self.low, self.high))
        counts = np.zeros(last - first + 1, np.int64)
        held = np.flatnonzero(self._counts)
        np.add.at(counts, ((held + self._first) >> (exponent - self._exponent)) - first, self._counts[held])
        self._exponent, self._first, self._counts = exponent, first, counts

    def coarse(self, doublings: int) -> Histogram:
        """Return the histogram with bins that have been doubled in width so many times."""
        copy = Histogram()
        copy.low, copy.high, copy.count, copy.zeros = self.low, self.high, self.count, self.zeros
        copy._exponent, copy._first, copy._counts = self._exponent, self._first, self._counts
        copy._grow(doublings)
        return copy

    def _needed(self) -> int:
        """Return the least exponent with which the range has no more than :data:`BINS` bins."""
        exponent = _LEAST_EXPONENT
        if self.high > self.low:
            exponent = max(exponent, math.frexp((self.high - self.low) / BINS)[1] - 1)
        while math.floor(math.ldexp(self.high, -exponent)) - math.floor(math.ldexp(self.low, -exponent)) >= BINS:
            exponent += 1
        return exponent


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
    """Return the ends to try: the one there is, then shares of the furthest."""
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


def _divergence(wanted: np.ndarray, kept: np.ndarray) -> float:
    """Return the Kullback-Leibler divergence; where nothing was found, almost nothing is taken for it."""
    places = wanted > 0
    p, q = wanted[places], np.maximum(kept[places], _SMOOTH / wanted.size)
    return float((p * np.log(p / q)).sum())


class CalibrationData:
    """Inputs of a model, one after another.

    Args:
        given: An iterable of inputs: a dict of arrays by name each, or the array of the only input.
        names: The inputs of the model.

    Attributes:
        given: As it was given.

    Raises:
        QuantizationError: If it is not an iterable of inputs.
    """

    def __init__(self, given: Iterable[Any], names: list[str]) -> None:
        self.given, self._names = given, names
        if isinstance(given, (Mapping, np.ndarray, str, bytes)) or not hasattr(given, "__iter__"):
            kind = f"an array of shape {list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
            raise self._wrong("not an iterable of inputs", "calibration", kind)

    @property
    def repeatable(self) -> bool:
        """Whether it can be gone through more than once."""
        return iter(self.given) is not self.given

    def __len__(self) -> int:
        """Count the inputs; 0 if only going through them would tell."""
        return len(self.given) if isinstance(self.given, Sized) else 0

    def __iter__(self) -> Iterator[tuple[str, Feeds]]:
        """Yield every input with what it is called in messages.

        Raises:
            QuantizationError: If there is none, or one is not a dict of arrays, is empty or holds what is not finite.
        """
        number = -1
        for number, item in enumerate(self.given):
            where = f"calibration input {number}"
            feeds = self._named(item, where)
            _check_not_empty(feeds, where)
            for name, array in feeds.items():
                _check_finite(array, f'{where}, "{name}"')
            yield where, feeds
        if number < 0:
            hint = "The first pass over a generator uses it up; give a list." if not self.repeatable else ""
            raise QuantizationError(
                "no calibration data", where="calibration", expected="inputs that the model will see", found="none",
                hint=hint,
            )  # fmt: skip

    def _named(self, item: Any, where: str) -> Feeds:
        if isinstance(item, Mapping):
            return {str(name): np.asarray(array) for name, array in item.items()}
        if isinstance(item, np.ndarray) and len(self._names) == 1:
            return {self._names[0]: item}
        raise self._wrong("not the inputs of the model", where, type(item).__name__)

    def _wrong(self, message: str, where: str, given: str) -> QuantizationError:
        wanted = f"arrays by name: {', '.join(self._names)}"
        return QuantizationError(message, where=where, expected=wanted, found=given, hint=_HINT % self._names[0])


def _check_not_empty(feeds: Feeds, where: str) -> None:
    # Some inputs may be empty, such as the past of a model that generates text.
    if feeds and not any(array.size for array in feeds.values()):
        shapes = ", ".join(f"{name} of shape {list(array.shape)}" for name, array in feeds.items())
        raise QuantizationError(
            "calibration data must have elements", where=where, expected="an input that shows something",
            found=shapes, hint="Leave this input out.",
        )  # fmt: skip


def _check_finite(array: np.ndarray, where: str) -> None:
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise QuantizationError(
            "calibration data must be finite", where=where, expected="finite numbers",
            found=f"{array[place]} at {list(place)}", hint="Leave this input out.",
        )  # fmt: skip


class Watch:
    """Runs a graph and returns chosen values, by name.

    Args:
        graph: The graph; it is left alone.
        values: Inputs of the graph, or results of its nodes.
        threads: Of the runs.
    """

    def __init__(self, graph: Graph, values: Sequence[Value], threads: int | None = None) -> None:
        self._fed = [v.name for v in values if v.producer is None]
        made = [v.name for v in values if v.producer is not None]
        copy = graph.clone()
        copy.set_outputs([copy.values[name] for name in made] or copy.outputs)
        # Winograd's algorithm rounds more; what is measured here should be the model's own numbers.
        self._module = compile_model(copy, threads=threads, options={"c": {"winograd": False}})
        self._made = made

    def __call__(self, feeds: Feeds, where: str) -> Feeds:
        """Return the values for one input.

        Raises:
            QuantizationError: If the input does not fit the model.
        """
        try:
            results = self._module.run(feeds)
        except FeedError as error:
            raise QuantizationError(
                error.message, where=f"{where}, {error.where}" if error.where else where, expected=error.expected,
                found=error.found, hint=error.hint,
            ) from error  # fmt: skip
        fed = {**self._module.defaults, **feeds}
        return {**{name: results[name] for name in self._made}, **{name: fed[name] for name in self._fed}}


def watched(watch: Watch, data: CalibrationData, bar: Bar, what: str) -> Iterator[tuple[str, Feeds, Feeds]]:
    """Yield what every input of the data is called in messages, the input, and the values for it."""
    with bar.over(what, data, len(data)) as inputs:
        for where, feeds in inputs:
            yield where, feeds, watch(feeds, where)


def rounded_slots(layers: Iterable[Layer]) -> list[Slot]:
    """Return the values that the layers read or give as stored numbers, constant operands included."""
    return list(dict.fromkeys(slot for layer in layers for slot in layer.slots))


def calibrate(graph: Graph, layers: Sequence[Layer], data: CalibrationData, options: Options, bar: Bar) -> Scales:
    """Return the scales of the values that the layers round; those that must agree have one range together.

    Biases are corrected in the same pass, if the options say so.

    The data are gone through once; biases of the graph, which is in float, are changed in place.

    Raises:
        QuantizationError: If the data do not fit the model, or a value is not finite.
    """
    slots = rounded_slots(layers)
    values = list(dict.fromkeys(value for value, _ in slots))
    seen = {v.name: observer(options.method) for v in values}
    probe = graph.clone()
    errors = MeanErrors(probe, layers if options.bias_correction else [], options)
    variable = [v.name for v in values if not v.is_const]
    watch = Watch(probe, [*(probe.values[name] for name in variable), *errors.values], options.threads)
    for where, feeds, arrays in watched(watch, data, bar, "calibrating"):
        for name in variable:
            seen[name].add(arrays[name])
            _check(seen[name], name, where)
        errors.add(arrays, sum(array.size for array in feeds.values()))
    errors.correct(graph)
    for value in values:
        if value.const is not None:
            seen[value.name].add(value.const)
            _check(seen[value.name], value.name, "constant")
    scales: Scales = {}
    around: dict[Slot, list[Layer]] = {}
    for layer in layers:
        for slot in layer.slots:
            around.setdefault(slot, []).append(layer)
    for group in sharing(layers):
        encoding = options.encoding(group[0][1], [layer for slot in group for layer in around[slot]])
        found = {v: choose_range(seen[v.name], options.method, encoding, options.percentile) for v, _ in group}
        ranges = [own if graph.is_output(v) else told_apart(v, own) for v, own in found.items()]
        affine = encoding.affine(min(low for low, _ in ranges), max(high for _, high in ranges))
        scales.update(dict.fromkeys(group, affine))
    return scales


def told_apart(value: Value, whole: Range = (-math.inf, math.inf)) -> Range:
    """Return the part of a range in which the readers of a value tell numbers apart.

    HardSwish gives 0 for all that is below -3: the steps of 8 bits are for the rest.
    """
    ends = [_told_apart_by(user, value) for user in value.users] or [whole]
    low, high = min(end for end, _ in ends), max(end for _, end in ends)
    return max(whole[0], min(low, 0.0)), min(whole[1], max(high, 0.0))


def _told_apart_by(node: Node, value: Value) -> Range:
    """Return where the results of an operator are not all the same."""
    if node.domain:
        return -math.inf, math.inf
    if node.op == "HardSigmoid":
        slope, middle = float(node.attrs.get("alpha", 0.2)), float(node.attrs.get("beta", 0.5))
        return (-middle / slope, (1 - middle) / slope) if slope > 0 else (-math.inf, math.inf)
    if node.op == "Mul":  # a HardSwish spelled out
        gates = [v.producer for v in node.inputs if v is not None and v is not value]
        gate = gates[0] if len(gates) == 1 else None
        if gate is not None and gate.op == "HardSigmoid" and gate.inputs[0] is value:
            return _told_apart_by(gate, value)[0], math.inf
    return {"HardSwish": -3.0, "Relu": 0.0}.get(node.op, -math.inf), math.inf


def _check(seen: Extremes, name: str, where: str) -> None:
    if not seen.finite:
        raise QuantizationError(
            "a value is not finite, so it has no range", where=f'{where}, value "{name}"', expected="finite numbers",
            hint="Leave this input out, or keep the layers around the value in float.",
        )  # fmt: skip


def sharing(layers: Iterable[Layer]) -> list[list[Slot]]:
    """Return what the layers round in groups that have one scale: operands and results of layers that share it."""
    groups: dict[Slot, list[Slot]] = {}
    for layer in layers:
        slots = layer.slots
        for slot in slots:
            groups.setdefault(slot, [slot])
        for slot in slots if layer.shares_scales else ():
            mine, other = groups[slots[-1]], groups[slot]
            if mine is not other:
                mine.extend(other)
                groups.update(dict.fromkeys(other, mine))
    return list({id(group): group for group in groups.values()}.values())
