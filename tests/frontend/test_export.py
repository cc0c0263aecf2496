from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.frontend.samples import (
    BRANCHES,
    FUNCTIONS,
    GROWING,
    LOOP,
    NESTED,
    RELU,
    SCAN,
    assert_same,
    feeds_for,
    parse,
    run,
)
from tests.frontend.test_import import float_info, make
from tests.models import light_models, shipped_models
from tinycomp.driver.pipeline import Pipeline, partitioning_passes
from tinycomp.errors import TinycompWarning, UnsupportedError
from tinycomp.frontend import export_model, import_model
from tinycomp.frontend.onnx_export import choose_opsets, interval
from tinycomp.ir.graph import COMPOSITE, REGION, TINYCOMP, Graph
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types
from tinycomp.target import find


def exported(graph: Graph) -> onnx.ModelProto:
    model = export_model(graph)
    onnx.checker.check_model(model, full_check=True)
    return model


def assert_round_trip(model: onnx.ModelProto, feeds: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """Export the imported model, and compare the two with onnxruntime, bit by bit."""
    again = exported(import_model(model))
    feeds = feeds_for(model) if feeds is None else feeds
    assert_same(run(again, feeds), run(model, feeds))
    for field in ("input", "output"):
        assert [v.name for v in getattr(again.graph, field)] == [v.name for v in getattr(model.graph, field)]
    return again


@pytest.mark.parametrize("c", [True, False])
@pytest.mark.parametrize("text", [BRANCHES, NESTED], ids=["branches", "nested"])
def test_branches(text: str, c: bool) -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    feeds = {"c": np.array(c), "x": x} if text is BRANCHES else {"c": np.array(c), "d": np.array(True), "x": x[0]}
    again = assert_round_trip(parse(text), feeds)
    (node,) = [n for n in again.graph.node if n.op_type == "If"]
    assert list(node.input) == ["c"]


@pytest.mark.parametrize("text", [LOOP, GROWING], ids=["loop", "growing"])
def test_loops(text: str) -> None:
    model = parse(text)
    again = assert_round_trip(model, feeds_for(model) | {"n": np.array(3, np.int64)})
    (node,) = [n for n in again.graph.node if n.op_type == "Loop"]
    assert len(node.input) == 3


@pytest.mark.parametrize("text", [RELU, SCAN, FUNCTIONS], ids=["relu", "scan", "functions"])
def test_other_samples(text: str) -> None:
    assert_round_trip(parse(text))


def test_names_versions_and_metadata_are_kept() -> None:
    model = parse(RELU)
    helper.set_model_props(model, {"author": "someone"})
    again = export_model(import_model(model), model_name="renamed")
    assert again.graph.name == "renamed"
    assert [(n.op_type, n.name, list(n.output)) for n in again.graph.node] == [("Relu", "y", ["y"])]
    assert [(e.domain, e.version) for e in again.opset_import] == [("", 17)]
    assert {p.key: p.value for p in again.metadata_props} == {"author": "someone"}
    assert (again.ir_version, again.producer_name) == (8, "tinycomp")


def test_outputs_that_are_inputs_constants_or_listed_twice() -> None:
    model = make(
        [helper.make_node("Relu", ["x"], ["r"])],
        initializers=[numpy_helper.from_array(np.ones(1, np.float32), "w")],
        outputs=[float_info("x", [2, 4]), float_info("w", [1]), float_info("r", [2, 4])],
    )
    assert_round_trip(model)
    graph = import_model(model)
    graph.set_outputs([*graph.outputs, graph.outputs[2]], ["x", "w", "r", "again"])
    r = np.ones((2, 4), np.float32)
    assert_same(run(exported(graph), {"x": r}), [r, r[0, :1], r, r])


def test_output_names_outlive_rewrites() -> None:
    graph = import_model(parse(RELU))
    node = graph.nodes[0]
    other = graph.add("Neg", [node.inputs[0]], version=13)
    graph.replace_uses(node.output, other.output)
    graph.erase(node)
    model = exported(graph)
    assert [o.name for o in model.graph.output] == ["y"]
    assert [(n.op_type, list(n.output)) for n in model.graph.node] == [("Neg", ["y"])]


def test_an_output_that_became_an_input_is_copied() -> None:
    graph = import_model(parse(RELU))
    node = graph.nodes[0]
    graph.replace_uses(node.output, graph.inputs[0])
    graph.erase(node)
    model = exported(graph)
    x = np.ones((3, 4), np.float32)
    assert_same(run(model, {"x": x}), [x])
    assert [o.name for o in model.graph.output] == ["y"]


def test_default_values_stay_optional_inputs() -> None:
    model = make(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        inputs=[float_info("x", [2, 4]), float_info("w", [4])],
        initializers=[numpy_helper.from_array(np.ones(4, np.float32), "w")],
        outputs=[float_info("y", [2, 4])],
    )
    again = exported(import_model(model))
    x = np.zeros((2, 4), np.float32)
    assert_same(run(again, {"x": x}), [x + 1])
    assert_same(run(again, {"x": x, "w": x[0]}), [x])


def test_a_branch_that_returns_a_captured_value_or_a_constant() -> None:
    """ONNX Runtime refuses a body whose result is a value from outside, so the export puts an Identity there."""

    def branch(name: str) -> onnx.GraphProto:
        return helper.make_graph([], "branch", [], [float_info(name, [4])])

    model = make(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch("x"), else_branch=branch("w"))],
        inputs=[helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []), float_info("x", [4])],
        initializers=[numpy_helper.from_array(np.ones(4, np.float32), "w")],
        outputs=[float_info("y", [4])],
    )
    again = exported(import_model(model))
    x = np.arange(4, dtype=np.float32)
    assert_same(run(again, {"c": np.array(True), "x": x}), [x])
    assert_same(run(again, {"c": np.array(False), "x": x}), [np.ones(4, np.float32)])


