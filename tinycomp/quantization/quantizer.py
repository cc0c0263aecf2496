"""Quantise a float model: :func:`quantize` reads top to bottom."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import onnx
from onnx import version_converter

from tinycomp.arguments import checked
from tinycomp.driver.models import Model, load_graph
from tinycomp.driver.pipeline import Pipeline, optimisation_passes
from tinycomp.driver.tune import Bar
from tinycomp.errors import QuantizationError, shown
from tinycomp.frontend import Shapes, export_model
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode
from tinycomp.passes.fold_constants import FoldConstants
from tinycomp.quantization.bodies import Invocations, has_tensors_alone
from tinycomp.quantization.calibration import CalibrationData, Scales, calibrate, sharing
from tinycomp.quantization.equalization import equalize_layers
from tinycomp.quantization.layers import Layer, Selector, choose, select
from tinycomp.quantization.options import Activations, Method, Options, one_of
from tinycomp.quantization.placement import Placement
from tinycomp.quantization.weight_only import WeightMethod, WeightOptions, quantize_weights
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.records import dataclass, field, replace
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Target
from tinycomp.target.quantization import violations
from tinycomp.targets.common.activations import spellings_at

_PER_CHANNEL_SINCE = 13
_HARD_SWISH_SINCE = 14
_CONVERTED = 17
_ROUNDS = 8
_WIDER = np.float32(1 + 1 / 64)


def prepare(model: Model, shapes: Shapes | None, opset: int = _PER_CHANNEL_SINCE) -> Graph:
    """Return a model as a graph of its own with batch normalisations folded and every HardSwish a single operator.

    A model of an opset before 13, which has no scales per channel, is converted to opset 17, and so is one that writes
    HardSwish as several operators before opset 14, which has it.

    Args:
        model: The model.
        shapes: Shapes for inputs.
        opset: The first one that has what the quantised model needs.

    Raises:
        ModelError: If the model is not valid.
        QuantizationError: If it is quantised already, or cannot be converted.
    """
    graph = load_graph(model, shapes)
    FoldConstants(keep_quantized=False).run(graph)  # weights alone may be stored in 8 bits
    done = next((n for _, n in graph.walk() if n.op in ("QuantizeLinear", "DequantizeLinear")), None)
    if done is not None:
        raise QuantizationError(
            "the model is quantised already", where=f"node {done.label}", expected="a model in float32",
            found=done.op, hint="Quantise the model that it was made from.",
        )  # fmt: skip
    wanted = max(opset, _HARD_SWISH_SINCE) if any(_hard_swishes(graph)) else opset
    if graph.opsets.get("", _CONVERTED) < wanted:
        graph = load_graph(_converted(graph, max(opset, _CONVERTED)))
    Pipeline(optimisation_passes()).run(graph)
    _name_hard_swishes(graph)
    for node in graph.nodes:
        if node.op == "Gemm":
            _make_plain(graph, node)
    return graph


def _hard_swishes(graph: Graph) -> Iterator[tuple[Graph, Node, Value]]:
    """Yield where a HardSwish is written as several operators, and its argument.

    Models of opsets before 14 have no other way. Each of the operators would be rounded to 8 bits, or stay in float.
    """
    for body, node in graph.walk():
        found = (match["x"] for spelling, match in spellings_at(node, single=False) if spelling.name == "hardswish")
        argument = next(found, None)
        if argument is not None and node.op != "HardSwish" and node.output.dtype == "float32":
            yield body, node, argument


def _name_hard_swishes(graph: Graph) -> None:
    found = list(_hard_swishes(graph))
    for body, node, argument in found:
        single = body.add("HardSwish", [argument], at=node, sources=node.sources)
        body.replace_uses(node.output, single.output)
    if found:
        EliminateDeadCode().run(graph)


def _converted(graph: Graph, opset: int) -> onnx.ModelProto:
    try:
        return version_converter.convert_version(export_model(graph), opset)
    except RuntimeError as error:
        raise QuantizationError(
            "the model cannot be brought to an opset with the conversions that it needs", where=graph.name,
            expected=f"opset {opset}", found=f"opset {graph.opsets.get('')}: {error}",
            hint="Export it again with a newer opset.",
        ) from error  # fmt: skip


def _make_plain(graph: Graph, node: Node) -> None:
    """Take ``alpha`` and ``beta`` of a Gemm into its constants, where these are constants."""
    factors = {1: node.attrs.get("alpha", 1.0), 2: node.attrs.get("beta", 1.0)}
    held = {i: v for i, v in enumerate(node.inputs) if i in factors and v is not None}
    if set(factors.values()) == {1.0} or any(v.const is None for v in held.values()):
        return
    for index, value in held.items():
        assert value.const is not None
        scaled = (value.const * factors[index]).astype(value.const.dtype)
        graph.set_input(node, index, graph.add_const(scaled, value.name))
    node.attrs = {k: v for k, v in node.attrs.items() if k not in ("alpha", "beta")}


def finish(graph: Graph) -> onnx.ModelProto:
    """Return a quantised graph as an ONNX model."""
    EliminateDeadCode().run(graph)
    return export_model(graph)


@checked("model", "calibration", "shapes", "keep_float", error=QuantizationError, least={"threads": 1})
def quantize(
    model: Model,
    calibration: Iterable[Any] | None = None,
    *,
    method: Method | WeightMethod | None = None,
    activations: Activations | None = None,
    symmetric: bool | None = None,
    per_channel: bool = True,
    reduce_range: bool = False,
    bias_correction: bool = True,
    equalize: bool = False,
    keep_float: Selector | Iterable[Selector] = (),
    percentile: float | None = None,
    shapes: Shapes | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    weights: Literal["int8", "int4"] = "int8",
    block: int = 32,
    accuracy_level: int = 0,
    target: Target | str | None = None,
) -> onnx.ModelProto:
    """Turn a float32 model into an int8 one, in ONNX's QuantizeLinear/DequantizeLinear form, or its weights into int4.

    Convolutions and products with what lies between them compute on 8-bit numbers: weights are int8, biases int32 in
    steps of the sums, batch normalisations are folded before, and a Relu or Clip disappears in the range of the result.
    Everything else stays in float; there is a conversion exactly where 8-bit and float layers meet.

    With ``weights="int4"`` only the constant matrices of products are quantised, in blocks, as suits language models:
    they become MatMulNBits of ``com.microsoft``, and all data stay in float
    (:mod:`tinycomp.quantization.weight_only`).

    Args:
        model: As for :func:`tinycomp.compile`.
        calibration: Inputs as the model will see them: an iterable of dicts of arrays by name, or of the arrays of the
            only input. They are run one by one, and nothing of them is kept but counts. Optional for int4 weights.
        method: How the range of an activation is chosen: all that was seen (``minmax``, the default), a
            ``percentile`` of it, the least divergence of the distribution (``entropy``), or the least mean squared
            error (``mse``). For int4 how weights are rounded: to the nearest number in the range of all (``minmax``),
            with the scale of the least squared error (``mse``, the default), which calibration data weigh, or by
            ``gptq``, which needs them.
        activations: ``uint8`` (the default) or ``int8``; for a target what its rules allow.
        symmetric: Whether the zero point of activations is the middle: 128 of uint8, 0 of int8; not by default. For
            int4 whether that of weights is, 8; so by default.
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
        weights: ``int8``, with activations in 8 bits, or ``int4``, which leaves them in float and does not know the
            options for them.
        block: How many weights of a column have a scale together: 16, 32, 64, 128 or 256. For int4 only.
        accuracy_level: What products may make of their data: 0 leaves that to the runtime, 1 asks for float32, and 4
            allows 8 bits with a scale per block, which is several times as fast. For int4 only.
        target: The target that the model is for, whose rules are obeyed (:meth:`tinycomp.Target.quantization`): dtypes,
            zero points and scales are as it wants them, and what it cannot have stays in float.

    Returns:
        The model, with the inputs and outputs of the float one; every runtime that knows opset 13 can run it, and an
        int4 one every runtime that knows MatMulNBits.

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
    one_of("weights", weights, ("int8", "int4"))
    bar = Bar(progress)
    if weights == "int4":
        defaults = Options(activations="uint8")
        for name, given in (
            ("activations", activations or "uint8"), ("per_channel", per_channel), ("reduce_range", reduce_range),
            ("equalize", equalize), ("percentile", percentile), ("target", target),
        ):  # fmt: skip
            _check_left_out(name, given, getattr(defaults, name), 'It is for weights="int8", with activations.')
        weight_options = WeightOptions(
            cast("WeightMethod", method or "mse"), block, symmetric is not False, keep_float, threads, accuracy_level
        )
        return quantize_weights(model, calibration, weight_options, shapes, bar)
    for name, value in (("block", block), ("accuracy_level", accuracy_level)):
        _check_left_out(name, value, getattr(WeightOptions(), name), 'It is for weights="int4".')
    if method == "gptq":
        _check_left_out("method", method, "minmax", 'It is for weights="int4".')
    if calibration is None:
        raise QuantizationError(
            "there is no calibration data", where="calibration", expected="inputs that the model will see",
            found="None", hint='Give some, or quantise the weights alone: weights="int4".',
        )  # fmt: skip
    options = Options(
        cast("Method", method or "minmax"), activations, bool(symmetric), per_channel, reduce_range, bias_correction,
        equalize, keep_float, percentile, threads, target,
    )  # fmt: skip
    quantizer = Quantizer.calibrated(model, calibration, options, shapes, bar).within_rules()
    if not quantizer.chosen and not any(quantizer.inside.values()):
        raise _nothing(quantizer.graph, "layers whose scales the target refuses, whatever they are")
    return finish(quantizer.finished(bar))


