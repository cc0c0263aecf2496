from __future__ import annotations

import pytest

from tests.rewrite.build import IMAGE, TYPE, Net, root
from tests.rewrite.test_operators import why
from tinycomp.ir import Graph
from tinycomp.ir.verify import verify
from tinycomp.rewrite import P, pattern
from tinycomp.rewrite.composites import partition


def test_one_sub_pattern_object_is_one_node() -> None:
    @pattern
    def swish(x):
        inner = P.MatMul(x, P.const)
        return inner * P.Sigmoid(inner)

    weight = [[1.0] * 4] * 4
    net = Net()
    product = net.MatMul(net.x[0], weight)
    assert swish.match(root(net.done(net.Mul(product, net.Sigmoid(product)))))
    assert swish.match(root(net.done(net.Mul(net.Sigmoid(product), product))))
    other = net.MatMul(net.x[0], weight)
    graph = net.done(net.Mul(other, net.Sigmoid(product)))
    assert why(swish, graph).startswith("expected MatMul at ")


def test_one_argument_is_one_value() -> None:
    @pattern
    def difference_of_squares(x, y):
        return (x + y) * (x - y)

    net = Net(3)
    a, b, c = net.x
    match = difference_of_squares.match(root(net.done(net.Mul(net.Add(b, a), net.Sub(a, b)))))
    assert match.free == (a, b)
    graph = net.done(net.Mul(net.Add(a, b), net.Sub(a, c)))
    assert "found graph input" in why(difference_of_squares, graph)
    twice = net.done(net.Mul(net.Add(a, a), net.Sub(a, a)))
    assert difference_of_squares.match(root(twice)).free == (a,)


def test_free_values_come_in_argument_order_whatever_the_spelling() -> None:
    @pattern
    def fused(x, b, s):
        return P.Mul(s, P.Add(b, x.where(uses=2)))

    for swap in (False, True):
        net = Net(3)
        x, b, s = net.x
        total = net.Add(x, b) if swap else net.Add(b, x)
        graph = net.done(net.Mul(total, s) if swap else net.Mul(s, total), net.Relu(x))
        assert fused.match(root(graph, "Mul"), graph).free == (x, b, s)


def test_optional_parts_are_preferred_and_given_up() -> None:
    @pattern
    def block(x, w):
        return P.optional(P.Relu, P.Conv(P.optional(P.Pad, x, ...), w))

    net = Net(type_=IMAGE)
    padded = net.Pad(net.x[0], net.const([0, 0, 1, 1, 0, 0, 1, 1], "int64"))
    graph = net.done(net.Relu(net.conv(padded)))
    assert [n.op for n in block.match(root(graph)).nodes] == ["Pad", "Conv", "Relu"]
    assert [n.op for n in block.match(root(graph, "Conv")).nodes] == ["Pad", "Conv"]
    tries = list(block.matches(root(graph)))
    assert [len(m.nodes) for m in tries] == [3, 2]
    assert block.heads == {("", "Conv"), ("", "Relu")}


def both_body(x):
    return P.Neg(P.Relu(x))


@pytest.mark.parametrize("barrier", ["Identity", "StopFusion", "Dropout"])
def test_no_ops_between_two_matched_nodes_are_looked_through(barrier: str) -> None:
    both, strict = pattern(both_body), pattern(through=False)(both_body)
    net = Net()
    domain = "tinycomp" if barrier == "StopFusion" else ""
    inner = net.Relu(net.node("Identity", net.x[0]).output)
    middle = net.node(barrier, net.node(barrier, inner, domain=domain).output, domain=domain).output
    graph = net.done(net.Neg(middle))
    match = both.match(root(graph))
    assert [n.op for n in match.nodes] == ["Relu", barrier, barrier, "Neg"]
    assert match.x.producer.op == "Identity", "a free value is taken as it is"
    assert "expected Relu, found" in why(strict, graph)
    assert not both.match(root(graph, barrier)), "a no-op above the root does not belong to the match"


def test_through_can_name_operators() -> None:
    @pattern(through={"StopFusion"})
    def both(x):
        return P.Neg(P.Relu(x))

    net = Net()
    assert both.match(root(net.done(net.Neg(net.StopFusion(net.Relu(net.x[0]), domain="tinycomp")))))
    assert not both.match(root(net.done(net.Neg(net.Identity(net.Relu(net.x[0]))))))


SWISH_OPERANDS = {
    "one": lambda v, stop: (v, stop(v)),
    "other": lambda v, stop: (stop(v), v),
    "both": lambda v, stop: (stop(v), stop(v)),
    "several": lambda v, stop: (stop(stop(v)), stop(v)),
    "shared": lambda v, stop: (lambda s: (stop(s), stop(s)))(stop(v)),
}


