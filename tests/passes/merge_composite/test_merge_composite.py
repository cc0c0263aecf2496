"""Every promise of composite merging, one test each."""

from __future__ import annotations

import pytest

from tests.passes.merge_composite.tools import SQUARE, conv_relu, dense, dense_add_relu, dense_relu, merge, ops_of
from tests.rewrite.build import IMAGE, TYPE, Net
from tinycomp.ir import Graph
from tinycomp.ir.equality import difference
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.rewrite import Composite, P, partition, pattern, reject
from tinycomp.target import Target


def test_a_composite_is_one_atomic_node() -> None:
    net = Net(type_=IMAGE)
    graph = net.done(net.Neg(net.Relu(net.conv(net.x[0]))))
    (node,) = merge(graph, conv_relu)
    assert (node.op, node.domain, node.version, node.target) == ("npu.conv_relu", "tinycomp.composite", 1, "npu")
    assert node.attrs == {"ops": ["Conv", "Relu"]}
    assert node.sources == ("conv1", "relu2")
    assert node.inputs == (net.x[0],)
    assert ops_of(node.body) == ["Conv", "Relu"]
    assert ops_of(graph) == ["npu.conv_relu", "Neg"]


def test_it_takes_a_target_or_its_name_says_whether_anything_changed() -> None:
    npu = Target("npu")

    @npu.composite
    def fused(x, w=P.const):
        return P.Relu(P.MatMul(x, w))

    @fused.check
    def _(m):
        return m.x.type.rank == 2 or reject("rank 2 only")

    net = Net()
    graph = net.done(net.Relu(net.MatMul(net.x[0], SQUARE)))
    assert MergeComposite(npu).run(graph)
    assert not MergeComposite(npu).run(graph)
    assert ops_of(graph) == ["npu.fused"]


def test_earlier_patterns_win() -> None:
    for order in ([dense, dense_relu], [dense_relu, dense]):
        net = Net()
        graph = net.done(net.Relu(net.MatMul(net.x[0], SQUARE)))
        (node,) = merge(graph, *order)
        assert node.op == f"npu.{order[0].__name__}"


def test_roots_are_tried_from_the_outputs_back() -> None:
    def pair(x):
        return P.Neg(P.Neg(x))

    net = Net()
    graph = net.done(net.Neg(net.Neg(net.Neg(net.x[0]))))
    (node,) = merge(graph, pair)
    assert node.sources == ("neg2", "neg3")


def test_a_refused_match_reserves_nothing() -> None:
    """The predicate refuses the longer pattern; the shorter one still gets the nodes that it would have taken."""
    longer = Composite.trace(dense_add_relu, target="npu")
    longer.check(lambda m: reject("not on Sundays"))
    net = Net(2)
    graph = net.done(net.Relu(net.Add(net.MatMul(net.x[0], SQUARE), net.x[1])))
    (node,) = merge(graph, longer, dense)
    assert node.op == "npu.dense"
    assert [r.reason for r in graph.remarks] == ["not on Sundays"]


def test_a_predicate_no_makes_room_within_one_pattern() -> None:
    """Two overlapping roots of one pattern: the one nearer to the output is refused, the other is not."""
    fussy = Composite.trace(lambda x: P.Neg(P.Neg(x)), target="npu", name="pair")
    fussy.check(lambda m: m.root.label != "neg3" or reject("no neg3"))
    net = Net()
    graph = net.done(net.Neg(net.Neg(net.Neg(net.x[0]))))
    (node,) = merge(graph, fussy)
    assert node.sources == ("neg1", "neg2")


def test_interior_values_may_not_be_used_outside() -> None:
    net = Net(2)
    product = net.MatMul(net.x[0], SQUARE)
    graph = net.done(net.Relu(net.Add(product, net.x[1])), net.Neg(product))
    assert merge(graph, dense_add_relu) == []
    assert graph.remarks[0].reason == "the result of matmul1 is also used by neg4"


def test_graph_outputs_are_uses() -> None:
    net = Net()
    product = net.MatMul(net.x[0], SQUARE)
    graph = net.done(net.Relu(product), product)
    assert merge(graph, dense_relu) == []
    (remark,) = graph.remarks
    assert remark.reason == "the result of matmul1 is also an output of the graph"
    assert (remark.stage, remark.target, remark.rule, remark.progress) == (
        "merge-composite", "npu", "npu.dense_relu", 1.0,
    )  # fmt: skip
    assert remark.sources == ("relu2", "matmul1")


