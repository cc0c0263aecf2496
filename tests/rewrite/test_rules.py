from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.build import IMAGE, TYPE, Net, root
from tinycomp.errors import PatternError
from tinycomp.ir import Graph, TensorType
from tinycomp.ir.verify import verify
from tinycomp.rewrite import P, RewriteRule, pattern, reject, replaces, rewrite, rule


def ops_of(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


@pattern
def matmul_add(x, w=P.const, b=P.const):
    return P.MatMul(x.where(rank=2), w) + b


def to_gemm(op, x, w, b):
    return op.Gemm(x, w, b)


def test_a_rule_replaces_a_match_and_keeps_its_history() -> None:
    net = Net()
    graph = net.done(net.Relu(net.Add(net.const([1, 2, 3]), net.MatMul(net.x[0], np.ones((4, 3))))))
    assert rewrite(graph, [RewriteRule(matmul_add, to_gemm)]) == 1
    verify(graph)
    assert ops_of(graph) == ["Gemm", "Relu"]
    gemm = graph.nodes[0]
    assert gemm.sources == ("matmul1", "add2")
    assert gemm.output.type == TensorType("float32", (2, 3))
    assert graph.output_names == ("out0",)


def test_interior_values_may_be_used_elsewhere() -> None:
    net = Net()
    product = net.MatMul(net.x[0], np.ones((4, 3)))
    graph = net.done(net.Add(product, net.const([1, 2, 3])), product)
    assert rewrite(graph, [RewriteRule(matmul_add, to_gemm)]) == 1
    verify(graph)
    assert sorted(ops_of(graph)) == ["Gemm", "MatMul"]


def test_numbers_attributes_matches_and_several_results() -> None:
    @pattern
    def halves(x):
        return P.Split(x, axis=P.attr("axis")).results(2)

    def swapped(op, x, axis, match):
        assert match.root.op == "Split"
        scaled = op.Mul(x, 2.0)
        assert scaled.producer.inputs[1].const.dtype == np.float32
        first, second = op.emit("Split", scaled, op.const([2, 2], "int64"), outputs=2, axis=axis)
        return first, second

    net = Net()
    split = net.node("Split", net.x[0], outputs=2, axis=1)
    graph = net.done(*split.outputs)
    assert rewrite(graph, [RewriteRule(halves, swapped)]) == 1
    verify(graph)
    assert ops_of(graph) == ["Mul", "Split"]


def test_a_check_or_a_replacement_can_decline_and_leaves_no_trace() -> None:
    @pattern
    def relu(x):
        return P.Relu(x)

    def decline(op, x):
        op.Neg(op.Add(x, 1.0))
        return reject("not today")

    net = Net()
    graph = net.done(net.Relu(net.x[0]))
    assert rewrite(graph, [RewriteRule(relu, decline)]) == 0
    assert rewrite(graph, [RewriteRule(relu, lambda op, x: op.Neg(x), check=lambda m: m.x.is_const)]) == 0
    assert ops_of(graph) == ["Relu"]
    assert not graph.constants
    verify(graph)


def test_a_result_of_another_type_is_refused() -> None:
    relu = pattern(lambda x: P.Relu(x), name="relu")
    net = Net()
    graph = net.done(net.Relu(net.x[0]))
    with pytest.raises(PatternError) as error:
        rewrite(graph, [RewriteRule(relu, lambda op, x: op.Cast(x, to=10))])
    assert str(error.value) == (
        "rule relu at relu1: the replacement has another type than what it replaces; expected float32[2, 4]; "
        "found float16[2, 4]. Narrow the pattern with a check, or cast or reshape the replacement."
    )
    with pytest.raises(PatternError, match="returns the wrong results; expected 1 value; found 7"):
        rewrite(graph, [RewriteRule(relu, lambda op, x: 7)])


def test_better_types_reach_the_users() -> None:
    net = Net()
    vendor = net.node("Norm", net.x[0], domain="com.vendor").output
    graph = net.done(net.Relu(vendor))
    assert root(graph).output.type != TYPE
    norm = pattern(lambda x: P["com.vendor"].Norm(x), name="norm")
    rewrite(graph, [RewriteRule(norm, lambda op, x: op.Neg(x))])
    assert root(graph).output.type == TYPE


def test_rules_that_undo_each_other_are_named() -> None:
    there = RewriteRule(pattern(lambda x: P.Neg(x), name="there"), lambda op, x: op.Abs(x))
    back = RewriteRule(pattern(lambda x: P.Abs(x), name="back"), lambda op, x: op.Neg(x))
    net = Net()
    with pytest.raises(PatternError, match=r'rules "(there|back)" and "(there|back)" keep undoing each other'):
        rewrite(net.done(net.Neg(net.x[0])), [there, back])
    net = Net()
    grow = RewriteRule(pattern(lambda x: P.Neg(x), name="grow"), lambda op, x: op.Neg(op.Relu(x)))
    with pytest.raises(PatternError, match='rule "grow" keeps applying; expected at most 9 changes'):
        rewrite(net.done(net.Neg(net.x[0])), [grow], max_changes=9)


def test_function_rules_and_pattern_rules_work_together() -> None:
    @rule("Identity")
    def drop(graph, node):
        graph.replace_uses(node.output, node.inputs[0])
        return True

    twice = RewriteRule(pattern(lambda x: P.Neg(P.Neg(x)), through=False, name="twice"), lambda op, x: x)
    net = Net()
    graph = net.done(net.Neg(net.Identity(net.Neg(net.Relu(net.x[0])))))
    assert rewrite(graph, [twice, drop]) == 2
    assert ops_of(graph) == ["Relu"]


def test_claimed_nodes_are_left_alone() -> None:
    net = Net()
    graph = net.done(net.Neg(net.Neg(net.x[0])))
    graph.nodes[0].target = "npu"
    twice = RewriteRule(pattern(lambda x: P.Neg(P.Neg(x))), lambda op, x: x)
    assert rewrite(graph, [twice]) == 0


def test_a_rewrite_of_two_branches_never_closes_a_cycle() -> None:
    """The second sum needs the first one's result, so that one node cannot make both."""
    both = pattern(lambda x, y, s: (P.Add(x, s), P.Add(y, s)))

    def merged(op, x, y):
        wide = op.Mul(op.Concat(x, y, axis=0), 2.0)
        return op.emit("Split", wide, op.const([2, 2], "int64"), outputs=2, axis=0)

    net = Net(3)
    x, y, s = net.x
    one, two = net.Add(x, net.x[2]), net.Add(y, s)
    graph = net.done(one, two)
    merge = RewriteRule(both, merged)
    assert rewrite(graph, [merge]) == 1
    verify(graph)
    net = Net(3)
    x, y, s = net.x
    first = net.Add(x, s)
    graph = net.done(net.Add(net.Relu(first), s))
    assert rewrite(graph, [merge]) == 0
    verify(graph)


def test_new_types_use_the_image_shape() -> None:
    net = Net(type_=IMAGE)
    graph = net.done(net.Relu(net.conv(net.x[0])))
    fused = pattern(lambda x, w: P.Relu(P.Conv(x, w)), name="fused")
    rewrite(graph, [RewriteRule(fused, lambda op, x, w: op["com.vendor"].ConvRelu(x, w))])
    assert [n.qualified_op for n in graph.nodes] == ["com.vendor::ConvRelu"]
    assert root(graph).output.type == IMAGE, "a result of unknown type keeps what was known"


def test_a_new_result_has_the_name_of_the_old_one() -> None:
    net = Net()
    graph = net.done(net.Relu(net.Neg(net.Neg(net.x[0]))))
    name = graph.nodes[1].output.name
    assert rewrite(graph, [RewriteRule(pattern(name="twice")(lambda x: P.Neg(P.Neg(x))), lambda op, x: op.Abs(x))]) == 1
    assert ops_of(graph) == ["Abs", "Relu"]
    assert graph.nodes[0].output.name == name


def test_new_results_of_a_node_with_several_have_their_names() -> None:
    @pattern
    def halves(x):
        return P.Split(P.Relu(x), axis=1).results(2)

    def swapped(op, x):
        return op.emit("Split", op.Neg(x), outputs=2, axis=1)

    net = Net()
    split = net.node("Split", net.Relu(net.x[0]), outputs=2, axis=1)
    names = [v.name for v in split.outputs]
    graph = net.done(net.Relu(split.outputs[0]), net.Abs(split.outputs[1]))
    assert rewrite(graph, [RewriteRule(halves, swapped)]) == 1
    assert [v.name for n in graph.nodes if n.op == "Split" for v in n.outputs] == names


def test_a_replacement_is_decorated_with_what_it_replaces() -> None:
    @replaces(lambda x: P.Neg(P.Neg(x)), check=lambda m: m.x.rank == 2)
    def drop_double_negation(op, x):
        return x

    assert drop_double_negation.name == "drop_double_negation"
    net = Net()
    graph = net.done(net.Neg(net.Identity(net.Neg(net.Neg(net.Neg(net.x[0]))))))
    assert rewrite(graph, [drop_double_negation]) == 1, "a rule does not look through no-ops unless it says so"
    assert ops_of(graph) == ["Neg", "Identity", "Neg"]


def test_a_rule_starts_only_above_the_operators_that_it_needs() -> None:
    net = Net()
    graph = net.done(net.Add(net.Identity(net.Neg(net.x[0])), net.const(1.0)), net.Add(net.x[0], net.Neg(net.x[0])))
    first, second = (node for node in graph.nodes if node.op == "Add")
    shifted = pattern(name="shifted")(lambda x: (P.Neg(x) + P.const) | (x - P.const(0)))
    strict = pattern(name="strict", through=False)(lambda x: P.Neg(x) + P.const)
    assert [shifted.can_start_at(node) for node in (first, second)] == [True, False]
    assert [strict.can_start_at(node) for node in (first, second)] == [False, False]
    assert [match.root for match in shifted.find_all(graph)] == [first]
