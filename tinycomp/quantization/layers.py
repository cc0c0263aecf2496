"""Find the layers of a model: what is quantised as one, because nothing is rounded to 8 bits between its parts.

A layer is an operator that can compute on 8-bit integers with what follows it in full precision: the bias that is added
to a product, and the Relu or Clip that alone reads the result. The table of operators says what each asks of the scales
around it, and :func:`select` finds the layers that a user names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import numpy as np

from tinycomp.arguments import fits
from tinycomp.errors import QuantizationError, did_you_mean, shown
from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.quantized.reading import channel_axis
from tinycomp.records import dataclass
from tinycomp.target.quantization import QuantizationRule, Rules

ACTIVATIONS = ("uint8", "int8", "int16", "uint16")
"""The dtypes that activations can be stored in; those of 16 bits need a target that asks for them."""
Selector = str | Callable[[Node], bool]
"""A name of a node or value (``*`` and ``?`` stand for what they do in file names), an operator, ``"first 2 conv"``,
``"last gemm"``, or a predicate of a node."""
_POSITION = re.compile(r"(?P<end>first|last)(?: (?P<count>[1-9]\d*))? (?P<op>\w+)", re.IGNORECASE)


Slot = tuple[Value, str]
"""A value and the dtype that some of the layers around it store it in."""


class Kind(Enum):
    """When an operator is worth computing on 8-bit numbers, and what its scales must fulfil.

    ``PRODUCT``: always; it is what quantising is for. ``SAME_SCALE``: where data come as 8-bit numbers anyway; the
    numbers are only moved or chosen, so operands and results have one scale. ``COMPUTED``: likewise, with a scale of
    its own for the result. ``INNER``: only between layers that are quantised, because it is sensitive.
    """

    PRODUCT = "product"
    SAME_SCALE = "same scale"
    COMPUTED = "computed"
    INNER = "inner"


@dataclass(frozen=True)
class Rule:
    """What there is to know about an operator.

    Attributes:
        kind: See :class:`Kind`.
        operands: How many leading operands are data; None for all.
        accepts: Whether a node of the operator can be quantised; its dtype is looked at apart.
        asked: Whether one can be where a target has a rule for it, if that is more than ``accepts``.
    """

    kind: Kind
    operands: int | None = 1
    accepts: Callable[[Node], bool] = lambda node: True
    asked: Callable[[Node], bool] | None = None


def _is_conv(node: Node) -> bool:
    return node.const(1) is not None and (node.optional_operand(2) is None or node.const(2) is not None)


def _is_gemm(node: Node) -> bool:
    """Accept a Gemm with a constant matrix and at most one bias per column."""
    bias, plain = node.const(2), not node.attrs.get("transA", 0)
    columns = node.output.shape
    if not plain or node.const(1) is None or columns is None:
        return False
    if bias is None:
        return node.optional_operand(2) is None
    return bias.size in (1, columns[-1]) and bias.size == _last(bias)


def _last(array: np.ndarray) -> int:
    return array.shape[-1] if array.ndim else 1


def _is_matmul(node: Node) -> bool:
    return all(v is not None and v.rank is not None for v in node.inputs)


def _pads_with_zero(node: Node) -> bool:
    """Tell whether a Pad fills with zero, which always has an exact 8-bit number; other constants need not."""
    value = node.const(2)
    absent = node.optional_operand(2) is None and not node.attrs.get("value", 0.0)
    return node.attrs.get("mode", "constant") != "constant" or absent or (value is not None and not value.any())


def _chooses(node: Node) -> bool:
    return str(node.attrs.get("mode", "nearest")) == "nearest"


def _chooses_or_interpolates(node: Node) -> bool:
    return str(node.attrs.get("mode", "nearest")) in ("nearest", "linear")


def _gives_no_indices(node: Node) -> bool:
    return len(node.used_outputs()) == 1


def _reads_data(node: Node) -> bool:
    """Refuse a lookup in a constant table, which has no data to quantise."""
    return node.const(0) is None


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(("Conv", "ConvTranspose"), Rule(Kind.PRODUCT, 1, _is_conv)),
        "Gemm": Rule(Kind.PRODUCT, 1, _is_gemm),
        "MatMul": Rule(Kind.PRODUCT, 2, _is_matmul),
        **dict.fromkeys((*named("selection"), "GlobalMaxPool"), Rule(Kind.SAME_SCALE)),
        "MaxPool": Rule(Kind.SAME_SCALE, 1, _gives_no_indices),
        "Concat": Rule(Kind.SAME_SCALE, None),
        "Pad": Rule(Kind.SAME_SCALE, 1, _pads_with_zero),
        "Resize": Rule(Kind.SAME_SCALE, 1, _chooses, _chooses_or_interpolates),
        "Gather": Rule(Kind.SAME_SCALE, 1, _reads_data),
        **dict.fromkeys((*named("function"), *named("mean")), Rule(Kind.COMPUTED)),
        **dict.fromkeys(("Add", "Sub", "Mul"), Rule(Kind.COMPUTED, 2)),
        "Softmax": Rule(Kind.INNER),
    }
)
"""Every operator of ONNX's own domain that can be quantised; all others stay in float."""


