"""Functions of one element: which of oneDNN's each ONNX operator or spelled-out activation is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tinycomp.ir.graph import Node, Value
from tinycomp.targets.common.activations import clip_bounds, spelling_of

_RELU, _TANH, _ELU, _ABS, _SQRT, _LINEAR = 31, 47, 63, 95, 111, 127
_SOFT_RELU, _LOGISTIC, _EXP, _GELU_TANH, _SWISH, _LOG, _CLIP = 159, 175, 191, 207, 223, 239, 255
_GELU_ERF, _MISH, _HARD_SWISH = 48, 96, 112


@dataclass(frozen=True)
class Eltwise:
    """A function of one element.

    Attributes:
        kind: Its number in ``dnnl_alg_kind_t``.
        alpha: First coefficient.
        beta: Second coefficient.
    """

    kind: int
    alpha: float = 0.0
    beta: float = 0.0


Chain = tuple[Eltwise, ...]
"""Functions applied one after the other."""


def _fixed(kind: int, alpha: float = 0.0) -> Callable[[Node], Chain]:
    return lambda node: (Eltwise(kind, alpha),)


def _alpha(kind: int, default: float) -> Callable[[Node], Chain]:
    return lambda node: (Eltwise(kind, float(node.attrs.get("alpha", default))),)


def _clip(node: Node) -> Chain:
    bounds = clip_bounds(node)
    assert bounds is not None, node
    return (Eltwise(_CLIP, *bounds),)


def _hard_sigmoid(node: Node) -> Chain:
    line = Eltwise(_LINEAR, float(node.attrs.get("alpha", 0.2)), float(node.attrs.get("beta", 0.5)))
    return (line, Eltwise(_CLIP, 0.0, 1.0))


ACTIVATIONS: Mapping[str, Callable[[Node], Chain]] = {
    "relu": _fixed(_RELU),
    "clip": _clip,
    "leaky_relu": _alpha(_RELU, 0.01),
    "hardswish": _fixed(_HARD_SWISH),
    "silu": _fixed(_SWISH, 1.0),
    "sigmoid": _fixed(_LOGISTIC),
    "tanh": _fixed(_TANH),
    "hardsigmoid": _hard_sigmoid,
    "gelu": _fixed(_GELU_ERF),
    "gelu_tanh": _fixed(_GELU_TANH),
}
"""By the names of the activations' spellings."""

UNARY: Mapping[str, Callable[[Node], Chain]] = {
    "Abs": _fixed(_ABS),
    "Elu": _alpha(_ELU, 1.0),
    "Exp": _fixed(_EXP),
    "Log": _fixed(_LOG),
    "Mish": _fixed(_MISH),
    "Softplus": _fixed(_SOFT_RELU),
    "Sqrt": _fixed(_SQRT),
}
"""By operator: functions that no composite fuses."""


def activation(argument: Value, result: Value) -> Chain | None:
    """Return the functions that make ``result`` of ``argument`` inside a composite's body; None if none do."""
    if argument is result:
        return ()
    found = spelling_of(argument, result)
    return None if found is None else ACTIVATIONS[found[0].name](found[1])