@pytest.mark.parametrize("barrier", ["Identity", "StopFusion", "Dropout"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("place", SWISH_OPERANDS)
def test_no_ops_before_one_use_of_a_value_are_looked_through(place: str, swapped: bool, barrier: str) -> None:
    @pattern
    def swish(x):
        return P.Mul(P.Sigmoid(x), x) if swapped else P.Mul(x, P.Sigmoid(x))

    net = Net()
    domain = "tinycomp" if barrier == "StopFusion" else ""
    first, second = SWISH_OPERANDS[place](net.Relu(net.x[0]), lambda v: net.node(barrier, v, domain=domain).output)
    graph = net.done(net.Mul(first, net.Sigmoid(second)))
    match = swish.match(root(graph))
    assert match
    assert match.free == (match.x,)
    assert match.x.producer.op == (barrier if place == "shared" else "Relu")
    (made,) = partition(graph, swish, target="npu")
    verify(graph)
    assert [v.producer.op for v in made.inputs] == [match.x.producer.op]
    assert {n.op for n in made.body.nodes} == {"Mul", "Sigmoid", barrier}


def test_a_value_that_is_another_one_is_no_repeated_one() -> None:
    @pattern
    def swish(x):
        return P.Mul(x, P.Sigmoid(x))

    net = Net(2)
    graph = net.done(net.Mul(net.Identity(net.x[0]), net.Sigmoid(net.Identity(net.x[1]))))
    assert why(swish, graph) == "expected x (identity) again, found Identity at identity2"


def test_what_is_held_again_is_given_up_with_its_choice() -> None:
    @pattern
    def one_of_two(x, y):
        return P.Add(P.Mul(x, P.Sigmoid(x)), y) | P.Add(P.Mul(x, y), P.Neg(x))

    net = Net(2)
    stopped = net.Identity(net.x[0])
    graph = net.done(net.Add(net.Mul(stopped, net.x[1]), net.Neg(net.x[0])))
    match = one_of_two.match(root(graph))
    assert (match.x, match.y) == (net.x[0], net.x[1])
    assert sorted(n.op for n in match.nodes) == ["Add", "Identity", "Mul", "Neg"]


def test_a_dropout_that_trains_is_not_looked_through() -> None:
    net = Net()
    trained = net.Dropout(net.Relu(net.x[0]), 0.5, net.const(True, "bool"))
    asleep = net.Dropout(net.Relu(net.x[0]), 0.5, net.const(False, "bool"))
    both = pattern(both_body)
    graph = net.done(net.Neg(trained), net.Neg(asleep))
    assert [bool(both.match(n)) for n in graph.nodes if n.op == "Neg"] == [False, True]


def test_no_ops_can_be_asked_for_by_name() -> None:
    @pattern
    def stopped(x):
        return P.Neg(P.StopFusion(P.Relu(x)))

    net = Net()
    assert stopped.match(root(net.done(net.Neg(net.StopFusion(net.Relu(net.x[0]), domain="tinycomp")))))
    assert not stopped.match(root(net.done(net.Neg(net.Relu(net.x[0])))))


def chain(*ops: str) -> Graph:
    net = Net()
    value = net.MatMul(net.x[0], [[1.0] * 4] * 4)
    for op in ops:
        value = net.Add(3.0, value) if op == "Add" else getattr(net, op)(value)
    return net.done(value)


def test_repetition_takes_the_longest_chain() -> None:
    @pattern
    def epilogue(x, w):
        return P.repeat(P.elementwise, P.MatMul(x, w))

    match = epilogue.match(root(chain("Relu", "Add", "Tanh")))
    assert [n.op for n in match.nodes] == ["MatMul", "Relu", "Add", "Tanh"]
    assert [v.name for v in match.free] == ["x0", "const", "const_1"], "operands beside the chain are parameters"
    assert "expected" in why(epilogue, chain("Relu", "Softmax", "Relu"))
    assert epilogue.heads is None
    assert not epilogue.match(root(chain()))


def test_repetition_by_names_and_bounds() -> None:
    @pattern
    def two(x):
        return P.repeat({"Relu", "Neg"}, x, at_least=2, at_most=3)

    sizes = {n: two.match(root(chain(*["Relu"] * n))) for n in range(1, 6)}
    assert {n: len(m.nodes) if m else 0 for n, m in sizes.items()} == {1: 0, 2: 2, 3: 3, 4: 3, 5: 3}
    assert two.heads == {("", "Relu"), ("", "Neg")}


def test_repetition_gives_links_back() -> None:
    @pattern
    def ends(x):
        return P.repeat("Relu", P.Relu(P.Neg(x)))

    assert len(ends.match(root(chain("Neg", "Relu", "Relu", "Relu"))).nodes) == 4


def test_a_long_chain_needs_no_recursion() -> None:
    @pattern
    def all_of_it(x, w):
        return P.repeat({"Relu"}, P.MatMul(x, w))

    assert len(all_of_it.match(root(chain(*["Relu"] * 3000))).nodes) == 3001


def test_dominance_takes_every_path_between_two_nodes() -> None:
    @pattern
    def diamond(x, w):
        return P.dominates(P.MatMul(x, w), P.elementwise, "Add")

    net = Net()
    top = net.MatMul(net.x[0], [[1.0] * 4] * 4)
    left, right = net.Relu(net.Tanh(top)), net.Mul(net.Abs(top), 2.0)
    graph = net.done(net.Add(left, right))
    match = diamond.match(root(graph), graph)
    assert sorted(n.op for n in match.nodes) == ["Abs", "Add", "MatMul", "Mul", "Relu", "Tanh"]
    assert [v.name for v in match.free] == ["x0", "const", "const_1"]
    net.done(match.root.output, left)
    assert diamond.match(root(graph, "Add"), graph).reason == (
        "expected all paths to Add at add6 to come from one node"
    )


def test_dominance_wants_all_paths_to_be_of_the_kind() -> None:
    @pattern
    def diamond(x, w):
        return P.dominates(P.MatMul(x, w), {"Relu", "Tanh"}, P.Add(...))

    def net_with(op: str) -> Graph:
        net = Net()
        top = net.MatMul(net.x[0], [[1.0] * 4] * 4)
        return net.done(net.Add(net.Relu(top), getattr(net, op)(top)))

    assert len(diamond.match(root(net_with("Tanh"))).nodes) == 4
    assert not diamond.match(root(net_with("Softmax")))


def test_several_results() -> None:
    @pattern
    def both(x):
        inner = P.Relu(x)
        return P.Neg(inner), P.Abs(inner)

    net = Net()
    inner = net.Relu(net.x[0])
    away = net.Abs(net.x[0])
    negated, absolute = net.Neg(inner), net.Abs(net.Identity(inner))
    graph = net.done(negated, absolute, away)
    match = both.match(negated.producer, graph)
    assert match.outputs == (negated, absolute)
    assert {n.op for n in match.nodes} == {"Relu", "Neg", "Abs", "Identity"}
    alone = net.done(net.Neg(net.Relu(net.x[0])))
    assert why(both, alone) == "expected Abs on another branch, found none"


def test_several_results_of_one_node_and_of_equal_branches() -> None:
    @pattern
    def halves(x):
        return P.Split(x, ...).results(2)

    @pattern
    def twins(x):
        return P.Relu(P.MatMul(x, P.any)), P.Relu(P.MatMul(x, P.any))

    net = Net()
    split = net.node("Split", net.x[0], outputs=2, axis=1)
    assert halves.match(split).outputs == split.outputs
    weight = net.const([[1.0] * 4] * 4)
    first, second = net.Relu(net.MatMul(net.x[0], weight)), net.Relu(net.MatMul(net.x[0], weight))
    graph = net.done(first, second)
    assert twins.match(first.producer, graph).outputs == (first, second)
    assert twins.match(second.producer, graph).outputs == (second, first)


def branch(op: str) -> Graph:
    body = Graph(opsets={"": 17})
    body.set_outputs([body.add(op, [body.add_input("inner", TYPE)]).output])
    return body


def test_conditionals_are_matched_with_their_bodies() -> None:
    @pattern
    def gated(cond, x):
        return P.If(cond, then_branch=P.Relu(P.Neg(x)), else_branch=P.Abs(P.any))

    net = Net(2)
    cond = net.Greater(net.ReduceSum(net.x[0], keepdims=0), 0.0)
    negated = net.Neg(net.x[1])
    bodies = {"then_branch": branch("Relu"), "else_branch": branch("Abs")}
    node = net.graph.add("If", [cond, negated], bodies=bodies, captures=1, sources=["if"])
    graph = net.done(node.output)
    match = gated.match(node, graph)
    assert match.x is net.x[1], "a captured value is followed to the outer graph"
    assert [n.op for n in match.nodes] == ["Neg", "If"], "nodes of the bodies are part of the If"
    assert match.free == (cond, net.x[1])

    @pattern
    def other(cond):
        return P.If(cond, then_branch=P.Tanh(P.any))

    assert why(other, graph) == "expected Tanh, found Relu at relu"


def test_composites_are_operators() -> None:
    net = Net()
    inner = net.graph.add("npu.fused", [net.x[0]], domain="tinycomp.composite", bodies={"body": branch("Relu")})
    graph = net.done(net.Neg(inner.output))
    assert pattern(lambda x: P.Neg(P.composite("npu.fused", x))).match(root(graph))
    assert pattern(lambda x: P.Neg(P.op("npu.fused", x))).match(root(graph))
    assert pattern(lambda x: P.Neg(P.composite("npu.fused", ..., body=P.Relu(x)))).match(root(graph)).x is net.x[0]


def test_a_hopeless_search_ends_with_a_reason() -> None:
    """Thirty-one sums in a tree have two thousand million orders, and none of them fits the last leaf."""

    def tree(leaves: list[float]):
        half = len(leaves) // 2
        return tree(leaves[:half]) + tree(leaves[half:]) if half else P.const(leaves[0])

    net = Net()
    level = [net.const(7.0) for _ in range(31)] + [net.const(8.0)]
    while len(level) > 1:
        level = [net.Add(a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    graph = net.done(level[0])
    assert pattern(lambda: tree([7.0] * 31 + [8.0])).match(root(graph))
    assert why(pattern(lambda: tree([7.0] * 31 + [9.0])), graph) == "gave up after 20000 steps of backtracking"
