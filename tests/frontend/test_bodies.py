from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.frontend.samples import BRANCHES, GROWING, LOOP, NESTED, SCAN, parse
from tinycomp.errors import ModelError, TypeInferenceError, UnsupportedError
from tinycomp.frontend import import_model
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import SequenceType, TensorType


def only(graph: Graph, op: str) -> Node:
    (node,) = [n for n in graph.nodes if n.op == op]
    return node


def test_captured_values_are_trailing_operands_of_the_node_and_inputs_of_both_branches() -> None:
    node = only(import_model(parse(BRANCHES)), "If")
    assert [v.name for v in node.inputs] == ["c", "k", "x"]
    assert node.captures == 2
    for body in node.bodies.values():
        assert [str(v.type) for v in body.inputs] == ["float32[N, 4]", "float32[N, 4]"]
    assert str(node.output.type) == "float32[N, 4]"


def test_captured_constants_are_copied_into_the_bodies_that_read_them() -> None:
    graph = import_model(parse(BRANCHES))
    node = only(graph, "If")
    arrays = [body.constants[0].const for body in node.bodies.values()]
    assert arrays[0] is arrays[1]
    assert arrays[0].tolist() == 2.0
    assert graph.constants == []


def test_captures_pass_through_every_level() -> None:
    outer = only(import_model(parse(NESTED)), "If")
    assert [v.name for v in outer.inputs] == ["c", "d", "x"]
    inner = only(outer.bodies["then_branch"], "If")
    assert [v.name for v in inner.inputs] == ["d", "x"]
    assert inner.captures == 1
    assert [v.name for v in outer.bodies["else_branch"].inputs] == ["d", "x"]


def test_loop_formals_are_typed_from_the_operands() -> None:
    graph = import_model(parse(LOOP))
    node = only(graph, "Loop")
    body = node.bodies["body"]
    assert [str(v.type) for v in body.inputs] == ["int64[]", "bool[]", "float32[4]", "float32[4]"]
    assert [v.name for v in body.inputs] == ["i", "go", "v", "step"]
    assert [str(v.type) for v in node.outputs] == ["float32[4]", "float32[T, 4]"]


def test_a_carried_value_that_grows_is_widened() -> None:
    node = only(import_model(parse(GROWING)), "Loop")
    body = node.bodies["body"]
    carried = body.inputs[2]
    assert carried.type == TensorType("float32", ("last:v.0", 3))
    assert only(body, "Concat").output.shape == ('"last:v.0" + 1', 3)
    assert str(node.output.type) == "float32[R, 3]"


def test_scan_slices_its_inputs_and_stacks_its_results() -> None:
    graph = import_model(parse(SCAN))
    node = only(graph, "Scan")
    assert [str(v.type) for v in node.bodies["body"].inputs] == ["float32[2]", "float32[2]", "float32[2]"]
    assert [str(v.type) for v in node.outputs] == ["float32[2]", "float32[5, 2]"]
    assert node.captures == 1


def test_sequence_map_works_on_elements() -> None:
    model = parse("""
    <ir_version: 8, opset_import: ["" : 17]>
    main (seq(float[N]) s, float[1] a) => (seq(float[M]) t) {
        t = SequenceMap (s, a) <body = each (float[N] e, float[1] b) => (float[N] r) { r = Add(e, b) }>
    }
    """)
    node = only(import_model(model), "SequenceMap")
    assert [str(v.type) for v in node.bodies["body"].inputs] == ["float32[N]", "float32[1]"]
    assert node.output.type == SequenceType(node.bodies["body"].outputs[0].type)


