"""From a float model to a quantised one: :func:`quantize` reads top to bottom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from tinycomp.compiler import Model
from tinycomp.errors import QuantizationError
from tinycomp.frontend import Shapes
from tinycomp.ir.graph import Graph
from tinycomp.progress import Bar
from tinycomp.quantization.calibration import Scales, calibrate
from tinycomp.quantization.equalization import equalize_layers
from tinycomp.quantization.feeds import CalibrationData
from tinycomp.quantization.layers import Layer, choose, find_layers
from tinycomp.quantization.options import Activations, Options
from tinycomp.quantization.placement import Placement
from tinycomp.quantization.preparation import finish, prepare
from tinycomp.quantization.ranges import Method
from tinycomp.quantization.selection import Selector, select


def quantize(
    model: Model,
    calibration: Iterable[Any],
    *,
    method: Method = "minmax",
    activations: Activations = "uint8",
    symmetric: bool = False,
    per_channel: bool = True,
    reduce_range: bool = False,
    bias_correction: bool = True,
    equalize: bool = False,
    keep_float: Selector | Iterable[Selector] = (),
    percentile: float | None = None,
    shapes: Shapes | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> onnx.ModelProto:
    """Turn a float32 model into an int8 one, in ONNX's QuantizeLinear/DequantizeLinear form.

    Convolutions and products with what lies between them compute on 8-bit numbers: weights are int8, biases int32 in
    steps of the sums, batch normalisations are folded before, and a Relu or Clip disappears in the range of the result.
    Everything else stays in float; there is a conversion exactly where 8-bit and float layers meet.

    Args:
        model: As for :func:`tinycomp.compile`.
        calibration: Inputs as the model will see them: an iterable of dicts of arrays by name, or of the arrays of the
            only input. They are run one by one, and nothing of them is kept but counts.
        method: How the range of an activation is chosen: all that was seen (``minmax``), a ``percentile`` of it, the
            least divergence of the distribution (``entropy``), or the least mean squared error (``mse``).
        activations: ``uint8`` or ``int8``.
        symmetric: Whether the zero point of activations is the middle: 128 of uint8, 0 of int8.
        per_channel: Whether weights have a scale per output channel instead of one.
        reduce_range: Whether weights have 7 bits, for engines whose 16-bit sums saturate (x86 before VNNI).
        bias_correction: Whether biases make up for the mean error that the rounded weights cause.
        equalize: Whether the channels between two layers are scaled such that the weights of both have even ranges.
        keep_float: What stays in float: names of nodes or values, patterns of names, operators, predicates of a
            :class:`tinycomp.ir.graph.Node`, or texts such as ``"last 3 conv"``; one or several.
        percentile: How many per cent of the numbers a range holds, above 50 and up to 100; 99.999 by default. For the
            method of this name only.
        shapes: Shapes for inputs, as for :func:`tinycomp.compile`; the quantised model has them.
        threads: Threads of the calibration.
        progress: Whether to show a bar on stderr; by default if that is a terminal.

    Returns:
        The model, with the inputs and outputs of the float one; every runtime that knows opset 13 can run it.

    Raises:
        ModelError: If the model is not valid.
        QuantizationError: If an option or the calibration data do not fit, or nothing can be quantised.

    Example:
        >>> import tinycomp
        >>> from tinycomp.data import digits, digits_model
        >>> images, labels = digits()
        >>> quantized = tinycomp.quantize(digits_model(), [images[:100]], keep_float="last gemm")
        >>> module = tinycomp.compile(quantized)
        >>> bool((module(images).argmax(axis=1) == labels).mean() > 0.97)
        True
    """
    options = Options(
        method, activations, symmetric, per_channel, reduce_range, bias_correction, equalize, keep_float, percentile,
        threads,
    )  # fmt: skip
    bar = Bar(progress)
    quantizer = Quantizer.calibrated(model, calibration, options, shapes, bar)
    return finish(quantizer.quantized(quantizer.chosen))


@dataclass(frozen=True)
class Quantizer:
    """A float graph with all that is needed to quantise any part of it.

    Attributes:
        graph: In float, with corrected biases.
        chosen: The layers that are to be quantised.
        scales: Of the values that they round.
        options: How to quantise.
        data: What the scales come from.
    """

    graph: Graph
    chosen: Sequence[Layer]
    scales: Scales
    options: Options
    data: CalibrationData

    @classmethod
    def calibrated(
        cls,
        model: Model,
        calibration: Iterable[Any],
        options: Options,
        shapes: Shapes | None,
        bar: Bar,
        passes: int = 1,
    ) -> Quantizer:
        """Prepare a model, choose the layers, and run the calibration data through it.

        Args:
            model: In float.
            calibration: As for :func:`quantize`.
            options: How to quantise.
            shapes: Of inputs.
            bar: Shows progress.
            passes: How often the data will be gone through in all.
        """
        graph = prepare(model, shapes)
        data = CalibrationData(calibration, [v.name for v in graph.inputs if v.name not in graph.defaults])
        _check_passes(data, passes)
        if options.equalize:
            equalize_layers(graph, find_layers(graph))
        layers = find_layers(graph)
        chosen = choose(layers, select(layers, options.keep_float), graph)
        if not chosen:
            raise QuantizationError(
                "there is nothing to quantise", where=graph.name,
                expected="at least one Conv, Gemm or MatMul in float32 with constant weights",
                found="all of them kept in float" if any(layer.is_product for layer in layers) else "none",
            )  # fmt: skip
        scales = calibrate(graph, chosen, data, options, bar)
        return cls(graph, chosen, scales, options, data)

    def quantized(self, layers: Sequence[Layer]) -> Graph:
        """Return a copy of the graph in which these layers are quantised; they are some of :attr:`chosen`."""
        copy = self.graph.clone()
        names = {layer.core.output.name for layer in layers}
        own = [layer for layer in find_layers(copy) if layer.core.output.name in names]
        scales = {copy.values[v.name]: affine for v, affine in self.scales.items()}
        Placement(copy, scales, self.options).place(own)
        return copy


def _check_passes(data: CalibrationData, passes: int) -> None:
    if passes > 1 and not data.repeatable:
        raise QuantizationError(
            "the calibration data can be gone through once only", where="calibration",
            expected=f"an iterable that can be gone through {passes} times",
            found="an iterator or generator", hint="Give a list, or an object whose __iter__ starts anew.",
        )  # fmt: skip
