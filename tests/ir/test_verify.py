from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinycomp.errors import VerifyError
from tinycomp.ir import COMPOSITE, REGION, Graph, TensorType, Value
from tinycomp.ir.text.lexer import MAX_NESTING
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.verify import verify

TEXT = """
graph @main opset {"" = 17} (%x: float32[2, 4]) -> (%c) {
  %w: float32[4] = const [1.0, 2.0, 3.0, 4.0]
  %a: float32[2, 4] = Add(%x, %w)
  %b: float32[2, 4], _ = Dropout(%a)
  %c: float32[2, 4] = Mul(%a, %b)
}
"""
F32 = TensorType("float32", (2, 4))


def broken(graph: Graph) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    return str(caught.value)


def test_a_sound_graph_passes() -> None:
    verify(parse_graph(TEXT))


def test_the_message_shows_the_node_and_a_caret() -> None:
    graph = parse_graph(TEXT)
    node = graph.values["c"].producer
    assert node is not None
    node.inputs = (node.inputs[0], Value("stranger", F32))
    assert broken(graph) == (
        "graph main, node c: operand 1 is not a value of this graph\n"
        " | %c: float32[2, 4] = Mul@14(%a, %stranger)\n"
        " |                                ^^^^^^^^^"
    )


def _node(graph: Graph, result: str):
    node = graph.values[result].producer
    assert node is not None
    return node


def _swap_operand(graph: Graph) -> None:
    _node(graph, "c").inputs = (graph.values["b"], graph.values["b"])


def _forget_user(graph: Graph) -> None:
    graph.values["w"].users.clear()


def _drop_edge(graph: Graph) -> None:
    graph.connectivity.remove_edge(_node(graph, "a"), _node(graph, "b"))


def _count_edge_twice(graph: Graph) -> None:
    graph.connectivity[_node(graph, "a")][_node(graph, "b")]["slots"] += 1


def _steal_result(graph: Graph) -> None:
    graph.values["b"].producer = _node(graph, "a")


def _orphan(graph: Graph) -> None:
    graph._declare(Value("orphan", F32))


def _misname(graph: Graph) -> None:
    graph.values["w"].name = "v"


def _foreign_output(graph: Graph) -> None:
    graph.set_outputs([Value("far", F32)])


def _equal_output_names(graph: Graph) -> None:
    graph.set_outputs([graph.values["a"], graph.values["c"]], ["y", "y"])


def _too_few_output_names(graph: Graph) -> None:
    graph.output_names = ()


def _stale_type(graph: Graph) -> None:
    graph.values["a"].type = TensorType("float32", (3, 4))


def _stale_constant(graph: Graph) -> None:
    graph.values["w"].type = TensorType("float32", (5,))


def _constant_result(graph: Graph) -> None:
    graph.values["a"].const = np.ones((2, 4), np.float32)


def _use_skipped(graph: Graph) -> None:
    node, skipped = _node(graph, "c"), _node(graph, "b").outputs[1]
    skipped.users[node] = 1


def _too_many_captures(graph: Graph) -> None:
    _node(graph, "c").captures = 3


def _odd_attribute(graph: Graph) -> None:
    _node(graph, "c").attrs["rule"] = object()


def _stale_order(graph: Graph) -> None:
    graph._order = list(reversed(graph.nodes))


def _short_order(graph: Graph) -> None:
    graph._order = graph.nodes[:-1]


def _default_of_nothing(graph: Graph) -> None:
    graph.defaults["y"] = np.ones(1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_swap_operand, 'the users of the value "a" are out of date; expected b x1; found b x1, c x1'),
        (_forget_user, 'the users of the value "w" are out of date; expected a x1; found none'),
        (_drop_edge, "the edge a -> b is out of date; expected 1 slots; found 0 slots"),
        (_count_edge_twice, "the edge a -> b is out of date; expected 1 slots; found 2 slots"),
        (_steal_result, "result 0 names another producer; found <Node Add a>"),
        (_orphan, 'the value "orphan" has no producer'),
        (_misname, 'the value listed as "w" has the name "v"'),
        (_foreign_output, 'the output "far" is not a value of the graph'),
        (_equal_output_names, "the output names are not distinct; found ['y', 'y']"),
        (_too_few_output_names, "the output names are not one per output; found []"),
        (_stale_type, "the type of result 0 is stale; expected float32[2, 4]; found float32[3, 4]"),
        (_stale_constant, 'the constant "w" has another type; expected float32[5]; found float32[4]'),
        (_constant_result, 'the value "a" is a constant and has a producer'),
        (_use_skipped, "result 1 is skipped and in use"),
        (_too_many_captures, "there are more captures than operands; found 3"),
        (_odd_attribute, 'attribute "rule" is not a plain value; found object'),
        (_stale_order, "the order of nodes is out of date: b stands before a"),
        (_short_order, "the order of nodes is out of date"),
        (_default_of_nothing, "there are defaults for names that are not inputs: ['y']"),
    ],
)
def test_each_broken_invariant_is_found(damage: Callable[[Graph], None], message: str) -> None:
    graph = parse_graph(TEXT)
    damage(graph)
    assert message in broken(graph)


