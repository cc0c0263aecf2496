"""What kernels apply before they store, bias, residual and activation, and how composites spell it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.layout import memory_order
from tinycomp.ir.types import TensorType, tensor
from tinycomp.records import dataclass
from tinycomp.rewrite import Match
from tinycomp.runtime.native.library import lib
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.common.activations import clip_bounds, spelling_of, spellings_at
from tinycomp.targets.common.checks import channel_vector
from tinycomp.targets.common.composites import opened, operands_of


@dataclass(frozen=True)
class Activation:
    """A function of one element.

    Attributes:
        code: Its number in ``enum tc_activation``.
        a: First coefficient.
        b: Second coefficient.
    """

    code: int
    a: float = 0.0
    b: float = 0.0

    def params(self) -> dict[str, int | float]:
        """Return the epilogue parameters of a kernel."""
        return {"activation": self.code, "activation_a": self.a, "activation_b": self.b}


IDENTITY = Activation(lib.TC_ACT_NONE)
Read = Callable[[Node], Activation]


def _attr(node: Node, name: str, default: float) -> float:
    return float(node.attrs.get(name, default))


def _fixed(code: int) -> Read:
    return lambda node: Activation(code)


def _clip(node: Node) -> Activation:
    bounds = clip_bounds(node)
    assert bounds is not None, node
    return Activation(lib.TC_ACT_CLIP, *bounds)


READ: Mapping[str, Read] = {
    "relu": _fixed(lib.TC_ACT_RELU),
    "clip": _clip,
    "leaky_relu": lambda n: Activation(lib.TC_ACT_LEAKY_RELU, _attr(n, "alpha", 0.01)),
    "sigmoid": _fixed(lib.TC_ACT_SIGMOID),
    "tanh": _fixed(lib.TC_ACT_TANH),
    "silu": _fixed(lib.TC_ACT_SILU),
    "hardswish": _fixed(lib.TC_ACT_HARDSWISH),
    "hardsigmoid": lambda n: Activation(lib.TC_ACT_HARDSIGMOID, _attr(n, "alpha", 0.2), _attr(n, "beta", 0.5)),
    "gelu": _fixed(lib.TC_ACT_GELU_ERF),
    "gelu_tanh": _fixed(lib.TC_ACT_GELU_TANH),
}
"""The activation, from the node that gives the result, by the name of its spelling."""


def activation_of(argument: Value, result: Value) -> Activation:
    """Return the activation that makes ``result`` of ``argument`` inside a composite's body."""
    if argument is result:
        return IDENTITY
    found = spelling_of(argument, result)
    assert found is not None, f"{result.name} is no activation of {argument.name}"
    spelling, node = found
    return READ[spelling.name](node)


@dataclass(frozen=True)
class Spelled:
    """An activation that several operators of a fusion group spell out.

    Attributes:
        argument: What it is a function of.
        activation: The function.
    """

    argument: Value
    activation: Activation


def spelled_out(nodes: Sequence[Node], outputs: Sequence[Value]) -> dict[Node, Spelled | None]:
    """Return the float32 activations that ``nodes`` spell out.

    ``nodes`` are a fusion group, in order; something else reads ``outputs``.

    Returns:
        The activation by the operator that gives it, and None for each of the others that spell it out.
    """
    found: dict[Node, Spelled | None] = {}
    members, wanted = set(nodes), set(outputs)
    for node in reversed(nodes):
        if node in found or node.output.dtype != "float32":
            continue
        for spelling, match in spellings_at(node, single=False):
            inner = [n for n in match.matched if n is not node]
            if inner and members.issuperset(inner) and not found.keys() & set(inner) and _hidden(match, inner, wanted):
                found |= dict.fromkeys(inner)
                found[node] = Spelled(match["x"], READ[spelling.name](node))
                break
    return found


def _hidden(match: Match, inner: Sequence[Node], wanted: set[Value]) -> bool:
    """Tell whether the results of the inner operators of a match are read only inside it."""
    matched = set(match.matched)
    return all(n.output not in wanted and matched.issuperset(n.output.users) for n in inner)


