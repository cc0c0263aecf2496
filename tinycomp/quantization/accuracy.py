"""Compare a quantised model with the float model that it was made of, layer by layer, and with a target's results.

The layers of the two models are matched by the names of the values that the quantised one rounds. Both models run
without passes on the numpy kernels. What a layer does by itself is told apart from what the layers before it have done:
the quantised model also runs with the float model's numbers in the place of every value that is dequantised.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.driver.compile import compile as compile_model
from tinycomp.driver.models import Model, load_graph
from tinycomp.driver.tune import Bar
from tinycomp.errors import QuantizationError
from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops.numeric import Array
from tinycomp.quantization.calibration import CalibrationData, Feeds, told_apart
from tinycomp.quantization.noise import Ratio
from tinycomp.records import dataclass, field
from tinycomp.runtime.accuracy import EDGES, SLACK, Accuracy, LayerAccuracy
from tinycomp.runtime.module import Module

_OF_NUMBERS = ("_quantized", "_QuantizeLinear_Output", "/q")
"""What quantisers append to the name of a value for its 8-bit numbers."""
_OF_READ = ("_prequant",)
"""What they append to it for what is rounded, where the numbers have the name of the value."""
_FOLDED = ("BatchNormalization", *named("clamp"))
"""What becomes a part of the layer before it."""
_MOVES = (*named("view"), "Transpose")


def compare_layers(
    model: Model,
    quantized: Model,
    inputs: Iterable[Any],
    *,
    target: Any = (),
    slack: float = SLACK,
    threads: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Accuracy:
    """Compare every layer of a quantised model with the float model, and with what a target makes of it.

    Args:
        model: The float model, as for :func:`tinycomp.compile`.
        quantized: The same in the QuantizeLinear/DequantizeLinear form, by any quantiser that keeps names of values.
        inputs: As for :func:`tinycomp.quantize`, by the names of the quantised model; what one of the models takes in 8
            bits and the other in float is converted.
        target: Target or targets whose own results are compared, too, as for :func:`tinycomp.compile`.
        slack: By how many dB a layer may be worse than rounding alone before it departs.
        threads: Threads of a run.
        progress: Whether to show a bar on stderr; by default if that is a terminal.
        options: Other options of :func:`tinycomp.compile` for the target.

    Returns:
        The layers, and which of them is the first to depart.

    Raises:
        ModelError: If a model is not valid.
        QuantizationError: If no layer of the two models has a common name, or the inputs do not fit.

    Example:
        >>> from tinycomp.data import digits, digits_model
        >>> images, _ = digits()
        >>> accuracy = compare_layers(digits_model(), digits_model(quantized=True), [images[:20]])
        >>> accuracy.layers[1].name, accuracy.layers[1].op, accuracy.first
        ('stem/relu:0', 'Relu', None)
        >>> 30 < accuracy.layers[1].here < 50
        True
    """
    exact, rounded = load_graph(model), load_graph(quantized)
    pairs, unmatched = _pairs(exact, rounded)
    if not pairs:
        raise QuantizationError(
            "no value has the name of one that the quantised model rounds", where=exact.name,
            expected=f"names such as {', '.join(unmatched[:3]) or 'those that QuantizeLinear reads'}",
            found=", ".join(v.name for v in exact.outputs),
            hint="Give the float model that the other one was made of, as QuantizeLinear and DequantizeLinear.",
        )  # fmt: skip
    feeding = _Feeding(exact, rounded)
    data = CalibrationData(inputs, feeding.names)
    computed = [pair for pair in pairs if pair.numbers.producer is not None]
    runs = _Runs(exact, rounded, pairs, computed, threads)
    module = compile_model(_telling(rounded, computed), target, threads=threads, **options) if target else None
    tallies = [_Tally(pair) for pair in pairs]
    with Bar(progress).over("comparing layers", data, len(data)) as items:
        for _, given in items:
            of_float, of_rounded = feeding(given)
            numbers = runs.float(of_float)
            here, alone = runs.rounded(of_rounded), runs.alone(of_rounded, numbers)
            on_target = {} if module is None else module.run(of_rounded)
            for tally in tallies:
                tally.add(numbers, here, alone, on_target)
    report = None if module is None else module.report()
    places = [
        "" if report is None else next(filter(None, map(report.where, tally.pair.sources)), "") for tally in tallies
    ]
    rows = [tally.row(where) for tally, where in zip(tallies, places, strict=True)]
    return Accuracy(tuple(rows), tuple(unmatched), slack)


@dataclass(frozen=True)
class _Pair:
    """A value of the float model, and the numbers that stand for it in the quantised one.

    Attributes:
        exact: The value of the float model.
        numbers: A result of QuantizeLinear, or an input in 8 bits.
        affine: The node with its scale and zero point.
    """

    exact: Value
    numbers: Value
    affine: Node

    @property
    def maker(self) -> Node | None:
        """The node whose result is rounded; None for an input."""
        return None if self.numbers.producer is None else self.numbers.producer.operand(0).producer

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the node and of the one that rounds."""
        nodes = (self.maker, self.numbers.producer)
        return tuple(dict.fromkeys(name for node in nodes if node is not None for name in node.sources))

    def parameter(self, index: int, rank: int) -> Array:
        """Return scale (1) or zero point (2), spread along the axis of the values that it is for."""
        given = self.affine.const(index)
        if given is None:
            return np.zeros((), np.int64)
        if given.size == 1:
            return given.reshape(())
        shape = [1] * rank
        shape[self.affine.attrs.get("axis", 1)] = -1
        return given.reshape(shape)

    def real(self, numbers: Array) -> Array:
        """Return what 8-bit numbers stand for, float32."""
        whole: Array = numbers.astype(np.int32) - self.parameter(2, numbers.ndim)
        return np.asarray(whole.astype(np.float32) * self.parameter(1, numbers.ndim), np.float32)

    def read(self, reals: Array) -> Array:
        """Return numbers as those who read the value tell them apart."""
        part: Array = np.clip(reals, *told_apart(self.exact))
        return part

    def rounded(self, values: Array) -> Array:
        """Return values as 8-bit numbers."""
        scale, point = (self.parameter(index, values.ndim) for index in (1, 2))
        info = np.iinfo(self.numbers.dtype)
        return np.asarray(np.clip(np.rint(values / scale) + point, info.min, info.max), info.dtype)


