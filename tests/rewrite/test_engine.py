from __future__ import annotations

import pytest

from tinycomp.errors import PatternError
from tinycomp.ir import Graph, Node, TensorType
from tinycomp.ir.verify import verify
from tinycomp.rewrite import Engine, FunctionRule, rule

TYPE = TensorType("float32", (2, 4))


def chain(*ops: str) -> Graph:
    graph = Graph(opsets={"": 17})
    value = graph.add_input("x", TYPE)
    for index, op in enumerate(ops):
        value = graph.add(op, [value], sources=[f"n{index}"]).output
    graph.set_outputs([value], ["y"])
    return graph


def ops_of(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


@rule("Identity")
def drop_identity(graph: Graph, node: Node) -> bool:
    graph.replace_uses(node.output, node.inputs[0])
    return True


@rule("Neg")
def cancel_neg(graph: Graph, node: Node) -> bool:
    inner = node.inputs[0].producer
    if inner is None or inner.op != "Neg":
        return False
    graph.replace_uses(node.output, inner.inputs[0])
    return True


def test_a_change_brings_users_back_to_the_worklist() -> None:
    graph = chain("Neg", "Neg", "Identity", "Neg", "Neg", "Relu")
    assert Engine([cancel_neg, drop_identity]).run(graph) == 3
    assert ops_of(graph) == ["Relu"]
    verify(graph)


def test_new_nodes_are_tried_too() -> None:
    @rule("HardSwish")
    def expand(graph: Graph, node: Node) -> bool:
        first = graph.add("Identity", [node.inputs[0]], at=node).output
        second = graph.add("Identity", [first], at=node).output
        graph.replace_uses(node.output, graph.add("Identity", [second], at=node).output)
        return True

    graph = chain("Relu", "HardSwish")
    assert Engine([expand, drop_identity]).run(graph) == 4
    assert ops_of(graph) == ["Relu"]


def test_dead_nodes_and_their_constants_are_swept() -> None:
    graph = chain("Relu")
    dead = graph.add("Add", [graph.inputs[0], graph.add("Neg", [graph.inputs[0]]).output])
    assert dead in graph
    assert Engine([]).run(graph) == 0
    assert ops_of(graph) == ["Relu"]


def test_rules_without_ops_see_every_node_in_rule_order() -> None:
    seen: list[str] = []

    def first(_graph: Graph, node: Node) -> bool:
        seen.append(f"first {node.op}")
        return False

    def second(_graph: Graph, node: Node) -> bool:
        seen.append(f"second {node.op}")
        return False

    Engine([FunctionRule(first), FunctionRule(second, "Relu")]).run(chain("Neg", "Relu"))
    assert seen == ["first Neg", "first Relu", "second Relu"]


def test_rules_that_undo_each_other_are_named() -> None:
    def swap(old: str, new: str) -> FunctionRule:
        def apply(graph: Graph, node: Node) -> bool:
            graph.replace_uses(node.output, graph.add(new, [node.inputs[0]], at=node).output)
            return True

        apply.__name__ = f"{old.lower()}_to_{new.lower()}"
        return FunctionRule(apply, old)

    with pytest.raises(PatternError, match="does not come to an end") as error:
        Engine([swap("Relu", "Tanh"), swap("Tanh", "Relu")], max_changes=100).run(chain("Relu"))
    assert str(error.value) == (
        'n0: rewriting does not come to an end: rules "tanh_to_relu" and "relu_to_tanh" keep undoing each other; '
        "expected at most 100 changes. Make each rule's result something that no rule turns back, "
        "for example with a check."
    )


def test_bodies_are_rewritten_unless_they_are_claimed() -> None:
    inner = chain("Identity", "Relu")
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TYPE)
    free = graph.add("fn", [x], domain="local", bodies={"body": inner})
    claimed = graph.add("fn", [x], domain="local", bodies={"body": inner.clone()}, target="npu")
    graph.set_outputs([free.output, claimed.output])
    assert Engine([drop_identity]).run(graph) == 1
    assert ops_of(free.body) == ["Relu"]
    assert ops_of(claimed.body) == ["Identity", "Relu"]


def test_long_chains_need_no_recursion() -> None:
    small, large = chain(*["Identity"] * 2000), chain(*["Identity"] * 20000)
    assert Engine([drop_identity]).run(small) == 2000
    assert Engine([drop_identity]).run(large) == 20000
    assert not large.nodes
