"""What holds for composite merging on every graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.calls import calls_of
from tests.graphs import decorated_graphs, graphs
from tests.rewrite.build import Net
from tinycomp.ir import Graph, Value
from tinycomp.ir.equality import difference
from tinycomp.ir.text.printer import attr_text
from tinycomp.ir.verify import verify
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.rewrite import Composite, Match, P

RELAXED = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
UNARY = {"Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Softsign"}


def unary_chain(x):
    return P.op(UNARY, P.op(UNARY, x))


def sum_of_unary(x, y):
    return P.op(UNARY, x) + y


def gated(x):
    inner = P.op(UNARY | {"Add", "Sub"}, x, ...)
    return P.Mul(inner, P.any_of(P.op(UNARY, inner), inner))


def dense(x, w=P.const):
    return P.repeat(P.elementwise, P.MatMul(x, w), at_least=0, at_most=2)


def branches(x):
    return P.op(UNARY, x), P.op({"Add", "Mul", "Sub"}, x, P.any)


def halves(x):
    first, second = P.Split(x, ...).results(2)
    return P.Concat(second, first)


def around_diamond(x):
    return P.dominates(P.op(UNARY, x), P.elementwise, {"Add", "Mul"})


PATTERNS = [unary_chain, sum_of_unary, gated, dense, branches, halves, around_diamond]


def composites(chosen: list[Any]) -> list[Composite]:
    return [Composite.trace(f, target="npu") for f in chosen]


def meaning(graph: Graph) -> list[int]:
    """Number the results by what they compute: equal numbers are equal expressions, however often they are written."""
    numbers: dict[Any, int] = {}
    known: dict[Value, int] = {}

    def number(key: Any) -> int:
        return numbers.setdefault(key, len(numbers))

    def of(value: Value | None) -> int:
        if value is None:
            return -1
        if value.const is not None:
            return number(("const", str(value.type), value.const.tobytes()))
        return known[value]

    for value in graph.inputs:
        known[value] = number(("input", value.name))
    for node in sorted_nodes(graph):
        attrs = tuple(sorted((k, attr_text(v)) for k, v in node.attrs.items()))
        bodies = tuple((k, str(b)) for k, b in node.bodies.items())
        key = (node.qualified_op, attrs, bodies, tuple(of(v) for v in node.inputs))
        for index, value in enumerate(node.outputs):
            known[value] = number((key, index))
    return [of(v) for v in graph.outputs]


def sorted_nodes(graph: Graph) -> list[Any]:
    """A topological order that does not depend on positions, so that numbers agree between two graphs."""
    order: dict[Any, None] = {}
    stack = [v.producer for v in reversed(graph.outputs) if v.producer is not None]
    while stack:
        node = stack[-1]
        waiting = [v.producer for v in node.inputs if v is not None and v.producer and v.producer not in order]
        if waiting:
            stack += reversed(waiting)
        else:
            order.setdefault(stack.pop())
    return list(order)


def inline_all(graph: Graph) -> Graph:
    for node in graph.nodes:
        if node.is_composite and node.target == "npu":
            graph.inline(node)
    return graph


chosen_patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4, unique=True)


@RELAXED
@given(graphs(max_nodes=16), chosen_patterns)
def test_merging_keeps_the_meaning_and_every_promise(graph: Graph, chosen: list[Any]) -> None:
    before = graph.clone()
    table = composites(chosen)
    MergeComposite(table).run(graph)
    verify(graph)
    by_name = {c.qualified_name: c for c in table}
    for node in graph.nodes:
        if node.is_composite:
            assert node.target == "npu"
            assert node.attrs["ops"] == [n.op for n in node.body.nodes]
            assert is_match(by_name[node.op], node.body), node.body
            assert len(set(node.inputs)) == len(node.inputs)
    inline_all(graph)
    verify(graph)
    assert meaning(graph) == meaning(before)
    if len(graph) == len(before):
        assert difference(before, graph, sources=True) is None


def is_match(composite: Composite, body: Graph) -> bool:
    """Whether the pattern matches the whole body again."""
    found = (m for n in body.nodes for m in composite.pattern.matches(n, body))
    return any(isinstance(m, Match) and len(m.nodes) == len(body) for m in found)


@pytest.mark.long
@RELAXED
@given(decorated_graphs(), chosen_patterns)
def test_odd_graphs_survive(graph: Graph, chosen: list[Any]) -> None:
    before = graph.clone()
    MergeComposite(composites(chosen)).run(graph)
    verify(graph)
    kept = [n.target for _, n in before.walk() if n.target]
    now = [n.target for _, n in graph.walk() if n.target and not n.op.startswith("npu.")]
    assert sorted(kept) == sorted(now), "claimed nodes are left alone"


@pytest.mark.long
@RELAXED
@given(graphs(max_nodes=16), chosen_patterns)
def test_two_runs_agree(graph: Graph, chosen: list[Any]) -> None:
    twin = graph.clone()
    MergeComposite(composites(chosen)).run(graph)
    MergeComposite(composites(chosen)).run(twin)
    assert str(graph) == str(twin)
    assert graph.remarks == twin.remarks


def stack(blocks: int) -> Graph:
    """Residual blocks of a matrix product, a bias, an activation and a sum."""
    net = Net()
    weight, bias = net.const(np.ones((4, 4))), net.const([1, 2, 3, 4])
    value = net.x[0]
    for _ in range(blocks):
        value = net.Add(net.Relu(net.Add(net.MatMul(value, weight), bias)), value)
    return net.done(value)


@pytest.mark.long
@pytest.mark.parametrize("several", [False, True])
def test_work_grows_with_the_graph(several: bool) -> None:
    def block(x, w=P.const, b=P.const):
        inner = P.MatMul(x, w) + b
        return (inner, P.Relu(inner)) if several else P.Relu(inner)

    def calls(blocks: int) -> int:
        graph = stack(blocks)
        count = calls_of(lambda: MergeComposite(composites([block, unary_chain, dense])).run(graph))
        assert sum(n.is_composite for n in graph.nodes) == blocks
        return count

    assert calls(800) < 10 * calls(100)