def _check_left_out(name: str, given: Any, default: Any, hint: str) -> None:
    if given != default:
        raise QuantizationError(
            f"{name} does not go with these weights", where=name, expected=repr(default), found=shown(given), hint=hint
        )


@dataclass(frozen=True)
class Quantizer:
    """A float graph with all that is needed to quantise any part of it.

    Attributes:
        graph: In float, with corrected biases.
        chosen: The layers that are to be quantised.
        scales: Of the values that they round.
        options: How to quantise.
        data: What the scales come from.
        inside: The layers in each open body, likewise.
    """

    graph: Graph
    chosen: Sequence[Layer]
    scales: Scales
    options: Options
    data: CalibrationData
    inside: Mapping[Graph, Sequence[Layer]] = field(default_factory=dict)

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

        The data will be gone through ``passes`` times in all.
        """
        graph = prepare(model, shapes, options.opset)
        data = CalibrationData(calibration, [v.name for v in graph.inputs if v.name not in graph.defaults])
        scopes = [*open_graphs(graph)]
        if options.equalize:
            for scope in scopes:
                equalize_layers(scope, options.layers(scope))
        layers = {scope: options.layers(scope) for scope in scopes}
        every = [*itertools.chain.from_iterable(layers.values())]
        kept = select(every, options.keep_float)
        inside = {scope: choose(own, kept, scope) for scope, own in layers.items()}
        chosen = inside.pop(graph)
        _check_passes(data, max(passes, 1 + any(inside.values())))
        if not chosen and not any(inside.values()):
            raise _nothing(graph, "all of them kept in float" if any(e.is_product for e in every) else "none")
        scales = calibrate(graph, chosen, data, options, bar) if chosen else {}
        return cls(graph, chosen, scales, options, data, inside)

    def quantized(self, layers: Sequence[Layer]) -> Graph:
        """Return a copy of the graph in which these layers are quantised; they are some of :attr:`chosen`."""
        return self._placed(layers)[0]

    def finished(self, bar: Bar) -> Graph:
        """Return a copy of the graph in which all that is chosen is quantised, in open bodies as well.

        A body is calibrated by what it is given while the graph around it runs in float; one that never runs stays.
        """
        threads, whole = self.options.threads, self.quantized(self.chosen)
        waiting = [(self.graph, whole, self.data)]
        for scope, copy, data in waiting:  # which grows meanwhile
            for node in scope.nodes:
                if not node.bodies or node.is_composite or not has_tensors_alone(node):
                    continue
                twin = copy.values[node.used_outputs()[0].name].producer
                assert twin is not None
                for key, body in node.bodies.items():
                    given = CalibrationData(Invocations(scope, node, key, data, threads), [v.name for v in body.inputs])
                    layers = self.inside.get(body, ())
                    if layers and any(True for _ in given.given):
                        scales = calibrate(body, layers, given, self.options, bar)
                        quantizer = replace(self, graph=body, chosen=layers, scales=scales, data=given).within_rules()
                        twin.bodies[key] = quantizer.quantized(quantizer.chosen)
                    waiting.append((body, twin.bodies[key], given))
        return whole

    def _placed(self, layers: Sequence[Layer]) -> tuple[Graph, dict[str, Layer]]:
        """Return a copy in which layers are quantised, and these layers of the copy by the names of their cores."""
        copy = self.graph.clone()
        names = {_name(layer) for layer in layers}
        own = {_name(layer): layer for layer in self.options.layers(copy) if _name(layer) in names}
        scales = {(copy.values[v.name], dtype): affine for (v, dtype), affine in self.scales.items()}
        Placement(copy, scales, self.options).place([*own.values()])
        return copy, own

    def within_rules(self) -> Quantizer:
        """Return the quantiser with other scales where the target's checks refuse those that the data suggest.

        What rules say as data is obeyed by construction, but for a scale per channel of a stack of matrices. Scales of
        results grow a little until the checks agree; layers to which that is no help stay in float.
        """
        quantizer, kept = self, set[Layer]()
        if self.options.rules is None:
            return self
        for _ in self.chosen:
            for _ in range(_ROUNDS):
                refused = quantizer._refused()
                if not refused:
                    return quantizer
                quantizer = replace(quantizer, scales=quantizer._widened(refused))
            kept |= set(quantizer._refused())
            chosen = choose(self.chosen, kept, self.graph)
            quantizer = replace(self, chosen=chosen if any(layer.is_product for layer in chosen) else [])
        return quantizer

    def _refused(self) -> list[Layer]:
        """Return the chosen layers that the target's rules do not allow once they are quantised."""
        _, own = self._placed(self.chosen)
        found = []
        for layer in self.chosen:
            read = QuantizedLayer.read(own[_name(layer)].core)
            if read is not None and violations(read, layer.wanted):
                found.append(layer)
        return found

    def _widened(self, layers: Sequence[Layer]) -> Scales:
        """Return the scales with greater ones for the results of layers, and for what shares them."""
        results = {(v, layer.dtype) for layer in layers for v in layer.outputs}
        wider = [slot for group in sharing(self.chosen) if not results.isdisjoint(group) for slot in group]
        factors = {
            slot: np.float32(2) if any("activations" in layer.wanted.power_of_two for layer in layers) else _WIDER
            for slot in wider
        }
        return {
            slot: replace(affine, scale=np.float32(affine.scale * factors.get(slot, np.float32(1))))
            for slot, affine in self.scales.items()
        }


def _name(layer: Layer) -> str:
    return layer.core.output.name


def _nothing(graph: Graph, found: str) -> QuantizationError:
    return QuantizationError(
        "there is nothing to quantise", where=graph.name,
        expected="at least one Conv, ConvTranspose, Gemm or MatMul in float32 with constant weights", found=found,
    )  # fmt: skip


def _check_passes(data: CalibrationData, passes: int) -> None:
    if passes > 1 and not data.repeatable:
        raise QuantizationError(
            "the calibration data can be gone through once only", where="calibration",
            expected=f"an iterable that can be gone through {passes} times",
            found="an iterator or generator", hint="Give a list, or an object whose __iter__ starts again.",
        )  # fmt: skip
