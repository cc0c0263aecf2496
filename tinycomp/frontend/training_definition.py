"""What a step of an optimiser computes: Adagrad, Adam and Momentum, tensor by tensor.

Their operands are the learning rate, the number of the step, and groups of tensors: all that are trained, then all
gradients, then all of each running mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from tinycomp.frontend.definition_body import Body, Definition
from tinycomp.ir.graph import Node, Value

DOMAIN = "ai.onnx.preview.training"
_FLOATS = ("float32", "float64")
_Step = Callable[[Body, Node, Value, Value, Sequence[Value]], Sequence[Value]]
"""Returns a new tensor and new running means, given the learning rate, the number of the step, and the old ones."""


def _number(body: Body, node: Node, name: str, default: float, like: Value) -> Value:
    return body.like(like, float(node.attrs.get(name, default)))


def _regularized(body: Body, node: Node, x: Value, gradient: Value) -> Value:
    """Return the gradient with what a penalty for large numbers adds to it."""
    factor = float(node.attrs.get("norm_coefficient", 0.0))
    return gradient if factor == 0.0 else body("Add", body("Mul", body.like(x, factor), x), gradient)


def _adagrad(body: Body, node: Node, rate: Value, step: Value, tensors: Sequence[Value]) -> Sequence[Value]:
    x, gradient, squares = tensors
    decay = body("Mul", step, _number(body, node, "decay_factor", 0.0, x))
    rate = body("Div", rate, body("Add", body.like(x, 1.0), decay))
    regular = _regularized(body, node, x, gradient)
    squares = body("Add", squares, body("Mul", regular, regular))
    adaptive = body("Add", body("Sqrt", squares), _number(body, node, "epsilon", 1e-6, x))
    return body("Sub", x, body("Div", body("Mul", rate, regular), adaptive)), squares


def _mean(body: Body, old: Value, new: Value, factor: Value) -> Value:
    """Return a running mean that keeps a share of the old one."""
    rest = body("Sub", body.like(old, 1.0), factor)
    return body("Add", body("Mul", factor, old), body("Mul", rest, new))


def _adam(body: Body, node: Node, rate: Value, step: Value, tensors: Sequence[Value]) -> Sequence[Value]:
    x, gradient, mean, squares = tensors
    alpha, beta = _number(body, node, "alpha", 0.9, x), _number(body, node, "beta", 0.999, x)
    one = body.like(x, 1.0)
    regular = _regularized(body, node, x, gradient)
    mean = _mean(body, mean, regular, alpha)
    squares = _mean(body, squares, body("Mul", regular, regular), beta)
    adaptive = body("Add", body("Sqrt", squares), _number(body, node, "epsilon", 1e-6, x))
    started = body("Greater", step, body.like(x, 0.0))
    later = body("Where", started, step, one)  # no power of 0, which would divide by 0
    spread = body("Sqrt", body("Sub", one, body("Pow", beta, later)))
    adjusted = body("Div", body("Mul", rate, spread), body("Sub", one, body("Pow", alpha, later)))
    rate = body("Where", started, adjusted, rate)
    new = body("Sub", x, body("Div", body("Mul", rate, mean), adaptive))
    post = body("Sub", one, _number(body, node, "norm_coefficient_post", 0.0, x))
    return body("Mul", post, new), mean, squares


def _momentum(body: Body, node: Node, rate: Value, step: Value, tensors: Sequence[Value]) -> Sequence[Value]:
    x, gradient, velocity = tensors
    alpha, beta = _number(body, node, "alpha", 0.0, x), _number(body, node, "beta", 0.0, x)
    regular = _regularized(body, node, x, gradient)
    share = body("Where", body("Greater", step, body.like(x, 0.0)), beta, body.like(x, 1.0))
    velocity = body("Add", body("Mul", alpha, velocity), body("Mul", share, regular))
    change = velocity
    if node.attrs.get("mode", "standard") in ("nesterov", b"nesterov"):
        change = body("Add", regular, body("Mul", alpha, velocity))
    return body("Sub", x, body("Mul", rate, change)), velocity


def _defined_by(step: _Step, groups: int) -> Callable[[Body, Node, Sequence[Value | None]], Sequence[Value] | None]:
    """Return the definition of an optimiser with so many groups of tensors."""

    def define(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
        given = [v for v in operands[: len(node.inputs)] if v is not None]
        count, rest = divmod(len(given) - 2, groups)
        if len(given) != len(node.inputs) or rest or len({v.dtype for v in given[2:]}) != 1:
            return None
        dtype = given[2].dtype
        if dtype not in _FLOATS:
            return None
        rate, number = (body.reshape(body.cast(v, dtype), []) for v in given[:2])
        results = [step(body, node, rate, number, given[2 + i :: count]) for i in range(count)]
        flat = [results[i][group] for group in range(groups - 1) for i in range(count)]
        return [v for v, result in zip(flat, node.outputs, strict=False) if result.name]

    return define


DEFINITIONS = MappingProxyType({
    f"{DOMAIN}::Adagrad": Definition(_defined_by(_adagrad, 3)),
    f"{DOMAIN}::Adam": Definition(_defined_by(_adam, 4)),
    f"{DOMAIN}::Momentum": Definition(_defined_by(_momentum, 3)),
})  # fmt: skip
