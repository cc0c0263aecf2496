"""Write the QuantizeLinear and DequantizeLinear nodes: around layers that are quantised, and nowhere else.

Before → after, for a convolution with a Relu that a Softmax in float reads::

    %y = Relu(Conv(%x, %w, %b))
    %p = Softmax(%y)

    %y_q = QuantizeLinear(Conv(DequantizeLinear(QuantizeLinear(%x)), DequantizeLinear(%w_q), DequantizeLinear(%b_q)))
    %p = Softmax(DequantizeLinear(%y_q))

The Relu is gone where the range of ``%y_q`` begins at 0, because rounding is monotone: what the Relu would cut off, the
saturation of QuantizeLinear cuts off as well.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.quantization.calibration import Scales, rounded_slots
from tinycomp.quantization.encoding import Affine, Weights, quantize_bias
from tinycomp.quantization.layers import Layer, Slot
from tinycomp.quantization.options import Options
from tinycomp.quantization.products import channels_of, data_scale, quantized_weight
from tinycomp.quantized.reading import limits


class Placement:
    """Turns layers of a graph into their quantised form, in place.

    Args:
        graph: The float graph.
        scales: Of every value that the layers round.
        options: How weights are quantised.
    """

    def __init__(self, graph: Graph, scales: Scales, options: Options) -> None:
        self.graph, self.scales, self._options = graph, scales, options
        self._numbers: dict[Slot, Value] = {}
        self._parameters: dict[Slot, list[Value]] = {}

    def place(self, layers: Sequence[Layer]) -> None:
        """Quantise the layers and leave everything else in float."""
        inside = {node for layer in layers for node in layer.nodes}
        made = {v: layer.dtype for layer in layers for v in layer.outputs}
        for slot in rounded_slots(layers):
            self._round(slot, made.get(slot[0]), inside)
        for layer in layers:
            operands = layer.operands
            if layer.weight is not None:
                self._constants(layer, layer.weight)
            for index, value in operands:
                self.graph.set_input(layer.core, index, self._back((value, layer.dtype), layer.core))
        for layer in layers:
            if layer.activation is not None:
                self._fold(layer, layer.activation)

    def _round(self, slot: Slot, made: str | None, inside: Collection[Node]) -> None:
        """Round a value. What a quantised layer made, readers in float get as it was rounded; else they keep theirs.

        Args:
            slot: The value, and what it is stored in.
            made: What the layer that makes it stores it in; another dtype is rounded from that.
            inside: The nodes of layers.
        """
        graph, (value, dtype) = self.graph, slot
        if value.const is not None:
            self._numbers[slot] = graph.add_const(self.scales[slot].quantize(value.const), f"{value.name}_quantized")
            return
        again = made is not None and made != dtype
        readers = [user for user in value.users if user not in inside]
        real = self._back((value, made), value.producer) if again and made is not None else value
        name = f"{value.name}_{dtype}" if again else f"{value.name}_quantized"
        node = graph.add(
            "QuantizeLinear", [real, *self._affine(slot)], at=real.producer, sources=_sources(value, "quantize"),
            outputs=[graph.fresh(name)],
        )  # fmt: skip
        self._numbers[slot] = node.output
        if made is None or again or not (readers or graph.is_output(value)):
            return
        real = self._back(slot, value.producer)
        for reader in readers:
            for index, operand in enumerate(reader.inputs):
                if operand is value:
                    graph.set_input(reader, index, real)
        graph.set_outputs([real if v is value else v for v in graph.outputs], graph.output_names)

    def _back(self, slot: Slot, at: Node | None) -> Value:
        """Return the rounded value in float, by a node that belongs to one reader alone."""
        value, operands = slot[0], [self._numbers[slot], *self._affine(slot)]
        name = self.graph.fresh(f"{value.name}_dequantized")
        sources = _sources(value, "dequantize")
        return self.graph.add("DequantizeLinear", operands, at=at, sources=sources, outputs=[name]).output

    def _affine(self, slot: Slot) -> list[Value]:
        if slot not in self._parameters:
            affine, name = self.scales[slot], slot[0].name
            self._parameters[slot] = [
                self.graph.add_const(np.asarray(affine.scale), f"{name}_scale"),
                self.graph.add_const(np.asarray(affine.zero_point), f"{name}_zero_point"),
            ]
        return self._parameters[slot]

    def _constants(self, layer: Layer, held_weight: Value) -> None:
        """Quantise weight and bias of a product, whose data are still in float."""
        weight = quantized_weight(layer, self.scales, self._options)
        if layer.bias is not None and "int32" in layer.wanted.bias:
            self._bias(layer, quantize_bias(layer.bias, data_scale(layer, self.scales), weight, channels_of(layer)))
        self.graph.set_input(layer.core, 1, self._constant(held_weight.name, weight, layer.core))

    def _bias(self, layer: Layer, quantized: Weights) -> None:
        adder = layer.bias_add or layer.core
        held = adder.inputs[layer.bias_index]
        assert held is not None
        self.graph.set_input(adder, layer.bias_index, self._constant(held.name, quantized, adder))

    def _constant(self, name: str, stored: Weights, at: Node) -> Value:
        parts = {"quantized": stored.numbers, "scale": stored.scale,
                 "zero_point": np.zeros(stored.scale.shape, stored.numbers.dtype)}  # fmt: skip
        operands = [self.graph.add_const(array, f"{name}_{part}") for part, array in parts.items()]
        attrs = {} if stored.axis is None else {"axis": stored.axis}
        names, sources = [self.graph.fresh(f"{name}_dequantized")], [f"{name}/dequantize"]
        return self.graph.add("DequantizeLinear", operands, attrs, at=at, outputs=names, sources=sources).output

    def _fold(self, layer: Layer, activation: Node) -> None:
        """Remove a Relu or Clip where rounding cuts off as much."""
        affine = self.scales[activation.output, layer.dtype]
        if not cuts_off(affine, *limits(activation.output)):
            return
        source = activation.inputs[0]
        assert source is not None
        self.graph.replace_uses(activation.output, source)
        self.graph.erase(activation)


def cuts_off(affine: Affine, low: float, high: float) -> bool:
    """Tell whether saturation leaves nothing below ``low`` and above ``high``.

    >>> cuts_off(Affine(np.float32(0.1), np.uint8(0)), 0.0, np.inf)
    True
    >>> cuts_off(Affine(np.float32(0.1), np.uint8(1)), 0.0, np.inf)
    False
    """
    least, most = np.iinfo(affine.zero_point.dtype).min, np.iinfo(affine.zero_point.dtype).max
    ends = affine.quantize(np.array([low, high], np.float32))
    return bool(ends[0] == least and ends[1] == most)


def _sources(value: Value, step: str) -> list[str]:
    return [f"{value.name}/{step}"]