def epilogue_operands(emit: Emitter, fused: Fused, axis: int) -> tuple[View | None, View | None]:
    """Return the sum of all per-channel constants as one bias vector, and the residual in the result's memory order.

    Args:
        emit: Holds the bias as a constant.
        fused: The composite; an operand 2 of its anchor is a bias.
        axis: The channel axis of the result: 1 for images, -1 for matrices.
    """
    bias, residual = bias_and_residual(emit, fused, axis)
    return bias, None if residual is None else _in_order_of(tensor(fused.output.type), residual, emit)


def bias_and_residual(emit: Emitter, fused: Fused, axis: int) -> tuple[View | None, Value | None]:
    """Do as :func:`epilogue_operands`, but leave the residual where it is."""
    vector, residual = sum_per_channel(fused, axis)
    return None if vector is None else emit.constant(vector), residual


def sum_per_channel(fused: Fused, axis: int) -> tuple[np.ndarray | None, Value | None]:
    """Return the sum of bias and addends with one number per channel, and the addend that is not so, where they are."""
    result = tensor(fused.output.type)
    vectors = []
    own = fused.operands[2] if len(fused.operands) > 2 else None
    if own is not None:
        assert own.const is not None, own
        vectors.append(own.const.reshape(-1))
    residual = None
    for value in fused.addends:
        vector = None if value.const is None else channel_vector(value.const, result, axis)
        if vector is not None:
            vectors.append(vector)
        else:
            assert residual is None, f"{fused.output.name} has two residuals"
            residual = value
    if not vectors:
        return None, residual
    return np.ascontiguousarray(sum(vectors[1:], vectors[0]), np.float32), residual


def _in_order_of(result: TensorType, residual: Value, emit: Emitter) -> View:
    """Layout assignment leaves constants alone, since weights are packed anyway; a residual must lie as the result."""
    if residual.const is None:
        return emit.view(residual)
    return emit.constant(residual.const.transpose(memory_order(result.layout, residual.const.ndim)))


ANCHORS = frozenset({*named("product"), "ConvTranspose", "MatMulNBits"})


@dataclass(slots=True)
class Fused:
    """What a composite computes: ``activation(anchor(operands) + addends…)``.

    Attributes:
        anchor: The node inside that does the work.
        operands: The anchor's operands as values of the region.
        addends: What is added to its result: a bias vector or a residual, as values of the region.
        activation: What is applied last.
        output: The result in the region.
    """

    anchor: Node
    operands: tuple[Value | None, ...]
    addends: tuple[Value, ...]
    activation: Activation
    output: Value

    @property
    def factors(self) -> tuple[Value, Value]:
        """The two operands that the anchor multiplies."""
        first, second = self.operands[:2]
        assert first is not None
        assert second is not None
        return first, second


def take_apart(node: Node) -> Fused:
    """Return the parts of a composite, or of a plain anchor node."""
    if not node.is_composite:
        return Fused(node, node.inputs, (), IDENTITY, node.output)
    body, outer = node.body, operands_of(node)
    anchor, adds = _anchor_and_adds(body)
    if _constants_elsewhere(body, outer, {anchor, *adds}):
        body, outer = opened(node)
        anchor, adds = _anchor_and_adds(body)
    current, addends = anchor.output, []
    for add in adds:
        other = next((v for v in add.inputs if v is not current), current)
        assert other is not None
        addends.append(outer.get(other, other))
        current = add.output
    operands = tuple([None if v is None else outer.get(v, v) for v in anchor.inputs])
    return Fused(anchor, operands, tuple(addends), activation_of(current, body.outputs[0]), node.output)


def _anchor_and_adds(body: Graph) -> tuple[Node, list[Node]]:
    """Return the anchor of a composite's body, and the Adds that follow it one after the other."""
    anchor = next(n for n in body.nodes if n.op in ANCHORS)
    adds: list[Node] = []
    while (add := _following_add(adds[-1].output if adds else anchor.output)) is not None:
        adds.append(add)
    return anchor, adds


def _constants_elsewhere(body: Graph, outer: Mapping[Value | None, Value], readers: Set[Node]) -> bool:
    """Tell whether a node other than ``readers`` reads an input of the body that stands for a constant."""
    return any(outer[v].is_const and not v.users.keys() <= readers for v in body.inputs)


def _following_add(value: Value) -> Node | None:
    """Return the Add that is the only reader of ``value``."""
    if len(value.users) != 1:
        return None
    (user,) = value.users
    return user if user.op in ("Add", "Sum") and len(user.inputs) == 2 else None
