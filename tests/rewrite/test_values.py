from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.build import IMAGE, Net, root
from tests.rewrite.test_operators import why
from tinycomp.ir import TensorType
from tinycomp.rewrite import P, pattern, reject


@pytest.mark.parametrize(
    ("value", "found", "fits"),
    [
        (0.5, 0.5, True),
        (0.5, [0.5, 0.5, 0.5, 0.5], True),
        (0.5, [0.5, 0.5, 0.5, 0.6], False),
        (0.1, np.float32(0.1), True),
        ([1, 2, 3, 4], [1, 2, 3, 4], True),
        ([1, 2, 3, 4], [[1, 2, 3, 4]], False),
        (lambda a: a.min() > 0, [1, 2, 3, 4], True),
        (lambda a: a.min() > 1, [1, 2, 3, 4], False),
    ],
)
def test_constants_by_value(value: object, found: object, fits: bool) -> None:
    @pattern
    def scaled(x):
        return P.Mul(x, P.const(value))

    net = Net()
    graph = net.done(net.Mul(net.x[0], net.const(found)))
    assert bool(scaled.match(root(graph))) == fits


def test_the_wrong_constant_is_shown() -> None:
    net = Net()
    graph = net.done(net.Sub(net.x[0], 2.0))

    @pattern
    def minus_half(x):
        return x - 0.5

    assert why(minus_half, graph) == "expected the constant 0.5, found 2.0"


def test_integer_constants_are_compared_exactly() -> None:
    net = Net(type_=TensorType("int64", (2, 4)))
    graph = net.done(net.Add(net.x[0], net.const(2**53 + 1, "int64")))

    @pattern
    def shifted(x):
        return x + P.const(2**53)

    assert not shifted.match(root(graph))


def test_not_const_and_kinds_of_operands() -> None:
    @pattern
    def dynamic(x, y=P.not_const):
        return P.MatMul(x, y)

    net = Net(type_=TensorType("float32", (4, 4)))
    assert dynamic.match(root(net.done(net.MatMul(net.x[0], net.x[0]))))
    graph = net.done(net.MatMul(net.x[0], np.ones((4, 4))))
    assert why(dynamic, graph) == "expected anything but a constant, found constant const"


@pytest.mark.parametrize(
    ("constraints", "reason"),
    [
        ({"dtype": "float32"}, ""),
        ({"dtype": {"float16", "float32"}}, ""),
        ({"dtype": "int8"}, "dtype of x0: expected 'int8', found 'float32'"),
        ({"rank": 4}, ""),
        ({"rank": {2, 3}}, "rank of x0: expected 2 or 3, found 4"),
        ({"shape": (1, None, "s", "s")}, ""),
        ({"shape": (1, ...)}, ""),
        ({"shape": (..., 8, 8)}, ""),
        ({"shape": ("s", ..., "s")}, "shape of x0: expected [s, ..., s], found [1, 4, 8, 8]"),
        ({"shape": (1, 4, 8)}, "shape of x0: expected [1, 4, 8], found [1, 4, 8, 8]"),
        ({"shape": lambda s: s[1] % 16 == 0 or reject(f"{s[1]} channels")}, "shape of x0: 4 channels"),
        ({"const": True}, "expected a constant, found graph input x0"),
        ({"const": False}, ""),
        ({"value": 1.0}, "expected a constant, found graph input x0"),
        ({"layout": "NHWC"}, "layout of x0: expected 'NHWC', found ''"),
        ({"uses": 1}, ""),
        ({"uses": 2}, "uses of x0: expected 2, found 1"),
    ],
)
def test_where(constraints: dict[str, object], reason: str) -> None:
    @pattern
    def relu(x):
        return P.Relu(x.where(**constraints))

    net = Net(type_=IMAGE)
    graph = net.done(net.Relu(net.x[0]))
    if reason:
        assert why(relu, graph) == reason
    else:
        assert relu.match(root(graph), graph)


def test_sizes_are_bound_across_values() -> None:
    @pattern
    def matmul(a, b):
        return P.MatMul(a.where(shape=("m", "k")), b.where(shape=("k", "n")))

    net = Net(type_=TensorType("float32", (3, 5)))
    graph = net.done(net.MatMul(net.x[0], np.ones((5, 7))))
    match = matmul.match(root(graph))
    assert match.dims == {"m": 3, "k": 5, "n": 7}
    assert match.k == 5


def test_graph_outputs_count_as_uses() -> None:
    @pattern
    def only(x):
        return P.Neg(P.Relu(x).where(uses=1))

    net = Net()
    relu = net.Relu(net.x[0])
    negated = net.Neg(relu)
    graph = net.done(negated)
    assert only.match(root(graph), graph)
    net.done(negated, relu)
    assert only.match(root(graph), graph).reason == "uses of relu: expected 1, found 2"


def test_alternatives_come_in_order_and_backtrack() -> None:
    @pattern
    def either(x):
        return P.Neg(P.any_of(P.Relu(x.where(rank=3)), P.Relu(x).named("second"), P.Tanh(x)))

    net = Net()
    graph = net.done(net.Neg(net.Relu(net.x[0])))
    match = either.match(root(graph))
    assert match.second is not None
    assert either.match(root(net.done(net.Neg(net.Tanh(net.x[0]))))).second is None
    assert either.heads == {("", "Neg")}
    assert (P.Relu(P.any) | P.Tanh(P.any)).heads == {("", "Relu"), ("", "Tanh")}


def test_the_furthest_failure_is_the_one_reported() -> None:
    @pattern
    def either(x):
        return P.any_of(P.Neg(P.Abs(x)), P.Neg(P.Relu(P.Tanh(x))))

    net = Net()
    graph = net.done(net.Neg(net.Relu(net.Exp(net.x[0]))))
    assert why(either, graph) == "expected Tanh, found Exp at exp1"


def test_alternatives_that_fail_at_one_place_are_named_together() -> None:
    @pattern
    def any_activation(x):
        return P.Neg(P.any_of(P.Relu(x), P.op({"Tanh", "Clip"}, x), P.Sigmoid(x)))

    net = Net()
    assert why(any_activation, net.done(net.Neg(net.Exp(net.x[0])))) == (
        "expected Relu, Clip, Tanh or Sigmoid, found Exp at exp1"
    )


def test_predicates_answer_yes_or_a_reason() -> None:
    @pattern
    def relu(x):
        return P.Relu(x)

    @relu.check
    def rank_four(m):
        return m.x.type.rank == 4

    net = Net()
    graph = net.done(net.Relu(net.x[0]))
    assert why(relu, graph) == "rank_four refused the match"
    relu.checks[:] = [lambda m: 1 / 0]
    with pytest.raises(ZeroDivisionError) as error:
        relu.match(root(graph))
    assert error.value.__notes__ == ["while a predicate checked the match at <Node Relu relu1>"]
    relu.checks[:] = [lambda m: None, lambda m: reject(f"rank {m.x.type.rank}"), lambda m: 1 / 0]
    answer = relu.match(root(graph))
    assert (answer.reason, answer.progress) == ("rank 2", 1.0)


def test_a_predicate_takes_part_in_the_search() -> None:
    @pattern
    def first_is_x0(x, y):
        return x + y

    first_is_x0.check(lambda m: m.x.name == "x1" or reject("not x1"))
    net = Net(2)
    graph = net.done(net.Add(*net.x))
    assert first_is_x0.match(root(graph)).x is net.x[1]