def test_names_may_be_used_again_in_branches_and_shadow_outer_ones() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        main (bool c, float[2] x) => (y) { k = Relu(x)  y = If(c) <
            else_branch = e () => (r) { r = Abs(k) }, then_branch = t () => (y) { k = Exp(x)  y = Neg(k) }> }""")
    node = only(import_model(model), "If")
    then = node.bodies["then_branch"]
    assert [v.name for v in node.inputs] == ["c", "k", "x"]
    assert [v.name for v in then.inputs] == ["k_outer", "x"]
    assert only(then, "Neg").inputs[0].producer is only(then, "Exp")


def test_retyping_follows_narrower_operands() -> None:
    graph = import_model(parse(BRANCHES))
    node = only(graph, "If")
    graph.inputs[1].type = TensorType("float32", (3, 4))
    for inner in graph.nodes:
        graph.infer_again(inner)
    assert node.output.type == TensorType("float32", (3, 4))
    assert node.bodies["else_branch"].inputs[0].type == TensorType("float32", (3, 4))


def nested_ifs(depth: int) -> onnx.ModelProto:
    """Build from the outside in: protobuf cannot copy or parse more than about 30 levels, but it can hold them."""
    model = helper.make_model(onnx.GraphProto(name="main"), opset_imports=[helper.make_opsetid("", 17)])
    graph = model.graph
    graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]))
    for _ in range(depth):
        graph.output.add(name="r")
        node = graph.node.add(op_type="If", input=["c"], output=["r"])
        node.attribute.add(name="else_branch", type=onnx.AttributeProto.GRAPH)
        fill_leaf(node.attribute[0].g, "Exp")
        graph = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
    fill_leaf(graph, "Neg")
    return model


def fill_leaf(graph: onnx.GraphProto, op: str) -> None:
    graph.node.add(op_type=op, input=["x"], output=["r"])
    graph.output.add(name="r")


def test_nesting_is_bounded() -> None:
    assert str(import_model(nested_ifs(64)).outputs[0].type) == "float32[2]"
    with pytest.raises(UnsupportedError, match="nested too deeply; expected up to 64 levels; found more than 64"):
        import_model(nested_ifs(65))
    with pytest.raises(UnsupportedError, match="nested too deeply; expected up to 64 levels"):
        import_model(nested_ifs(500))


def changed(text: str, old: str, new: str) -> onnx.ModelProto:
    """Parse a valid model with one part made wrong, without checking it."""
    assert old in text
    return onnx.parser.parse_model(text.replace(old, new))


@pytest.mark.parametrize(
    ("text", "old", "new", "error", "message"),
    [
        (BRANCHES, "r = Mul(k, w)", "t = Mul(k, w) r = Cast <to = 10> (t)", TypeInferenceError,
         r"node y \(If\): the branches disagree \(number 0\); expected float16\[N, 4\]; found float32\[N, 4\]"),
        (BRANCHES, "no () => (float[N, 4] r)", "no () => (float[N, 4] r, float[N, 4] s)", TypeInferenceError,
         r"node y \(If\): else_branch has the wrong number of outputs; expected 1; found 2"),
        (BRANCHES, "no () =>", "no (float[2] q) =>", ModelError,
         r"node y \(If\), else_branch: the body has the wrong number of inputs; expected 0; found 1"),
        (LOOP, "next = Add(v, step)\n            seen = Mul(next, v)",
         "seen = Add(v, step) next = Cast <to = 11> (seen)", TypeInferenceError,
         r"node last \(Loop\): the body changes the type of a carried value \(number 0\); expected float32\[4\]"),
        (LOOP, "float[4] v)", "double[4] v)", ModelError,
         r'node last \(Loop\), body, input "v": the declared type of a body\'s input contradicts the operand'),
        (LOOP, "(int64 i, bool go, float[4] v)", "(int64 i, bool go, float[4] v, float[4] u)", ModelError,
         r"node last \(Loop\), body: the body has the wrong number of inputs; expected 3; found 4"),
        (LOOP, "=> (bool go_on, float[4] next, float[4] seen)", "=> (bool go_on, float[4] next)", TypeInferenceError,
         r"node last \(Loop\): body has the wrong number of outputs; expected 3; found 2"),
        (SCAN, "num_scan_inputs = 1", "num_scan_inputs = 3", TypeInferenceError,
         r"node total \(Scan\): the node has too few operands; expected at least 3 scan inputs; found 2 operands"),
        (BRANCHES, "s = Add(x, k)", "s = Add(x, missing)", ModelError,
         r'node y \(If\): reads the value "missing", which is never produced'),
    ],
)  # fmt: skip
def test_bodies_that_do_not_fit(text: str, old: str, new: str, error: type[Exception], message: str) -> None:
    model = changed(text, old, new)
    if error is TypeInferenceError:
        del model.graph.value_info[:]
        _forget_declared(model)
    with pytest.raises(error, match=message):
        import_model(model)


def _forget_declared(model: onnx.ModelProto) -> None:
    """Drop the declared types of body results, which would contradict first."""
    for node in model.graph.node:
        for attribute in node.attribute:
            for output in attribute.g.output:
                output.ClearField("type")


def test_a_graph_attribute_of_an_operator_without_a_rule_for_it_is_refused() -> None:
    body = parse(BRANCHES).graph
    node = helper.make_node("StopFusion", ["q"], ["y"], domain="tinycomp", score_mod=body)
    info = helper.make_tensor_value_info("q", TensorProto.FLOAT, [1, 2, 3, 4])
    graph = helper.make_graph([node], "main", [info], [helper.make_empty_tensor_value_info("y")])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("tinycomp", 1)]
    text = re.escape("node y (StopFusion): nothing is known about the graphs of this operator")
    with pytest.raises(UnsupportedError, match=text):
        import_model(helper.make_model(graph, opset_imports=imports))


def test_a_loop_over_optional_values_ends_present(node_cases: list) -> None:
    case = next(c for c in node_cases if c.name == "test_loop16_seq_none")
    node = only(import_model(case.model), "Loop")
    assert isinstance(node.output.type, SequenceType)


def test_bodies_share_the_arrays_of_constants_with_nothing_copied() -> None:
    graph = import_model(parse(BRANCHES))
    copy = graph.clone()
    a, b = (only(g, "If").bodies["then_branch"].constants[0].const for g in (graph, copy))
    assert a is b
    assert isinstance(a, np.ndarray)