def _pairs(exact: Graph, rounded: Graph) -> tuple[list[_Pair], list[str]]:
    """Return what is in both models, in order of execution, and the names of rounded values that only one has."""
    pairs, unmatched = [], []
    for place, value in enumerate(rounded.inputs):
        dequantizer = _dequantizer(value)
        if dequantizer is not None:
            same = next((v for v in exact.inputs if v.name == value.name), None)
            pairs.append(_Pair(same or exact.inputs[place], value, dequantizer))
    for node in rounded.nodes:
        if node.op != "QuantizeLinear" or node.operand(0).is_const:
            continue
        found = None if node.const(1) is None else _counterpart(exact, rounded, node)
        if found is None:
            unmatched.append(node.operand(0).name)
        else:
            pairs.append(_Pair(found, node.output, node))
    return pairs, unmatched


def _dequantizer(value: Value) -> Node | None:
    """Return the DequantizeLinear with one known scale that reads an input, perhaps with its axes moved."""
    while value.dtype in ("int8", "uint8", "int16", "uint16"):
        reader = next(iter(value.users), None)
        if reader is None or reader.op not in (*_MOVES, "DequantizeLinear") or value is not reader.inputs[0]:
            return None
        if reader.op == "DequantizeLinear":
            scale = reader.const(1)
            return reader if scale is not None and scale.size == 1 else None
        value = reader.output
    return None


