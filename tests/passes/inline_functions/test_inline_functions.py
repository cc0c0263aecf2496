from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from tests.passes.evaluation import assert_same_results, random_feeds
from tinycomp.frontend import import_model
from tinycomp.ir import Graph, TensorType
from tinycomp.ir.verify import verify
from tinycomp.passes.inline_functions import InlineFunctions


def model_with_functions(depth: int):
    """Return a model whose function ``f0`` calls ``f1`` twice, and so on down to ``depth``."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function("local", f"f{depth}", ["a"], ["b"], [helper.make_node("Tanh", ["a"], ["b"])], opsets)
    ]
    for level in reversed(range(depth)):
        inner = f"f{level + 1}"
        nodes = [
            helper.make_node(inner, ["a"], ["p"], domain="local"),
            helper.make_node(inner, ["p"], ["q"], domain="local"),
            helper.make_node("Add", ["p", "q"], ["b"]),
        ]
        functions.append(helper.make_function("local", f"f{level}", ["a"], ["b"], nodes, opsets))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("f0", ["x"], ["y"], domain="local")], "main", [x], [y])
    return helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_functions_of_a_model_are_inlined(depth):
    before = import_model(model_with_functions(depth))
    graph = before.clone()
    assert InlineFunctions().run(graph)
    verify(graph)
    assert {node.op for node in graph.nodes} <= {"Tanh", "Add"}
    assert len(graph) == 2 ** (depth + 1) - 1
    assert not InlineFunctions().run(graph)
    assert_same_results(before, graph, random_feeds(before), tolerance=0)


def test_many_calls_are_inlined_in_one_run():
    graph = Graph(opsets={"": 17, "local": 1})
    value = graph.add_input("x", TensorType("float32", (2,)))
    for _ in range(2000):
        body = Graph("f", opsets=graph.opsets)
        body.set_outputs([body.add("Neg", [body.add_input("a", value.type)]).output])
        value = graph.add("f", [value], domain="local", bodies={"body": body}).output
    graph.set_outputs([value])
    InlineFunctions().run(graph)
    verify(graph, types=False)
    assert [node.op for node in graph.nodes] == ["Neg"] * 2000