def test_captures_are_uses() -> None:
    net = Net()
    product = net.MatMul(net.x[0], SQUARE)
    cond = net.Greater(net.ReduceSum(net.x[0], keepdims=0), 0.0)
    bodies = {name: unary_body("Neg") for name in ("then_branch", "else_branch")}
    node = net.graph.add("If", [cond, product], bodies=bodies, captures=1, sources=["if"])
    graph = net.done(net.Relu(product), node.output)
    assert merge(graph, dense_relu) == []
    assert graph.remarks[0].reason == "the result of matmul1 is also used by if"


def test_optional_parts_fall_back_when_their_value_escapes() -> None:
    """Two convolutions share a Pad: each matches without it."""

    def padded(x, w=P.const):
        return P.Relu(P.Conv(P.optional(P.Pad, x, P.const, ...), w))

    net = Net(type_=IMAGE)
    pads = net.const([0, 0, 1, 1, 0, 0, 1, 1], "int64")
    shared, own = net.Pad(net.x[0], pads), net.Pad(net.x[0], pads)
    values = [net.Relu(net.conv(v, size=3)) for v in (shared, shared, own)]
    graph = net.done(*values)
    assert [n.attrs["ops"] for n in merge(graph, padded)] == [
        ["Conv", "Relu"],
        ["Conv", "Relu"],
        ["Pad", "Conv", "Relu"],
    ]
    assert not graph.remarks


def test_the_choice_goes_on_over_alternatives_and_operand_orders() -> None:
    """Either product could be the interior one; only one of them is not used elsewhere."""
    net = Net()
    kept, free = net.MatMul(net.x[0], SQUARE), net.MatMul(net.x[0], SQUARE)
    graph = net.done(net.Relu(net.Add(kept, free)), kept)
    (node,) = merge(graph, dense_add_relu)
    assert node.sources == ("matmul2", "add3", "relu4")


def test_taken_nodes_take_part_in_the_choice() -> None:
    """The first match takes one product, so that the second one's sum turns to its other operand."""
    net = Net()
    shared = net.MatMul(net.x[0], SQUARE)
    graph = net.done(net.Relu(net.Add(net.MatMul(net.x[0], SQUARE), shared)), net.Neg(shared))
    made = merge(graph, lambda x, w=P.const: P.Neg(P.MatMul(x, w)), dense_add_relu)
    assert [n.op for n in made] == ["npu.dense_add_relu"]


def test_a_node_that_is_no_root_of_a_pattern_for_many_operators_needs_no_remark() -> None:
    net = Net()
    graph = net.done(net.Softmax(net.MatMul(net.x[0], SQUARE)), net.Neg(net.Abs(net.x[0])))
    merge(graph, lambda x: P.elementwise(P.Relu(x)))
    assert {s for r in graph.remarks for s in r.sources} == {"neg4", "abs3"}


def test_a_lost_node_is_named_with_who_has_it() -> None:
    net = Net()
    product = net.Neg(net.MatMul(net.x[0], SQUARE))
    graph = net.done(net.Relu(product))

    def neg_first(x):
        return P.Neg(x)

    def whole(x, w=P.const):
        return P.Relu(P.Neg(P.MatMul(x, w)))

    merge(graph, neg_first, whole)
    assert [(r.rule, r.reason) for r in graph.remarks] == [("npu.whole", "lost neg2 to npu.neg_first")]


def test_swish_like_diamonds_are_legal() -> None:
    def swish(x, w=P.const):
        inner = P.Conv(x, w)
        return inner * P.Sigmoid(inner)

    net = Net(type_=IMAGE)
    conv = net.conv(net.x[0])
    (node,) = merge(net.done(net.Mul(net.Sigmoid(conv), conv)), swish)
    assert node.attrs["ops"] == ["Conv", "Sigmoid", "Mul"]
    assert node.inputs == (net.x[0],)


def test_several_results_and_skipped_ones() -> None:
    def both(x):
        halves = P.Split(x, ...)
        return P.Neg(halves[0]), P.Abs(halves[1])

    net = Net()
    halves = net.node("Split", net.x[0], outputs=2, axis=1).outputs
    negated, absolute = net.Neg(halves[0]), net.Abs(halves[1])
    graph = net.done(net.Concat(absolute, negated, axis=1))
    (node,) = merge(graph, both)
    assert set(node.outputs) == {negated, absolute}
    assert ops_of(graph) == ["npu.both", "Concat"]


def test_a_match_that_would_close_a_cycle_is_refused() -> None:
    def both(x, y):
        inner = P.Relu(x)
        return P.Neg(inner), P.Mul(inner, y)

    net = Net()
    inner = net.Relu(net.x[0])
    negated = net.Neg(inner)
    graph = net.done(net.Mul(inner, net.Softmax(negated)))
    assert merge(graph, both) == []
    assert graph.remarks[0].reason == "would close a cycle through softmax3"


