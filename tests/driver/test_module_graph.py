"""What a module shows of its partition: the graph, composites with their nodes, and the model as it stands."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tinycomp import P
from tinycomp.data import digits, digits_model
from tinycomp.driver.compiler import Compiler
from tinycomp.errors import ModelError
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.verify import verify
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.native.executor import Pool
from tinycomp.runtime.report import Report
from tinycomp.runtime.rows import CompositeRow
from tinycomp.targets.npu_sim import TARGET as NPU_SIM

IMAGES = digits()[0][:3]


def test_the_graph_of_a_module_is_its_partitioned_graph() -> None:
    module = tinycomp.compile(digits_model(), "npu_sim")
    graph = module.graph
    assert isinstance(graph, tinycomp.Graph)
    assert graph is module.graph
    verify(graph)
    expected = Compiler((NPU_SIM,), Pool(1)).partition(tinycomp.from_onnx(digits_model()))
    assert str(graph) == str(expected)
    assert [node.op for node in graph.nodes if node.is_region] == [row.symbol for row in module.report().regions]


def test_changing_the_graph_does_not_change_the_module(tmp_path) -> None:
    module = tinycomp.compile(digits_model(), "npu_sim")
    wanted, text = module(IMAGES), str(module.graph)
    module.graph.set_outputs([module.graph.inputs[0]])
    np.testing.assert_array_equal(module(IMAGES), wanted)
    module.save(tmp_path / "m.tcm")
    loaded = tinycomp.load(tmp_path / "m.tcm")
    assert str(loaded.graph) == text
    np.testing.assert_array_equal(loaded(IMAGES), wanted)


def test_the_graph_of_a_module_can_be_compiled_again() -> None:
    module = tinycomp.compile(digits_model(), "npu_sim")
    np.testing.assert_array_equal(tinycomp.compile(module.graph, "npu_sim")(IMAGES), module(IMAGES))


def test_the_graph_of_a_loaded_native_module_knows_types_and_hashes_of_constants(tmp_path) -> None:
    module = tinycomp.compile(digits_model())
    module.save(tmp_path / "m.tcm")
    graph = tinycomp.load(tmp_path / "m.tcm").graph
    assert isinstance(graph, tinycomp.Graph)
    assert str(graph) == str(module.graph)
    verify(graph)
    with pytest.raises(ModelError, match=r'graph ".*", ".*": the elements of a constant are missing\. The graph of'):
        tinycomp.compile(graph)
    with pytest.raises(ModelError, match=r'constant ".*": the elements of a constant are missing\. The graph of a'):
        tinycomp.to_onnx(graph)


TEXT = """graph @g opset {"" = 17} (%x: float32[N, 4]) -> (%y) {
  %a: float32[4] = const [1.0, 2.0, 3.0, 4.0]
  %r: float32[N, 4] = Relu(%x) from ["relu"]
  %s: float32[N, 4] = Add(%r, %a) from ["add"]
  %i: float32[N, 4] = Identity(%s) from ["identity"]
  %t: float32[N, 4] = Relu(%i) from ["relu/1"]
  %d: float32[N, 4] = Dropout(%t) from ["dropout"]
  %y: float32[N, 4] = Sum(%d, %a) from ["sum"]
}"""


def npu() -> tinycomp.Target:
    target = tinycomp.Target("npu")

    @target.composite
    def add_relu(x, a=P.const):
        return P.Relu(P.Add(x, a))

    target.accept("Relu", "Sum", "Dropout")

    @target.codegen
    def build(region):
        kinds = {"npu.add_relu": 1, "Relu": 0, "Sum": 2, "Dropout": 3}
        steps = [kinds[node.op] for node in region.body.nodes]
        a = np.arange(1, 5, dtype=np.float32)

        def run(x):
            for kind in steps:
                x = (np.maximum(x, 0), np.maximum(x + a, 0), x + a, x)[kind]
            return x

        return run

    return target


def test_the_report_names_composites_with_their_nodes() -> None:
    report = tinycomp.compile(parse_graph(TEXT, infer=infer_node_types), npu()).report()
    row = CompositeRow("npu.add_relu", ("Add", "Relu"), ("add", "relu/1"))
    assert [member for region in report.regions for member in region.members] == [row]
    assert report.composite("relu/1") == row
    assert report.composite("relu") is None
    assert Report.from_dict(report.to_dict()) == report


def test_a_model_can_be_partitioned_as_it_stands() -> None:
    graph, x = parse_graph(TEXT, infer=infer_node_types), np.ones((2, 4), np.float32)
    module = tinycomp.compile(graph, npu(), optimize=False, verify=True)
    (region,) = module.report().regions
    assert dict(region.ops) == {"Relu": 2, "Add": 1, "Identity": 1, "Dropout": 1, "Sum": 1}
    (member,) = region.members
    assert member.sources == ("add", "identity", "relu/1")
    np.testing.assert_array_equal(module(x), x + 2 * np.arange(1, 5, dtype=np.float32))


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("target", ["c", "npu_sim", "host"])
def test_models_as_they_stand_give_the_same(target: str, quantized: bool) -> None:
    model = digits_model(quantized=quantized)
    wanted = tinycomp.compile(model, target)(IMAGES)
    module = tinycomp.compile(model, target, optimize=False)
    np.testing.assert_allclose(module(IMAGES), wanted, atol=1e-5 if not quantized else 0.02)
    names = {node.name for node in model.graph.node} if hasattr(model, "graph") else set()
    sources = {source for row in (*module.report().regions, *module.report().hosts) for source in row.sources}
    assert names <= sources