def test_names_in_bodies_that_stand_outside_too_are_changed() -> None:
    model = parse(BRANCHES)
    graph = import_model(model)
    (node,) = [n for n in graph.nodes if n.op == "If"]
    body = node.bodies["else_branch"]
    body.rename(body.values["s"], "y")
    again = exported(graph)
    feeds = {"c": np.array(False), "x": np.ones((2, 4), np.float32)}
    assert_same(run(again, feeds), run(model, feeds))


def outlined(quantized: bool) -> tuple[onnx.ModelProto, Graph]:
    """The digits model with composites of two nodes each, and one region around two of them."""
    path = shipped_models()[quantized]
    graph = import_model(path)
    made = []
    for node in list(graph.nodes):
        if node.op == "Conv" and len(graph.is_output(node.output) or node.output.users) == 1:
            (user,) = node.output.users
            made.append(graph.outline([node, user], "npu.pair", domain=COMPOSITE, target="npu"))
    graph.outline(made[:1], "npu_0", domain=REGION, target="npu")
    return onnx.load(path), graph


@pytest.mark.parametrize("quantized", [False, True])
def test_composites_and_regions_become_functions_and_come_back(quantized: bool) -> None:
    model, graph = outlined(quantized)
    again = exported(graph)
    assert {f.domain for f in again.functions} == {COMPOSITE, REGION}
    feeds = feeds_for(model)
    assert_same(run(again, feeds), run(model, feeds))
    found = import_model(again)
    kinds = [(n.op, n.domain, n.target) for n in graph.nodes]
    assert [(n.op, n.domain, n.target) for n in found.nodes] == kinds
    assert {n.domain for n in found.nodes} >= {REGION, COMPOSITE}


@pytest.mark.parametrize("text", [FUNCTIONS, NESTED, BRANCHES], ids=["functions", "nested", "branches"])
def test_calls_in_functions_and_bodies_are_inlined_on_request(text: str) -> None:
    model = parse(text)
    graph = import_model(model)
    nodes = str(graph)
    for target in ((), ("c",)):
        partitioned = Pipeline(partitioning_passes([find(name) for name in target]))(graph)
        flat = export_model(partitioned, functions=False)
        onnx.checker.check_model(flat, full_check=True)
        assert not flat.functions
        assert {entry.domain for entry in flat.opset_import} == {""}
        feeds = feeds_for(model)
        assert_same(run(flat, feeds), run(model, feeds))
    assert str(graph) == nodes


