"""The record of a quantised layer: an operator between conversions, and the integers that it computes with.

``docs/quantised-layers.md`` defines them. Whoever compiles, checks or runs quantised layers reads this record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import Dim
from tinycomp.ops.numeric import Array, prod
from tinycomp.quantized.reading import (
    MEAN_WEIGHT,
    IntegerProduct,
    Requantization,
    channel_axis,
    constant,
    dequantizer,
    geometry,
    scale_of,
    source,
    zero_point_of,
)
from tinycomp.records import dataclass
from tinycomp.rewrite import Match
from tinycomp.rewrite.traits import has_trait, is_structural

STORED = ("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32")
"""The dtypes that numbers may be stored in."""
_CLAMPS = named("clamp")
_READ = "_quantized_layer"
"""Where a match remembers its layer."""
_BESIDE = frozenset({*named("quantization"), "Pad"})
"""What may stand in front of the operator of a layer."""


@dataclass(frozen=True)
class QuantizationParameters:
    """How numbers of a value are stored, as a QuantizeLinear or DequantizeLinear says it.

    Attributes:
        name: Of the value.
        dtype: Of the stored numbers; ``"float32"`` where they are real.
        scale: float64, flat; several along an axis.
        zero_point: int64, flat.
        axis: The axis of several scales.
    """

    name: str
    dtype: str
    scale: Array
    zero_point: Array
    axis: int = 1

    @classmethod
    def of(cls, conversion: Node) -> QuantizationParameters | None:
        """Return the parameters of a conversion; None if its scale or zero point is known only at run time."""
        scale, given = conversion.const(1), conversion.optional_operand(2)
        if scale is None or (given is not None and given.const is None):
            return None
        point = np.zeros(1, np.int64) if given is None or given.const is None else given.const.astype(np.int64)
        forward = conversion.op == "QuantizeLinear"
        real, stored = conversion.operand(0), conversion.output
        dtype, name = (stored.dtype, real.name) if forward else (real.dtype, stored.name)
        axis = int(conversion.attrs.get("axis", 1))
        return cls(name, dtype, scale.astype(np.float64).reshape(-1), point.reshape(-1), axis)

    @classmethod
    def real(cls, value: Value) -> QuantizationParameters:
        """Return what there is to say of a value that is not quantised."""
        return cls(value.name, value.dtype, np.ones(1), np.zeros(1, np.int64))

    @property
    def is_real(self) -> bool:
        """Whether the numbers are not quantised."""
        return self.dtype not in STORED

    def equals(self, other: QuantizationParameters) -> bool:
        """Tell whether stored numbers of both stand for the same."""
        mine, theirs = ((p.dtype, p.scale.tolist(), p.zero_point.tolist()) for p in (self, other))
        return mine == theirs


@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """An operator between conversions.

    Attributes:
        core: The operator.
        nodes: It and all that belongs to it: the conversions, a Pad in front, the addition of a bias, an activation.
        data: How its data are stored, by operand.
        weight: How the constant factor of a product is stored.
        bias: Likewise what is added to its sums.
        results: How its results are stored.
        activation: The Relu or Clip before its result is rounded.
        added: What is added to the sums of a product.
        last: The node that gives its result, if that is known.
    """

    core: Node
    nodes: tuple[Node, ...]
    data: Mapping[int, QuantizationParameters]
    weight: QuantizationParameters | None
    bias: QuantizationParameters | None
    results: tuple[QuantizationParameters, ...]
    activation: Node | None = None
    added: Value | None = None
    last: Node | None = None

    @classmethod
    def of(cls, nodes: Collection[Node] | Match) -> QuantizedLayer:
        """Return the layer that the body of a composite is, or a match, of which it is read once; there must be one."""
        if isinstance(nodes, Match):
            known = vars(nodes)
            layer: QuantizedLayer = known.get(_READ) or cls._of(nodes.matched)
            known[_READ] = layer
            return layer
        return cls._of(nodes)

    @classmethod
    def _of(cls, nodes: Collection[Node]) -> QuantizedLayer:
        middle = {node for node in nodes if node.op not in _BESIDE and not is_structural(node)}
        core = next(n for n in middle if not any(source(v) in middle for v in n.inputs))
        found = cls.read(core, nodes)
        assert found is not None, core
        return found

    @classmethod
    def read(cls, core: Node, within: Collection[Node] | None = None) -> QuantizedLayer | None:
        """Return the layer around an operator; None if it is computed in float: its weight is real, or its data.

        Args:
            core: The operator.
            within: The nodes that may belong to it, such as those of a match; by default any.
        """
        data, factors, nodes = _operands(core, within)
        added = core.optional_operand(2) if 2 in factors else None
        add = _bias_add(core, within) if core.op == "MatMul" and 1 in factors else None
        if add is not None:
            added = next(v for v in add.inputs if v is not None and v.producer is not core)
            way = _way_to(added, "DequantizeLinear", False)
            factors[2] = _stored(way) or QuantizationParameters.real(added)
            nodes += [add, *way]
        activation, conversions = _rounding(add or core, within)
        nodes += [*([activation] if activation is not None else []), *conversions]
        results = tuple(found for node in conversions if (found := QuantizationParameters.of(node)) is not None)
        weight, is_quantized = factors.get(1), bool(data) and all(not p.is_real for p in data.values())
        if not is_quantized or (weight.is_real if weight is not None else not results and within is None):
            return None
        if not results and within is None:
            results = (QuantizationParameters.real(core.output),)
        last = conversions[0] if conversions else None if within is None else _last(within)
        return cls(core, tuple(nodes), data, weight, factors.get(2), results, activation, added, last)

    @property
    def channel_axis(self) -> int:
        """The axis of the weight that the output channels of a product lie along."""
        return channel_axis(self.core)

    # The integers -------------------------------------------------------------------------------------------------

    def stored(self, index: int = 0) -> Value:
        """Return the stored numbers of an operand."""
        return dequantizer(self.core.inputs[index]).operand(0)

    def scale(self, index: int = 0) -> float:
        """Return the scale of an operand that has one."""
        return float(scale_of(dequantizer(self.core.inputs[index])).item())

    def zero_point(self, index: int = 0) -> int:
        """Return the zero point of an operand that has one."""
        return int(zero_point_of(dequantizer(self.core.inputs[index])).item())

    @cached_property
    def product(self) -> IntegerProduct:
        """The integers of a product with a constant weight; a mean has equal weights for every channel."""
        if not has_trait(self.core, "mean"):
            return IntegerProduct.read(self.core, self.nodes)
        channels = (self.core.operand(0).shape or (None, None))[1]
        assert isinstance(channels, int), self.core
        kernel = [size for size in self.kernel if isinstance(size, int)]
        weight = np.full((channels, 1, *kernel), MEAN_WEIGHT, np.int8)
        return IntegerProduct(weight, np.zeros(channels, np.int64), self.steps, self.zero_point())

    @cached_property
    def steps(self) -> Array:
        """What a step of the sums of a product or mean is worth, in float64, one number or one per channel."""
        if has_trait(self.core, "mean"):
            return np.array([self.scale()]) / (MEAN_WEIGHT * prod(self.kernel))
        return self.product.scale if self.weight is not None else np.array([self.scale(0) * self.scale(1)])

    @property
    def is_spelled_out(self) -> bool:
        """Whether factors, rounding and clipping are operators of their own, which a Cast ends."""
        return self.last is not None and self.last.op == "Cast"

    @cached_property
    def to(self) -> Requantization | None:
        """How sums become the numbers of the result; None where that is float32."""
        if self.last is None or self.last.op not in ("Cast", "QuantizeLinear"):
            return None
        return Requantization.spelled_out(self.last)[0] if self.is_spelled_out else Requantization.read(self.last)

    @property
    def result(self) -> Requantization:
        """How sums become the numbers of the result, which are stored."""
        assert self.to is not None, self.core
        return self.to

    @property
    def factors(self) -> Array:
        """What the sums of a product are multiplied by in float32, one number or one per channel."""
        if self.is_spelled_out:
            assert self.last is not None
            return Requantization.spelled_out(self.last)[1].reshape(-1).astype(np.float32)
        return self.steps.astype(np.float32) if self.to is None else self.to.factors(self.steps)

    def ratios(self) -> Array:
        """Return, in float64, what a step of the sums is worth in steps of the result."""
        return np.asarray(self.steps / np.float64(self.result.scale))

    # The windows --------------------------------------------------------------------------------------------------

    @property
    def kernel(self) -> tuple[Dim, ...]:
        """The sizes of the window of a mean, where they are known; of a ReduceMean how many numbers it has."""
        core = self.core
        if core.op == "ReduceMean":
            sizes = core.operand(0).static_shape, core.output.static_shape
            return (None if sizes[0] is None or sizes[1] is None else prod(sizes[0]) // prod(sizes[1]),)
        return tuple(core.attrs.get("kernel_shape") or (core.operand(0).shape or (None, None, None))[2:])

    @property
    def groups(self) -> int:
        """How many groups of channels share no data; those of a mean are each one of their own."""
        return len(self.product.weight) if has_trait(self.core, "mean") else int(self.core.attrs.get("group", 1))

    @property
    def geometry(self) -> dict[str, Any]:
        """The attributes that say where windows lie on the data, with what a Pad of spatial axes in front adds."""
        found, pad = geometry(self.core), next((node for node in self.nodes if node.op == "Pad"), None)
        if pad is not None:
            around = [int(width) for side in padding(pad).reshape(2, -1) for width in side[2:]]
            own = found.get("pads") or [0] * len(around)
            found["pads"] = [a + b for a, b in zip(own, around, strict=True)]
        return found


def is_of_layer(conversion: Node) -> bool:
    """Tell whether the DequantizeLinear of a constant is the weight or bias of a product of stored data."""
    return any(has_trait(user, "product") and QuantizedLayer.read(user) is not None for user in conversion.output.users)


def padding(pad: Node) -> Array:
    """Return what a Pad adds, before all axes and then behind all."""
    return constant(pad.inputs[1]) if len(pad.inputs) > 1 else np.array(pad.attrs["pads"])


def _last(nodes: Collection[Node]) -> Node | None:
    """Return the node whose result no other one of some reads."""
    return next((n for n in nodes if not any(user in nodes for v in n.outputs for user in v.users)), None)


_Operands = dict[int, QuantizationParameters]


def _operands(core: Node, within: Collection[Node] | None) -> tuple[_Operands, _Operands, list[Node]]:
    """Return how data are stored, and constant factors of a product, by operand; and the core with their conversions.

    Other operators have data alone, and operands that are no numbers to compute with, such as sizes.
    """
    is_product, nodes = has_trait(core, "product") or core.qualified_op == "ConvTranspose", [core]
    data: _Operands = {}
    factors: _Operands = {}
    for index, value in enumerate(core.inputs):
        if value is None:
            continue
        way = _way_to(value, "DequantizeLinear", core.op == "Conv")
        stored = _stored(way) if _inside(way, within) else None
        is_constant = value.is_const or bool(way and way[-1].operand(0).is_const)
        if stored is not None:
            nodes += way
        elif not is_product or (within is not None and not is_constant):
            continue
        kind = factors if is_product and index and is_constant else data
        kind[index] = stored or QuantizationParameters.real(value)
    return data, factors, nodes


def _stored(way: Sequence[Node]) -> QuantizationParameters | None:
    """Return what the conversion at the end of a way says, if there is one and it is known."""
    return QuantizationParameters.of(way[-1]) if way else None


def _inside(nodes: Iterable[Node], within: Collection[Node] | None) -> bool:
    return within is None or all(node in within or is_structural(node) for node in nodes)


def _way_to(value: Value, op: str, through_pads: bool) -> list[Node]:
    """Return the nodes from a value back to its maker of an operator, past no-ops; empty if there is none."""
    way: list[Node] = []
    node = value.producer
    while node is not None and (is_structural(node) or (through_pads and node.op == "Pad" and not node.domain)):
        way.append(node)
        node = node.operand(0).producer
    return [*way, node] if node is not None and node.op == op and not node.domain else []


def _bias_add(core: Node, within: Collection[Node] | None) -> Node | None:
    """Return the Add that alone reads a product and adds a constant."""
    users = [*core.output.users]
    if len(users) != 1 or users[0].op != "Add" or not _inside(users, within):
        return None
    added = next((v for v in users[0].inputs if v is not None and v.producer is not core), None)
    way = [] if added is None else _way_to(added, "DequantizeLinear", False)
    known = added is not None and (added.is_const or bool(way and way[-1].operand(0).is_const))
    return users[0] if known else None


def _rounding(node: Node, within: Collection[Node] | None) -> tuple[Node | None, list[Node]]:
    """Return the activation behind a node, if one alone reads it, and the conversions of the results."""
    activation, outputs = None, [*node.used_outputs()]
    users = [*outputs[0].users] if len(outputs) == 1 else []
    clamps = len(users) == 1 and users[0].op in _CLAMPS and all(v is None or v.is_const for v in users[0].inputs[1:])
    if clamps and node.op not in _CLAMPS and _inside(users, within):
        activation, outputs = users[0], [users[0].output]
    rounded = [u for v in outputs for u in v.users if u.op == "QuantizeLinear" and _inside([u], within)]
    # An activation that something else reads is a layer of its own.
    return (activation, rounded) if rounded else (None, [])
