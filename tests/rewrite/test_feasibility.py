from __future__ import annotations

import math

import pytest

from tests.rewrite.build import Net, root
from tinycomp.ir import Graph
from tinycomp.rewrite import P, Pattern, pattern
from tinycomp.rewrite.matcher import Feasibility, Search, may_start


@pattern
def gelu(x):
    bell = P.Erf((x / P.const(math.sqrt(2.0))) | (x * P.const(math.sqrt(0.5)))) + P.const(1.0)
    return (x * bell * P.const(0.5)) | (x * P.const(0.5) * bell) | (x * (bell * P.const(0.5)))


@pattern
def relu_tail(x):
    start = P.Relu(x)
    return P.any_of(*(wrap(P.optional(P.Add, start, P.any)) for wrap in (P.Exp, P.Tanh, lambda v: v * P.Sigmoid(v))))


@pattern(through=False)
def strict_square(x):
    inner = P.Relu(x)
    return inner * inner


@pattern
def second_half(x):
    return P.Split(x, ...)[1] + P.const


def gelu_net(half: float = 0.5, order: int = 0) -> Graph:
    net = Net()
    x = net.Identity(net.x[0])
    bell = net.Add(net.Erf(net.Div(x, math.sqrt(2.0))), 1.0)
    spelled = [lambda: net.Mul(net.Mul(bell, x), half), lambda: net.Mul(bell, net.Mul(half, x))]
    return net.done(net.Mul(x, net.Mul(half, bell)) if order == 2 else spelled[order]())


def relu_net(tail: str, added: bool) -> Graph:
    net = Net(1)
    y = net.Relu(net.x[0])
    y = net.Add(y, net.x[0]) if added else net.Identity(y)
    return net.done(net.Mul(y, net.Sigmoid(y)) if tail == "Mul" else getattr(net, tail)(y))


def split_net() -> Graph:
    net = Net()
    halves = net.node("Split", net.x[0], net.const([2, 2], "int64"), outputs=2, axis=1).outputs
    return net.done(net.Add(halves[1], net.const(1.0)), net.Add(halves[0], net.const(2.0)))


GRAPHS = [
    *(gelu_net(order=order) for order in range(3)),
    gelu_net(half=0.25),
    *(relu_net(tail, added) for tail in ("Exp", "Tanh", "Mul") for added in (False, True)),
    split_net(),
]


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
@pytest.mark.parametrize("wanted", [gelu, relu_tail, strict_square, second_half], ids=lambda p: p.name)
def test_a_spared_search_finds_the_same_matches_in_the_same_order(graph: Graph, wanted: Pattern) -> None:
    for node in graph.nodes:
        everything = [m.matched for m in Search(wanted, node, graph)]
        assert [m.matched for m in Search(wanted, node, graph, Feasibility(wanted))] == everything
        assert may_start(wanted, node, Feasibility(wanted)) or not everything
        assert wanted.can_start_at(node) or not everything


def test_operators_and_constants_rule_a_root_out() -> None:
    assert may_start(gelu, root(gelu_net()), Feasibility(gelu))
    assert not may_start(gelu, root(gelu_net(half=0.25)), Feasibility(gelu))
    assert not may_start(relu_tail, root(gelu_net()), Feasibility(relu_tail))


def test_a_no_op_is_looked_through_only_where_the_pattern_may() -> None:
    net = Net()
    relu = net.Relu(net.x[0])
    graph = net.done(net.Mul(net.Identity(relu), net.Identity(relu)))
    open_square = Pattern("square", strict_square.outputs, strict_square.arguments)
    assert may_start(open_square, root(graph), Feasibility(open_square))
    assert not may_start(strict_square, root(graph), Feasibility(strict_square))


def test_a_result_of_another_number_is_ruled_out() -> None:
    first, second = [n for n in split_net().nodes if n.op == "Add"]
    found = [may_start(second_half, n, Feasibility(second_half)) for n in (first, second)]
    assert sorted(found) == [False, True]


def test_patterns_that_repeat_are_not_judged() -> None:
    @pattern
    def chain(x):
        return P.Tanh(P.repeat("Relu", x))

    net = Net()
    graph = net.done(net.Tanh(net.Sigmoid(net.x[0])))
    assert may_start(chain, root(graph), Feasibility(chain))
    assert not chain.match(root(graph))


def test_a_deep_pattern_is_judged_without_deep_recursion() -> None:
    @pattern
    def tower(x):
        for _ in range(600):
            x = P.Relu(x)
        return x

    net = Net()
    value = net.Sigmoid(net.x[0])
    for _ in range(600):
        value = net.Relu(value)
    assert tower.match(root(net.done(value)))


def test_the_reason_names_the_furthest_blind_alley_all_the_same() -> None:
    answer = gelu.match(root(gelu_net(half=0.25)))
    assert not answer
    assert "0.5" in answer.reason