def rule_of(node: Node, asked: bool = False) -> Rule | None:
    """Return what holds for a node, or None if it has to stay in float: other operators, other dtypes, no data.

    Args:
        node: The node.
        asked: Whether a target has a rule for its operator.
    """
    rule = RULES.get(node.op) if not node.domain else None
    if rule is None or node.bodies or any(v.dtype != "float32" for v in node.used_outputs()):
        return None
    data = node.inputs[: rule.operands]
    accepts = rule.asked if asked and rule.asked is not None else rule.accepts
    return None if all(v is None or v.is_const for v in data) or not accepts(node) else rule


_ANY = QuantizationRule()


@dataclass(frozen=True, eq=False)
class Layer:
    """Nodes between two roundings.

    Attributes:
        core: The operator.
        rule: What holds for it.
        dtype: Of its data and results as they are stored.
        wanted: What a target wants of it.
        bias_add: The Add of a constant behind a MatMul.
        activation: The Relu or Clip at the end.
    """

    core: Node
    rule: Rule
    dtype: str = "uint8"
    wanted: QuantizationRule = _ANY
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
    def constant_weight(self) -> np.ndarray:
        """The constant weight of a product, float32."""
        assert self.weight is not None
        assert self.weight.const is not None
        return self.weight.const

    @property
    def data(self) -> list[Value]:
        """The distinct operands that are computed or fed."""
        return list(dict.fromkeys(v for _, v in self.operands if not v.is_const))

    @property
    def outputs(self) -> list[Value]:
        """The results that are rounded."""
        return self.nodes[-1].used_outputs()

    @property
    def slots(self) -> list[Slot]:
        """What it rounds: its operands, constant ones included, and its results."""
        return [(v, self.dtype) for v in [*(v for _, v in self.operands), *self.outputs]]

    @property
    def shares_scales(self) -> bool:
        """Whether its data and results have one scale and zero point."""
        return self.rule.kind is Kind.SAME_SCALE or bool(self.wanted.equal_scales)

    @property
    def is_product(self) -> bool:
        """Whether it is a Conv, ConvTranspose, Gemm or MatMul."""
        return self.rule.kind is Kind.PRODUCT

    @property
    def weight(self) -> Value | None:
        """The constant second operand of a product."""
        second = self.core.inputs[1] if self.is_product else None
        return second if second is not None and second.is_const else None

    @property
    def bias(self) -> np.ndarray | None:
        """The constant that is added to every sum, float32 ``[channels]`` or of one element; None without one."""
        array = (self.bias_add or self.core).const(self.bias_index) if self.is_product else None
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
        return channel_axis(self.core)


def find_layers(graph: Graph, rules: Rules | None = None, dtype: str | None = None) -> list[Layer]:
    """Return every layer of the main graph that could be quantised, in topological order; bodies are left alone.

    Args:
        graph: The graph, in float.
        rules: Of the target; what they do not name stays in float. None for no target.
        dtype: What activations are stored in where the rules leave a choice.
    """
    layers: list[Layer] = []
    taken: set[Node] = set()
    stored: dict[Value, str] = {}
    for node in graph.nodes:
        rule = None if node in taken else rule_of(node, asked=rules is not None)
        wanted = _ANY if rules is None else rules.get(node.op)
        allowed = [d for d in (dtype, *(wanted.activations if wanted else ())) if d is not None and d in ACTIVATIONS]
        allowed = [d for d in allowed if rules is None or (wanted is not None and d in wanted.activations)]
        if rule is None or wanted is None or not allowed:
            continue
        bias_add = _bias_add(graph, node)
        fused = rule.kind in (Kind.PRODUCT, Kind.COMPUTED)
        activation = _activation(graph, bias_add or node, wanted.fused) if fused else None
        given = [stored[v] for v in node.inputs[: rule.operands] if v in stored]
        chosen = next((d for d in given if d in allowed), allowed[0])
        layer = Layer(node, rule, chosen, wanted, bias_add, activation)
        stored.update(dict.fromkeys(layer.outputs, chosen))
        layers.append(layer)
        taken.update(layer.nodes)
    return layers


