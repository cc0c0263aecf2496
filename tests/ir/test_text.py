from __future__ import annotations

import textwrap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.graphs import decorated_graphs, graphs
from tinycomp.ir import Graph, TensorType
from tinycomp.ir.equality import difference
from tinycomp.ir.text import printer
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import node_line, print_graph
from tinycomp.ir.verify import verify

RELAXED = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


def assert_round_trip(graph: Graph) -> None:
    store: dict[str, np.ndarray] = {}
    text = print_graph(graph, constants=store)
    back = parse_graph(text, constants=store)
    assert difference(graph, back, sources=True) is None
    assert print_graph(back) == text
    assert [n.label for n in back.nodes] == [n.label for n in graph.nodes]


@RELAXED
@given(graphs())
def test_runnable_graphs_survive_a_round_trip(graph: Graph) -> None:
    verify(graph)
    assert_round_trip(graph)


@pytest.mark.long
@RELAXED
@given(decorated_graphs())
def test_everything_the_ir_holds_survives_a_round_trip(graph: Graph) -> None:
    verify(graph)
    assert_round_trip(graph)


def test_the_form_is_the_documented_one() -> None:
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", ("N", 4)))
    w = graph.add_const(np.arange(1, 5, dtype=np.float32), "w")
    y = graph.add("Mul", [x, w], outputs=["y"], sources=["scale"]).output
    z = graph.add("Dropout", [y], outputs=["a/b:0", ""]).output
    clip = graph.add("Clip", [z, None, None], outputs=["c"], target="npu")
    graph.set_outputs([clip.output, y], ["logits", "y"])
    assert str(graph) == (
        'graph @main opset {"" = 17} (%x: float32[N, 4]) -> ("logits" = %c, %y) {\n'
        "  %w: float32[4] = const [1.0, 2.0, 3.0, 4.0]\n"
        '  %y: float32[N, 4] = Mul@14(%x, %w) from ["scale"]\n'
        '  %"a/b:0": float32[N, 4], _ = Dropout@13(%y)\n'
        '  %c: float32[N, 4] = Clip@13(%"a/b:0", _, _) target "npu"\n'
        "}"
    )


def test_missing_types_and_versions_are_filled_in() -> None:
    graph = parse_graph(
        """
        graph @main opset {"" = 13} (%x: float32[2, 3]) -> (%c) {   // a comment
          %w = const float32[3, 4] [0,1,2,3, 4,5,6,7, 8,9,10,11]
          %h = MatMul(%x, %w)
          %a, %b: float32[2, N] = Split(%h) {axis = 1}
          %c = Concat(%a, %b, %b) {axis = 0}
        }
        """
    )
    assert [(n.op, n.version) for n in graph.nodes] == [("MatMul", 13), ("Split", 13), ("Concat", 13)]
    assert str(graph.values["h"].type) == "float32[2, 4]"
    assert str(graph.values["b"].type) == "float32[2, N]"
    assert graph.values["w"].const.tolist() == np.arange(12).reshape(3, 4).tolist()


def test_large_constants_stand_by_their_hash_and_return_from_the_store() -> None:
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2, 100)))
    weight = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    first = graph.add("MatMul", [x, graph.add_const(weight, "w")])
    second = graph.add("MatMul", [first.output, graph.add_const(weight.copy(), "v")])
    graph.set_outputs([second.output])
    store: dict[str, np.ndarray] = {}
    text = print_graph(graph, constants=store)
    assert len(store) == 1, "equal contents share one hash"
    (key,) = store
    assert text.count(f"const #{key}") == 2
    back = parse_graph(text, constants=store)
    assert back.values["w"].const is back.values["v"].const is store[key]
    assert print_graph(graph) == text, "the store changes nothing in the text"
    assert "#" not in print_graph(graph, max_inline=10_000)