def test_a_cycle_is_found_and_shown() -> None:
    graph = parse_graph(TEXT)
    graph.set_input(_node(graph, "a"), 0, graph.values["c"])
    assert "the graph has a cycle: " in broken(graph)


def test_types_can_be_left_out() -> None:
    graph = parse_graph(TEXT)
    _stale_type(graph)
    verify(graph, types=False)


def test_operands_that_do_not_fit_the_operator_are_shown() -> None:
    graph = parse_graph(TEXT)
    graph.values["w"].type = TensorType("float32", (5,))
    graph.values["w"].const = np.ones(5, np.float32)
    text = broken(graph)
    assert "the operands do not fit the operator" in text
    assert text.splitlines()[-2] == " | %a: float32[2, 4] = Add@14(%x, %w)"


CALL = """
graph @main opset {"" = 17} (%x: float32[2, 4]) -> (%y) {
  %y: float32[2, 4] = tinycomp.region::DOMAIN@1(OPERANDS) target "npu"
    body = graph @f (PARAMS) -> (RESULTS) {
      %s: float32[2, 4] = Relu(%p)
    }
}
"""


def call(symbol: str = "f", operands: str = "%x", params: str = "%p: float32[2, 4]", results: str = "%s") -> str:
    parts = {"DOMAIN": symbol, "OPERANDS": operands, "PARAMS": params, "RESULTS": results}
    text = CALL
    for name, value in parts.items():
        text = text.replace(name, value)
    return text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (call(operands="%x, %x"), "the body does not take the operands of the node; expected 2 inputs; found 1"),
        (call(params="%p: float32[2, 5]"), "operand 0 does not fit the body; expected p: float32[2, 5]; found float32"),
        (call(results="%s, %p"), "the body does not give the results of the node; expected 1 outputs; found 2"),
        (call(symbol='"a.b"'), 'the region symbol "a.b" is not an identifier of C'),
        (call(symbol="while"), 'the region symbol "while" is not an identifier of C'),
    ],
)
def test_bodies_are_checked(text: str, message: str) -> None:
    verify(parse_graph(call()))
    assert message in broken(parse_graph(text))


@pytest.mark.parametrize("domain", [COMPOSITE, REGION])
def test_a_composite_or_region_has_one_body(domain: str) -> None:
    text = call().splitlines()
    head = text[2].replace(REGION, domain)
    graph = parse_graph("\n".join([*text[:2], head, "}"]))
    assert "a composite or region has one body; expected body; found none" in broken(graph)


def test_region_symbols_are_unique_in_the_whole_tree() -> None:
    graph = parse_graph(TEXT)
    graph.outline([_node(graph, "a")], "f", domain=REGION)
    graph.outline([_node(graph, "b")], "f", domain=REGION)
    assert 'the region symbol "f" is taken' in broken(graph)


def test_captures_of_a_conditional_are_checked() -> None:
    text = """
    graph @main opset {"" = 17} (%c: bool[], %x: float32[2]) -> (%y) {
      %y: float32[2] = If(%c | %x)
        then_branch = graph @t (%x: float32[2]) -> (%z) { %z = Neg(%x) }
        else_branch = graph @e (%x: float32[2]) -> (%z) { %z = Abs(%x) }
    }
    """
    verify(parse_graph(text))
    wrong = text.replace("graph @e (%x: float32[2])", "graph @e (%x: int8[2])")
    assert "operand 1 does not fit the else_branch; expected x: int8[2]; found float32[2]" in broken(parse_graph(wrong))
    missing = text.replace("graph @e (%x: float32[2]) -> (%z) { %z = Abs(%x) }", "graph @e () -> (%z) {"
                           "%z: float32[2] = const [1.0, 2.0] }")  # fmt: skip
    assert "the else_branch does not take the operands of the node" in broken(parse_graph(missing))


def test_a_body_has_one_owner() -> None:
    graph = parse_graph(call())
    owner = _node(graph, "y")
    graph.add("g", owner.inputs, domain=REGION, bodies=owner.bodies)
    assert "the body f belongs to two nodes" in broken(graph)


def test_nesting_is_bounded() -> None:
    graph = Graph("leaf", opsets={})
    graph.set_outputs([graph.add_input("x", F32)])
    for depth in range(MAX_NESTING + 1):
        outer = Graph(f"level{depth}", opsets={})
        node = outer.add("f", [outer.add_input("x", F32)], domain="v", bodies={"body": graph})
        outer.set_outputs([node.output])
        graph = outer
    assert "bodies are nested too deeply" in broken(graph)
    verify(next(iter(graph.nodes)).body)
