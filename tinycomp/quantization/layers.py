"""Layers: what is quantised as one, because there is no rounding to 8 bits between its parts.

A layer is an operator with what follows it in full precision: the bias that is added to a product, and the Relu or Clip
that alone reads the result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import tensor
from tinycomp.quantization.operators import Kind, Rule, constant_of, rule_of

_ACTIVATIONS = ("Clip", "Relu")


@dataclass(frozen=True, eq=False)
class Layer:
    """Nodes between two roundings.

    Attributes:
        core: The operator.
        rule: What holds for it.
        bias_add: The Add of a constant behind a MatMul.
        activation: The Relu or Clip at the end.
    """

    core: Node
    rule: Rule
    bias_add: Node | None = None
    activation: Node | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes in order."""
        return tuple(n for n in (self.core, self.bias_add, self.activation) if n is not None)

    @property
    def name(self) -> str:
        """The first of the user's nodes that the layer came from."""
        return self.core.sources[0] if self.core.sources else self.core.label

    @property
    def operands(self) -> list[tuple[int, Value]]:
        """The operands of the core that are data, with their positions; a constant weight is not among them."""
        data = enumerate(self.core.inputs[: self.rule.operands])
        return [(i, v) for i, v in data if v is not None and v is not self.weight]

    @property
    def data(self) -> list[Value]:
        """The distinct operands that are computed or fed."""
        return list(dict.fromkeys(v for _, v in self.operands if not v.is_const))

    @property
    def outputs(self) -> list[Value]:
        """The results that are rounded."""
        return self.nodes[-1].used_outputs()

    @property
    def is_product(self) -> bool:
        """Whether it is a Conv, Gemm or MatMul."""
        return self.rule.kind is Kind.PRODUCT

    @property
    def weight(self) -> Value | None:
        """The constant second operand of a product."""
        second = self.core.inputs[1] if self.is_product else None
        return second if second is not None and second.is_const else None

    @property
    def bias(self) -> np.ndarray | None:
        """The constant that is added to every sum, float32 ``[channels]`` or of one element; None without one."""
        array = constant_of(self.bias_add or self.core, self.bias_index) if self.is_product else None
        return None if array is None else array.reshape(-1)

    @property
    def bias_index(self) -> int:
        """Which operand of the Add behind a MatMul, or else of the core, the bias is."""
        if self.bias_add is None:
            return 2
        return next(i for i, v in enumerate(self.bias_add.inputs) if v is not None and v.is_const)

    @property
    def channel_axis(self) -> int:
        """The axis of the weight that the output channels of a product lie along."""
        return 0 if self.core.op == "Conv" or self.core.attrs.get("transB", 0) else 1


def find_layers(graph: Graph) -> list[Layer]:
    """Return every layer of the main graph that could be quantised, in topological order; bodies are left alone."""
    layers: list[Layer] = []
    taken: set[Node] = set()
    for node in graph.nodes:
        rule = None if node in taken else rule_of(node)
        if rule is None:
            continue
        bias_add = _bias_add(graph, node)
        activation = _activation(graph, bias_add or node) if rule.kind in (Kind.PRODUCT, Kind.COMPUTED) else None
        layers.append(Layer(node, rule, bias_add, activation))
        taken.update(layers[-1].nodes)
    return layers


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """Return the node that alone reads the result of ``node``, once; None if there is none."""
    value = node.output
    return next(iter(value.users)) if graph.use_count(value) == 1 and value.users else None


def _activation(graph: Graph, node: Node) -> Node | None:
    reader = _only_reader(graph, node) if node.op not in _ACTIVATIONS else None
    if reader is None or reader.op not in _ACTIVATIONS or reader.inputs[0] is not node.output:
        return None
    known = all(v is None or v.is_const for v in reader.inputs[1:])
    return reader if known and rule_of(reader) is not None else None


def _bias_add(graph: Graph, node: Node) -> Node | None:
    """Return the Add of one constant per column behind a product of data with a constant matrix."""
    if node.op != "MatMul" or constant_of(node, 1) is None:
        return None
    reader = _only_reader(graph, node)
    if reader is None or reader.op != "Add" or rule_of(reader) is None:
        return None
    bias = next((v.const for v in reader.inputs if v is not None and v.const is not None), None)
    columns = tensor(node.output.type).shape
    if bias is None or not columns or bias.size != columns[-1] or bias.shape[-1] != columns[-1]:
        return None
    return reader if bias.ndim <= len(columns) else None


def choose(layers: Sequence[Layer], kept: Collection[Layer], graph: Graph) -> list[Layer]:
    """Return the layers to quantise: every product, and of the others those that save a conversion, or cost none.

    Args:
        layers: Of the graph, in order.
        kept: Those that stay in float.
        graph: Whose results are float.
    """
    makers = {v: layer for layer in layers for v in layer.outputs}
    readers = {node: layer for layer in layers for node in layer.nodes}
    chosen = {layer for layer in layers if layer.is_product and layer not in kept}
    others = [layer for layer in layers if not layer.is_product and layer not in kept]

    def fits(layer: Layer) -> bool:
        come = [makers.get(v) in chosen for v in layer.data]
        users = [readers.get(user) in chosen for v in layer.outputs for user in v.users]
        go = all(users) and bool(users) and not any(graph.is_output(v) for v in layer.outputs)
        return (all(come) and go) if layer.rule.kind is Kind.INNER else (all(come) or (any(come) and go))

    while True:
        before = len(chosen)
        for layer in (*others, *reversed(others)):
            if layer not in chosen and fits(layer):
                chosen.add(layer)
        if len(chosen) == before:
            return [layer for layer in layers if layer in chosen]
