"""The range of every value that will be rounded, from one pass over the data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinycomp.errors import QuantizationError
from tinycomp.ir.graph import Graph, Value
from tinycomp.progress import Bar
from tinycomp.quantization.bias_correction import MeanErrors
from tinycomp.quantization.encoding import Affine
from tinycomp.quantization.evaluation import Watch, watched
from tinycomp.quantization.feeds import CalibrationData
from tinycomp.quantization.histogram import Extremes
from tinycomp.quantization.layers import Layer
from tinycomp.quantization.operators import Kind
from tinycomp.quantization.options import Options
from tinycomp.quantization.ranges import Range, choose_range, observer

Scales = dict[Value, Affine]
"""Scale and zero point by value."""


def rounded_values(layers: Iterable[Layer]) -> list[Value]:
    """Return the values that the layers read or give as 8-bit numbers, constant operands included."""
    found = [v for layer in layers for v in [*(v for _, v in layer.operands), *layer.outputs]]
    return list(dict.fromkeys(found))


def calibrate(graph: Graph, layers: Sequence[Layer], data: CalibrationData, options: Options, bar: Bar) -> Scales:
    """Return the scales of the values that the layers round; those that must agree have one range together.

    Biases are corrected in the same pass, if the options say so.

    Args:
        graph: In float; biases are changed in place.
        layers: Of the graph, those that will be quantised.
        data: Gone through once.
        options: How to quantise.
        bar: Shows progress.

    Raises:
        QuantizationError: If the data do not fit the model, or a value is not finite.
    """
    values = rounded_values(layers)
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
    encoding = options.encoding
    ranges = {v: choose_range(seen[v.name], options.method, encoding, options.percentile) for v in values}
    return {v: encoding.affine(*limits) for v, limits in _shared(ranges, layers).items()}


def _check(seen: Extremes, name: str, where: str) -> None:
    if not seen.finite:
        raise QuantizationError(
            "a value is not finite, so it has no range", where=f'{where}, value "{name}"', expected="finite numbers",
            hint="Leave this input out, or keep the layers around the value in float.",
        )  # fmt: skip


def _shared(ranges: dict[Value, Range], layers: Iterable[Layer]) -> dict[Value, Range]:
    """Return the ranges such that operands and results of operators that only move numbers have the same one."""
    groups = {v: [v] for v in ranges}
    for layer in layers:
        if layer.rule.kind is Kind.SAME_SCALE:
            for value in [v for _, v in layer.operands] + layer.outputs:
                mine, other = groups[layer.outputs[0]], groups[value]
                if mine is not other:
                    mine.extend(other)
                    groups.update(dict.fromkeys(other, mine))
    return {v: (min(ranges[w][0] for w in group), max(ranges[w][1] for w in group)) for v, group in groups.items()}