def test_matches_that_close_a_cycle_only_together_are_not_both_made() -> None:
    """Each pair alone is fine; together each would need a result of the other."""

    def sides(x, y):
        shared = P.Identity(x)
        return P.Exp(P.Add(shared, y)), P.Softsign(shared)

    net = Net(2)
    a, b = (net.Identity(v) for v in net.x)
    left_late, left_early = net.Exp(net.Add(a, net.Softsign(b))), net.Softsign(a)
    right_late = net.Exp(net.Add(b, left_early))
    graph = net.done(left_late, right_late)
    made = merge(graph, sides)
    assert len(made) == 1
    assert [r.reason.split()[:4] for r in graph.remarks] == [["would", "close", "a", "cycle"]]


def unary_body(*ops: str, opset: int = 17) -> Graph:
    body = Graph(opsets={"": opset})
    value = body.add_input("inner", TYPE)
    for index, op in enumerate(ops):
        operands = [value, body.add_const(SQUARE)] if op == "MatMul" else [value]
        value = body.add(op, operands, sources=[f"inner_{op.lower()}{index}"]).output
    body.set_outputs([value])
    return body


def test_bodies_and_functions_are_merged_in_their_own_scope() -> None:
    net = Net()
    cond = net.Greater(net.ReduceSum(net.x[0], keepdims=0), 0.0)
    bodies = {"then_branch": unary_body("MatMul", "Relu"), "else_branch": unary_body("Relu")}
    branch = net.graph.add("If", [cond, net.x[0]], bodies=bodies, captures=1)
    call = net.graph.add("f", [branch.output], domain="local", bodies={"body": unary_body("MatMul", "Relu")})
    graph = net.done(call.output)
    assert len(merge(graph, dense_relu)) == 2
    assert ops_of(branch.bodies["then_branch"]) == ["npu.dense_relu"]
    assert ops_of(call.body) == ["npu.dense_relu"]
    assert [r.reason for r in graph.remarks] == ["expected MatMul, found graph input inner"]


def test_claimed_nodes_and_their_bodies_are_left_alone() -> None:
    net = Net()
    claimed = net.graph.add(
        "f", [net.x[0]], domain="local", bodies={"body": unary_body("MatMul", "Relu")}, target="dsp"
    )
    product = net.MatMul(claimed.output, SQUARE)
    product.producer.target = "dsp"
    graph = net.done(net.Relu(product))
    assert merge(graph, dense_relu) == []
    assert graph.remarks[0].reason == "matmul1 belongs to dsp already"


def test_composites_of_the_same_target_nest() -> None:
    def block(x, y):
        return P.composite("npu.dense_relu", x) + P.composite("npu.dense_relu", y)

    net = Net(2)
    parts = [net.Relu(net.MatMul(v, SQUARE)) for v in net.x]
    graph = net.done(net.Add(*parts))
    merge(graph, dense_relu, block)
    (outer,) = graph.nodes
    assert outer.attrs["ops"] == ["npu.dense_relu", "npu.dense_relu", "Add"]
    assert ops_of(outer.body.nodes[0].body) == ["MatMul", "Relu"]
    assert outer.sources == ("matmul1", "relu2", "matmul3", "relu4", "add5")
    foreign = Composite.trace(block, target="dsp")
    net = Net(2)
    graph = net.done(net.Add(*(net.Relu(net.MatMul(v, SQUARE)) for v in net.x)))
    merge(graph, dense_relu)
    assert all(n.op != "dsp.block" for n in merge(graph, foreign))


@pytest.mark.parametrize(("op", "domain"), [("Identity", ""), ("StopFusion", "tinycomp")])
def test_no_ops_between_do_not_block_a_composite(op: str, domain: str) -> None:
    net = Net()
    graph = net.done(net.Relu(net.node(op, net.MatMul(net.x[0], SQUARE), domain=domain).output))
    (node,) = merge(graph, dense_relu)
    assert node.attrs["ops"] == ["MatMul", op, "Relu"]


def test_failures_tell_how_far_they_came() -> None:
    net = Net(type_=IMAGE)
    graph = net.done(net.Relu(net.Clip(net.x[0])), net.Relu(net.Conv(net.x[0], net.x[0])))
    merge(graph, conv_relu)
    assert [(r.sources, r.reason, r.progress) for r in graph.remarks] == [
        (("relu4", "conv3"), "expected a constant, found graph input x0", 1.0),
        (("relu2",), "expected Conv, found Clip at clip1", 0.5),
    ]


def test_partitioning_by_one_pattern() -> None:
    net = Net()
    graph = net.done(net.Relu(net.MatMul(net.x[0], SQUARE)))
    before = graph.clone()
    (node,) = partition(graph, pattern(dense_relu), "fused")
    assert (node.op, node.target) == ("fused", None)
    graph.inline(node)
    assert difference(before, graph, sources=True) is None