def _only_reader(graph: Graph, node: Node) -> Node | None:
    """Return the node that alone reads the result of ``node``, once; None if there is none."""
    value = node.output
    return next(iter(value.users)) if graph.use_count(value) == 1 and value.users else None


def _activation(graph: Graph, node: Node, fused: Collection[str]) -> Node | None:
    reader = _only_reader(graph, node) if node.op not in named("clamp") else None
    if reader is None or reader.op not in fused or reader.inputs[0] is not node.output:
        return None
    known = all(v is None or v.is_const for v in reader.inputs[1:])
    return reader if known and rule_of(reader) is not None else None


def _bias_add(graph: Graph, node: Node) -> Node | None:
    """Return the Add of one constant per column behind a product of data with a constant matrix."""
    if node.op != "MatMul" or node.const(1) is None:
        return None
    reader = _only_reader(graph, node)
    if reader is None or reader.op != "Add" or rule_of(reader) is None:
        return None
    bias = next((v.const for v in reader.inputs if v is not None and v.const is not None), None)
    columns = node.output.shape
    if bias is None or not columns or bias.size != columns[-1] or bias.shape[-1] != columns[-1]:
        return None
    return reader if bias.ndim <= len(columns) else None


def choose(layers: Sequence[Layer], kept: Collection[Layer], graph: Graph) -> list[Layer]:
    """Return the layers to quantise: every product, and of the others those that save a conversion, or cost none.

    ``layers`` stand in order; those in ``kept`` stay in float, as do the results of the graph.
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


def select(layers: Sequence[Layer], selectors: Selector | Iterable[Selector]) -> list[Layer]:
    """Return the layers that at least one selector means, in the order of the graph.

    A name means the layer that the node of this name has become a part of, such as a batch normalisation that was
    folded into the convolution before it. Predicates are asked for the core of every layer.

    Raises:
        QuantizationError: If a selector means none.
    """
    if not isinstance(selectors, str) and not callable(selectors) and not fits(selectors, Iterable):
        raise _not_a_selector(selectors)
    given = [selectors] if isinstance(selectors, str) or callable(selectors) else list(selectors)
    selected: set[Layer] = set()
    for selector in given:
        selected.update(_meant(layers, selector))
    return [layer for layer in layers if layer in selected]


def _meant(layers: Sequence[Layer], selector: Selector) -> list[Layer]:
    if callable(selector):
        return [layer for layer in layers if selector(layer.core)]
    if not isinstance(selector, str):
        raise _not_a_selector(selector)
    position = _POSITION.fullmatch(selector.strip())
    if position is not None:
        return _at_the_end(layers, selector, position)
    named = [layer for layer in layers if _is_called(layer, selector)]
    if not named:
        known = [name for layer in layers for name in (*_names(layer), layer.core.op)]
        raise QuantizationError(
            f'no layer is called "{selector}"', where="keep_float",
            expected="the name of a node or value, or an operator, that can be quantised",
            hint=did_you_mean(selector, known) or "tinycomp.quantization.noise lists the layers.",
        )  # fmt: skip
    return named


def _not_a_selector(given: Any) -> QuantizationError:
    return QuantizationError(
        "not a way to name layers", where="keep_float", found=shown(given),
        expected='names, operators, predicates, or texts such as "last 3 conv"',
    )  # fmt: skip


def _at_the_end(layers: Sequence[Layer], text: str, position: re.Match[str]) -> list[Layer]:
    op = position["op"].lower()
    alike = [layer for layer in layers if layer.core.op.lower() in (op, op.removesuffix("s"))]
    count = int(position["count"] or 1)
    if len(alike) < count:
        ops = sorted({layer.core.op for layer in layers})
        raise QuantizationError(
            f'"{text}" asks for more layers than there are', where="keep_float", expected=f"at least {count}",
            found=f"{len(alike)}", hint=f"The model has layers of {', '.join(ops) or 'no kind'}.",
        )  # fmt: skip
    return alike[:count] if position["end"].lower() == "first" else alike[-count:]


def _names(layer: Layer) -> list[str]:
    sources = [name for node in layer.nodes for name in node.sources]
    return [*sources, *(v.name for node in layer.nodes for v in node.used_outputs())]


def _is_called(layer: Layer, text: str) -> bool:
    # A name is taken as it stands first: names may hold the characters of patterns.
    return text == layer.core.op or any(text == name or fnmatchcase(name, text) for name in _names(layer))