def test_the_hash_tells_shape_and_dtype_apart() -> None:
    graph = Graph(opsets={})
    zeros = [np.zeros((4, 8), np.float32), np.zeros((8, 4), np.float32), np.zeros((4, 8), np.int32)]
    graph.set_outputs([graph.add_const(a) for a in zeros])
    store: dict[str, np.ndarray] = {}
    print_graph(graph, constants=store)
    assert len(store) == 3


def test_constants_stand_before_their_first_use_and_unused_ones_are_left_out() -> None:
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2,)))
    graph.add_const(np.zeros(2, np.float32), "unused")
    late = graph.add_const(np.ones(2, np.float32), "late")
    a = graph.add("Relu", [x], outputs=["a"]).output
    graph.set_outputs([graph.add("Add", [a, late], outputs=["b"]).output])
    starts = [line.split(":")[0].strip() for line in str(graph).splitlines()[1:-1]]
    assert starts == ["%a", "%late", "%b"]


def test_a_default_of_an_input_is_kept() -> None:
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", ("N",)))
    graph.defaults["x"] = np.array([1.5], np.float32)
    graph.set_outputs([graph.add("Relu", [x]).output])
    assert "(%x: float32[N] = float32[1] [1.5])" in str(graph)
    assert_round_trip(graph)


def test_bodies_inherit_opsets_and_may_have_their_own() -> None:
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2,)))
    body = Graph("f", opsets={"": 13})
    body.set_outputs([body.add("Relu", [body.add_input("p", x.type)], outputs=["q"]).output])
    node = graph.add("f", [x], domain="my.functions", bodies={"body": body}, outputs=["y"])
    graph.set_outputs([node.output])
    assert 'body = graph @f opset {"" = 13} (%p: float32[2]) -> (%q) {' in str(graph)
    assert_round_trip(graph)
    body.opsets = {"": 17}
    assert "body = graph @f (%p: float32[2]) -> (%q) {" in str(graph)
    assert_round_trip(graph)


def test_nodes_without_results_and_with_only_skipped_ones() -> None:
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2,)))
    graph.add("Sink", [x], domain="v", outputs=[])
    graph.add("Probe", [x], domain="v", outputs=["", ""])
    graph.set_outputs([x, x], ["a", "b"])
    assert "() = v::Sink@1(%x)" in str(graph)
    assert '-> ("a" = %x, "b" = %x)' in str(graph)
    assert_round_trip(graph)


@pytest.mark.parametrize(
    "value",
    [0.1, float(np.float32(0.1)), 1e30, float(np.float32(1e30)), 5e-324, float("inf"), -float("inf"), -0.0, 1, True],
)
def test_numbers_keep_kind_and_bits(value: float) -> None:
    graph = Graph(opsets={})
    graph.add("Op", [], {"a": value, "b": [value]}, domain="v", outputs=["y"], types=[TensorType("?", None)])
    found = parse_graph(str(graph)).nodes[0].attrs
    for back in (found["a"], *found["b"]):
        assert type(back) is type(value)
        assert np.float64(back).tobytes() == np.float64(value).tobytes()


def test_a_node_line_knows_where_its_parts_stand() -> None:
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2,)))
    line = node_line(graph.add("Clip", [x, None, x], outputs=["long name"]))
    assert [line.text[a:b] for a, b in line.operands] == ["%x", "_", "%x"]
    assert [line.text[a:b] for a, b in line.results] == ['%"long name": float32[2]']
    assert line.text[slice(*line.op)] == "Clip@13"


def test_the_example_of_the_documentation_is_in_the_form() -> None:
    example = textwrap.dedent(str(printer.__doc__).split("Example::\n")[1]).strip()
    assert print_graph(parse_graph(example)) == example


def test_one_store_serves_a_series_of_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(opsets={})
    graph.set_outputs([graph.add_const(np.arange(100), "big")])
    store: dict[str, np.ndarray] = {}
    first = print_graph(graph, constants=store)
    monkeypatch.setattr(printer, "content_hash", lambda array: pytest.fail("hashed again"))
    assert print_graph(graph.clone(), constants=store) == first