def _counterpart(exact: Graph, rounded: Graph, node: Node) -> Value | None:
    """Return the value of the float model that a QuantizeLinear rounds."""
    numbers, read = node.output.name, node.operand(0).name
    names = [numbers.removesuffix(end) for end in _OF_NUMBERS if numbers.endswith(end)]
    names += [read, numbers, *(read.removesuffix(end) for end in _OF_READ)]
    value = next((exact.values[name] for name in names if name in exact.values), None)
    if value is None or value.is_const:
        return None
    # What the layer before it has taken in has left its name behind.
    while exact.use_count(value) == 1 and value.users:
        reader = next(iter(value.users))
        if reader.op not in _FOLDED or value is not reader.inputs[0] or reader.output.name in rounded.values:
            break
        value = reader.output
    return value


class _Feeding:
    """Makes inputs of both models from those of one.

    Attributes:
        names: What the inputs are called that must be given: those of the quantised model, or where it has others of
            the float one.
    """

    def __init__(self, exact: Graph, rounded: Graph) -> None:
        if len(exact.inputs) != len(rounded.inputs):
            raise QuantizationError(
                "the two models have different inputs", where=rounded.name,
                expected=", ".join(v.name for v in exact.inputs), found=", ".join(v.name for v in rounded.inputs),
            )  # fmt: skip
        own = {v.name: v for v in exact.inputs}
        self._sides = [(own.get(v.name, exact.inputs[at]), v) for at, v in enumerate(rounded.inputs)]
        self._affine = {p.numbers: p for p in _pairs(exact, rounded)[0] if p.numbers.producer is None}
        self.names = [v.name for _, v in self._sides if v.name not in rounded.defaults]

    def __call__(self, given: Feeds) -> tuple[Feeds, Feeds]:
        """Return the inputs of the float model and of the quantised one."""
        of_float: Feeds = {}
        of_rounded: Feeds = {}
        for exact, rounded in self._sides:
            if rounded.name not in given:
                continue
            array = np.asarray(given[rounded.name])
            pair = self._affine.get(rounded)
            if pair is None:
                of_float[exact.name] = of_rounded[rounded.name] = array
                continue
            numbers = array if array.dtype.name == rounded.dtype else pair.rounded(array)
            of_rounded[rounded.name] = numbers
            of_float[exact.name] = pair.real(numbers) if numbers is array else array
        return of_float, of_rounded


def _telling(rounded: Graph, computed: Sequence[_Pair]) -> Graph:
    """Return a copy of the quantised model whose results are the numbers of every layer."""
    copy = rounded.clone()
    wanted = dict.fromkeys(copy.values[pair.numbers.name] for pair in computed)
    copy.set_outputs(list(wanted))
    return copy


class _Runs:
    """Runs both models as they are written."""

    def __init__(
        self, exact: Graph, rounded: Graph, pairs: Sequence[_Pair], computed: Sequence[_Pair], threads: int | None
    ) -> None:
        self._threads = threads
        watched = exact.clone()
        made = dict.fromkeys(pair.exact.name for pair in pairs if pair.exact.producer is not None)
        watched.set_outputs([watched.values[name] for name in made])
        self._float = self._compiled(watched)
        self._rounded = self._compiled(_telling(rounded, computed))
        self._fed: dict[str, str] = {}
        self._alone = self._compiled(self._apart(rounded, pairs, computed))

    def _compiled(self, graph: Graph) -> Module:
        return compile_model(graph, [], passes=[], threads=self._threads)

    def _apart(self, rounded: Graph, pairs: Sequence[_Pair], computed: Sequence[_Pair]) -> Graph:
        """Return the quantised model with an input of float for every value that is dequantised."""
        copy = _telling(rounded, computed)
        for pair in pairs:
            readers = [user for user in copy.values[pair.numbers.name].users if user.op == "DequantizeLinear"]
            if not readers:
                continue
            fed = copy.add_input(copy.fresh(f"{pair.exact.name}_exact"), readers[0].output.type)
            self._fed[fed.name] = pair.exact.name
            for reader in readers:
                copy.replace_uses(reader.output, fed)
                copy.erase(reader)
        return copy

    def float(self, feeds: Feeds) -> Feeds:
        """Return the values of the float model, inputs included."""
        return {**feeds, **self._float.run(feeds)}

    def rounded(self, feeds: Feeds) -> Feeds:
        """Return the numbers of the quantised model."""
        return {**feeds, **self._rounded.run(feeds)}

    def alone(self, feeds: Feeds, exact: Feeds) -> Feeds:
        """Return the numbers that every layer computes from the float model's values."""
        taken = {spec.name for spec in self._alone.inputs}
        given = {name: exact[of] for name, of in self._fed.items()}
        own = {name: array for name, array in feeds.items() if name in taken}
        return {**feeds, **self._alone.run({**own, **given})}