def test_equal_functions_are_written_once() -> None:
    graph = Graph(infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (4,)))
    nodes = [graph.add(op, [x], outputs=[f"{op}{i}"]) for i, op in enumerate(("Relu", "Relu", "Neg"))]
    graph.set_outputs([n.output for n in nodes])
    for node in nodes:
        call = graph.outline([node], "unit", domain=COMPOSITE)
        call.body.rename(call.body.outputs[0], "r")
        call.body.set_outputs(call.body.outputs, ["r"])
        call.body.nodes[0].sources = ("unit",)
    model = exported(graph)
    assert [f.name for f in model.functions] == ["unit", "unit_2"]
    assert sorted(n.op_type for n in model.graph.node) == ["unit", "unit", "unit_2"]


def mixed() -> Graph:
    """Softmax means something else before opset 13, so that no opset serves both nodes."""
    graph = Graph(infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2, 3, 4)))
    old = graph.add("Softmax", [x], {"axis": 1}, version=11)
    new = graph.add("Softmax", [old.output], {"axis": 1}, version=13)
    relu = graph.add("Relu", [new.output], version=14)
    graph.set_outputs([relu.output])
    return graph


def test_versions_that_exclude_each_other_are_refused() -> None:
    """Wrapping the node into a function of another opset is no way out: onnxruntime ignores the function's opset."""
    text = (
        r'node softmax \(Softmax, version 11\): no opset of domain "ai.onnx" suits every node of the graph; '
        "expected an opset from 11 to 12 for this node; found 17 for most others"
    )
    with pytest.raises(UnsupportedError, match=text):
        export_model(mixed())


def test_the_imported_opset_is_kept_where_it_suits_else_the_lowest_is_taken() -> None:
    graph = mixed()
    old, new, _ = graph.nodes
    graph.replace_uses(old.output, graph.inputs[0])
    graph.erase(old)
    assert choose_opsets(graph) == {"": 17}
    graph.opsets = {"": 11}
    assert choose_opsets(graph) == {"": 14}
    graph.outline([new], "inner", domain=REGION)
    assert {e.version for f in exported(graph).functions for e in f.opset_import} == {14}


def test_the_span_of_a_version() -> None:
    assert interval("Softmax", "", 11) == (11, 12)
    assert interval("Softmax", "", 1) == (1, 10)
    assert interval("Nothing", "", 1) is None


def test_layout_changes_and_barriers_become_identity() -> None:
    graph = Graph(infer=infer_node_types, opsets={"": 17})
    type_ = TensorType("float32", (1, 2, 3, 3))
    x = graph.add_input("x", type_)
    there = graph.add("Relayout", [x], domain=TINYCOMP, version=1, types=[type_.with_layout("NHWC")])
    stop = graph.add("StopFusion", [there.output], domain=TINYCOMP, version=1, types=[type_])
    graph.set_outputs([stop.output])
    model = exported(graph)
    assert [n.op_type for n in model.graph.node] == ["Identity", "Identity"]
    array = np.ones((1, 2, 3, 3), np.float32)
    assert_same(run(model, {"x": array}), [array])


def test_other_operators_of_tinycomp_have_no_counterpart() -> None:
    graph = Graph(infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (1,)))
    node = graph.add("Secret", [x], domain=TINYCOMP, version=1, types=[x.type])
    graph.set_outputs([node.output])
    with pytest.raises(UnsupportedError, match="node secret: tinycomp::Secret has no counterpart in ONNX"):
        export_model(graph)


@pytest.mark.rows(4)
@pytest.mark.parametrize("path", [*shipped_models(), *light_models()], ids=lambda p: p.stem)
def test_models_give_the_same_outputs_after_a_round_trip(path: Path) -> None:
    model = onnx.load(path)
    again = exported(import_model(path))
    feeds = feeds_for(model)
    assert_same(run(again, feeds), run(model, feeds), path.stem)


def test_models_of_the_model_folder(models: Path) -> None:
    for path in sorted(models.rglob("*.onnx")):
        model = onnx.load(path)
        feeds = feeds_for(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TinycompWarning)
            again = exported(import_model(path))
        assert_same(run(again, feeds), run(model, feeds), path.name)
