"""What a composite reads: copies of shared producers, parameters in order, bound constants."""

from __future__ import annotations

import numpy as np

from tests.passes.merge_composite.tools import SQUARE, dense_add_relu, merge, ops_of
from tests.rewrite.build import Net
from tinycomp.ir import TensorType, Value
from tinycomp.rewrite import P


def quantised(net: Net, value: Value, scale: float = 0.1) -> Value:
    return net.DequantizeLinear(value, scale, net.const(0, "int8"))


def qconv(x, w):
    return P.Relu(P.Conv(P.DequantizeLinear(x, ...), P.DequantizeLinear(w, ...)))


def test_shared_dequantise_is_copied_for_each_match() -> None:
    net = Net(type_=TensorType("int8", (1, 4, 8, 8)))
    shared = quantised(net, net.x[0])
    weights = [quantised(net, net.const(np.ones((4, 4, 1, 1)), "int8")) for _ in range(2)]
    graph = net.done(*(net.Relu(net.Conv(shared, w)) for w in weights))
    made = merge(graph, qconv)
    assert [n.attrs["ops"] for n in made] == [["DequantizeLinear", "DequantizeLinear", "Conv", "Relu"]] * 2
    assert len(graph) == 2, "nothing is left of the shared node"
    assert not graph.remarks


def test_the_original_stays_for_others() -> None:
    net = Net(type_=TensorType("int8", (1, 4, 8, 8)))
    shared = quantised(net, net.x[0])
    weight = quantised(net, net.const(np.ones((4, 4, 1, 1)), "int8"))
    graph = net.done(net.Relu(net.Conv(shared, weight)), net.Neg(shared), shared)
    (node,) = merge(graph, qconv)
    assert sorted(ops_of(graph)) == ["DequantizeLinear", "Neg", "npu.qconv"]
    assert node.inputs[0] is net.x[0]


def test_a_chain_of_cheap_producers_is_copied_whole_or_not_at_all() -> None:
    def cast_relu_dense(x, w=P.const):
        return P.MatMul(P.Relu(P.Cast(x, to=1)), w)

    def dense_relu_dense(x, w=P.const, v=P.const):
        return P.MatMul(P.Relu(P.MatMul(x, w)), v)

    net = Net(type_=TensorType("float16", (2, 4)))
    relu = net.Relu(net.Cast(net.x[0], to=1))
    graph = net.done(net.MatMul(relu, SQUARE), net.MatMul(relu, SQUARE), relu)
    made = merge(graph, cast_relu_dense)
    assert [n.attrs["ops"] for n in made] == [["Cast", "Relu", "MatMul"]] * 2
    assert sorted(ops_of(graph)) == ["Cast", "Relu", *["npu.cast_relu_dense"] * 2]
    net = Net()
    relu = net.Relu(net.MatMul(net.x[0], SQUARE))
    graph = net.done(net.MatMul(relu, SQUARE), relu)
    assert merge(graph, dense_relu_dense) == [], "a copy of the Relu would leave the first product in use twice"


def test_what_costs_as_much_as_it_saves_is_not_copied() -> None:
    def add_relu(x, y):
        return P.Relu(x + y)

    net = Net(2)
    total = net.Add(*net.x)
    assert merge(net.done(net.Relu(total), total), add_relu) == []


def test_parameters_follow_the_pattern_whatever_the_spelling() -> None:
    parameters = []
    for swap in (False, True):
        net = Net(2)
        product = net.MatMul(net.x[0], SQUARE)
        total = net.Add(net.x[1], product) if swap else net.Add(product, net.x[1])
        (node,) = merge(net.done(net.Relu(total)), dense_add_relu)
        parameters.append([v.name for v in node.inputs])
    assert parameters == [["x0", "x1"]] * 2


def test_parameters_are_distinct() -> None:
    net = Net()
    graph = net.done(net.Relu(net.Add(net.MatMul(net.x[0], SQUARE), net.x[0])))
    (node,) = merge(graph, dense_add_relu)
    assert node.inputs == (net.x[0],)


def test_constants_are_bound_or_become_parameters_as_the_pattern_says() -> None:
    def bound(x, w=P.const, b=P.any):
        return P.MatMul(x, w) + b

    net = Net()
    bias = net.const([1, 2, 3, 4])
    weight = net.const(SQUARE)
    graph = net.done(net.Add(bias, net.MatMul(net.x[0], weight)))
    (node,) = merge(graph, bound)
    assert node.inputs == (net.x[0], bias)
    assert bias in graph.constants
    assert weight not in graph.constants
    (held,) = node.body.constants
    assert held.const is weight.const