@dataclass
class _Tally:
    """What has been seen of one layer."""

    pair: _Pair
    here: Ratio = field(default_factory=Ratio)
    alone: Ratio = field(default_factory=Ratio)
    target: Ratio = field(default_factory=Ratio)
    agreement: Ratio = field(default_factory=Ratio)
    is_on_target: bool = False
    apart: int = 0
    low: float = 0.0
    high: float = 0.0
    power: float = 0.0
    count: int = 0
    clipped: int = 0
    bins: Array = field(default_factory=lambda: np.zeros(len(EDGES) + 1, np.int64))

    def add(
        self,
        exact: Mapping[str, Array],
        here: Mapping[str, Array],
        alone: Mapping[str, Array],
        on_target: Mapping[str, Array],
    ) -> None:
        """Count one run."""
        pair = self.pair
        values, numbers = pair.read(exact[pair.exact.name].astype(np.float64)), here[pair.numbers.name]
        if values.shape != numbers.shape:
            raise QuantizationError(
                "the two models give a value different shapes", where=f'value "{pair.exact.name}"',
                expected=str(values.shape), found=str(numbers.shape),
                hint="Give the float model that the other one was made of.",
            )  # fmt: skip
        real = pair.read(pair.real(numbers))
        self.here.add(values, real)
        self.alone.add(values, pair.read(pair.real(alone[pair.numbers.name])))
        if pair.numbers.name in on_target:
            self.is_on_target = True
            other = on_target[pair.numbers.name]
            self.target.add(values, pair.read(pair.real(other)))
            self.agreement.add(real, pair.read(pair.real(other)))
            steps = np.abs(other.astype(np.int64) - numbers)
            self.apart = max(self.apart, int(steps.max(initial=0)))
        scale = pair.parameter(1, values.ndim).astype(np.float64)
        ends = [pair.real(np.full((1,) * values.ndim, end)) for end in _ends(numbers.dtype)]
        self.clipped += int(((values < ends[0] - scale / 2) | (values > ends[1] + scale / 2)).sum())
        self.bins += np.bincount(np.searchsorted(EDGES, ((real - values) / scale).ravel()), minlength=self.bins.size)
        self.low, self.high = min(self.low, values.min(initial=0)), max(self.high, values.max(initial=0))
        self.power += float((values**2).sum())
        self.count += values.size

    def row(self, where: str) -> LayerAccuracy:
        """Return the figures of all runs."""
        pair, maker = self.pair, self.pair.maker
        on_target = self.is_on_target
        shares = tuple((self.bins / max(self.count, 1)).tolist())
        return LayerAccuracy(
            pair.exact.name, "input" if maker is None else maker.op, pair.sources, where, self._best(),
            self.alone.decibels, self.here.decibels, self.target.decibels if on_target else None,
            self.agreement.decibels if on_target else None, self.apart if on_target else None,
            self.clipped / max(self.count, 1), shares,
        )  # fmt: skip

    def _best(self) -> float:
        """Return the ratio of numbers rounded to as many steps over their range, by an error even over a step."""
        least, most = _ends(np.dtype(self.pair.numbers.dtype))
        step = (self.high - self.low) / (most - least)
        noise = step**2 / 12 * self.count
        return 10 * math.log10(self.power / noise) if noise and self.power else -math.inf


def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)
