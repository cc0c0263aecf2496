"""If and Loop, with captured values and small bodies."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.models import elementwise, movement, reductions
from tests.fuzz.models.build import CODES, Builder, UnsuitableError, Value, renamed

INNER = (elementwise.unary, elementwise.arithmetic, reductions.softmax, movement.transpose)


def _filled(b: Builder, start: Value) -> tuple[Builder, Value]:
    """Return a body that computes something of the type of ``start``, from it."""
    body = b.body()
    for _ in range(b.rng.randint(1, 3)):
        body.attempt(b.rng.choice(INNER))
    fitting = [v for v in body.values if (v.dtype, v.shape) == (start.dtype, start.shape)]
    if not fitting or b.rng.random() < 0.2:
        half = body.constant(np.array(0.5, start.dtype), 0.5, 0.5)
        fitting = [body.add("Mul", [start, half], bound=start.bound, step=start.step / 2)]
    return body, fitting[-1]


def _result(b: Builder, node: onnx.NodeProto, like: Value, bound: float) -> Value:
    b.nodes.append(node)
    value = Value(node.output[0], like.dtype, like.shape, bound)
    b.values.append(value)
    return value


def if_(b: Builder) -> Value:
    """If, by a condition that is fed or computed; both branches give a value of the same shape."""
    x = b.pick_float(lambda v: v.size < 500, ("float32",))
    conditions = [v for v in b.visible() if v.dtype == "bool" and v.shape == ()]
    condition = b.rng.choice(conditions) if conditions else b.input("bool", ())
    branches = [_filled(b, x) for _ in range(2)]
    graphs = [body.graph(b.fresh("branch"), [y], []) for body, y in branches]
    node = helper.make_node(
        "If", [condition.name], [b.fresh("v")], b.fresh("If"), then_branch=graphs[0], else_branch=graphs[1]
    )
    return _result(b, node, x, max(y.bound for _, y in branches))


def loop(b: Builder) -> Value:
    """Loop of a fixed number of trips, that carries one value and may collect another."""
    x = b.pick_float(lambda v: v.size < 300, ("float32",))
    body = b.body()
    inner = renamed(x, b.fresh("carried"))
    body.values.append(inner)
    condition, trip = b.fresh("condition"), b.fresh("trip")
    squashed = body.add("Tanh", [inner], bound=1.0)
    for _ in range(b.rng.randint(1, 2)):
        body.attempt(b.rng.choice(INNER))
    fitting = [v for v in body.values if v.shape == x.shape and v.dtype == x.dtype and v.bound <= 4]
    result = b.rng.choice(fitting or [squashed])
    kept = body.fresh("condition")
    body.nodes.append(helper.make_node("Identity", [condition], [kept]))
    formals = [
        helper.make_tensor_value_info(trip, CODES["int64"], ()),
        helper.make_tensor_value_info(condition, CODES["bool"], ()),
        helper.make_tensor_value_info(inner.name, CODES[x.dtype], x.shape),
    ]
    if result is inner:
        raise UnsuitableError
    collects = b.rng.random() < 0.5
    outputs = [Value(kept, "bool", (), 1.0), result, *([squashed] if collects else [])]
    graph = body.graph(b.fresh("body"), outputs, formals)
    trips = b.rng.randint(1, 4)
    names = [b.fresh("v") for _ in outputs[1:]]
    operands = [b.constant(np.array(trips)).name, b.constant(np.array(True)).name, x.name]
    node = helper.make_node("Loop", operands, names, b.fresh("Loop"), body=graph)
    value = _result(b, node, x, 4.0)
    if collects:
        b.values.append(Value(names[1], x.dtype, (trips, *x.shape), 1.0))
    return value


FAMILIES = {if_: 0.4, loop: 0.3}
