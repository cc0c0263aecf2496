"""The files for Model Explorer: every edge leads somewhere, layers nest, and its own types accept them."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.host_only import QUALIFIED, relu_or_host_only
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.runtime.report import Report


@pytest.fixture(scope="module")
def report() -> Report:
    module = tinycomp.compile(digits_model(), ["npu_sim", "c"], place={"softmax": "host"})
    module.profile(digits()[0][:2], runs=1)
    return module.report()


@pytest.fixture(scope="module")
def files(report: Report, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    paths = report.save_model_explorer(tmp_path_factory.mktemp("explorer") / "out")
    assert paths[0].name == "graph.json"
    return {path.stem: json.loads(path.read_text("utf-8")) for path in paths}


def test_there_is_a_graph_and_three_overlays_for_it_and_for_the_model(files) -> None:
    overlays = {"target", "reason", "time"}
    assert set(files) == {"graph", *overlays, *(f"onnx-{name}" for name in overlays)}


def test_edges_lead_from_inputs_to_outputs_through_all_borders(files) -> None:
    (graph,) = files["graph"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"])
    reached = {"input0"}
    for node in graph["nodes"]:
        for edge in node["incomingEdges"]:
            assert edge["sourceNodeId"] in nodes
    before = 0
    while len(reached) != before:
        before = len(reached)
        reached |= {i for i, n in nodes.items() if any(e["sourceNodeId"] in reached for e in n["incomingEdges"])}
    assert reached == set(nodes)
    conv = next(node for node in graph["nodes"] if node["label"] == "Conv")
    assert conv["namespace"].split("/")[0] == "npu_sim_0"
    assert conv["namespace"].split("/")[1].startswith("npu_sim.conv ")
    assert all(namespace in graph["groupNodeAttributes"] for namespace in ("npu_sim_0", conv["namespace"]))
    softmax = next(node for node in graph["nodes"] if node["label"] == "Softmax")
    attributes = {pair["key"]: pair["value"] for pair in softmax["attrs"]}
    assert attributes["target"] == "host"
    assert attributes["why not, 1"] == 'policy: placed by "softmax": host'
    assert float(attributes["milliseconds"]) > 0


def test_overlays_name_nodes_of_the_graph_and_of_the_model(files) -> None:
    (graph,) = files["graph"]
    ids = {node["id"] for node in graph["nodes"]}
    model = onnx.load_from_string(data) if isinstance(data := digits_model(), bytes) else onnx.load(data)
    names = {node.name for node in model.graph.node}
    for name in ("target", "reason", "time"):
        ((of, data),) = files[name].items()
        assert of == graph["id"]
        assert data["results"].keys() <= ids
        assert files[f"onnx-{name}"]["results"].keys() <= names
    assert files["onnx-target"]["results"].keys() == names  # norms, too, which were folded into convolutions
    assert files["onnx-target"]["results"]["softmax"]["value"] == "host"
    assert files["onnx-target"]["results"]["stem/conv"]["value"] == "npu_sim"
    assert files["onnx-time"]["results"]["dense"]["value"] > 0


def test_edges_cross_the_bodies_of_control_flow(tmp_path: Path) -> None:
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    model = make_model(
        [
            relu_or_host_only("z"),
            helper.make_node("Neg", ["z"], ["y"], name="neg"),
        ],
        {"x": x, "c": np.array(True)},
        {},
        ["y"],
    )
    paths = tinycomp.compile(model).report().save_model_explorer(tmp_path)
    (graph,) = json.loads(paths[0].read_text("utf-8"))
    assert not (tmp_path / "time.json").exists()  # nothing was measured
    label = {node["id"]: node["label"] for node in graph["nodes"]}
    sources = {n["label"]: sorted(label[e["sourceNodeId"]] for e in n["incomingEdges"]) for n in graph["nodes"]}
    assert sources["Relu"] == ["x"]
    assert sources["Neg"] == ["Relu", QUALIFIED]
    assert sources["y"] == ["Neg"]


def test_the_types_of_the_installed_model_explorer_take_it_all(files, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec("model_explorer")
    if found is None:
        pytest.skip("ai-edge-model-explorer is not installed")
    # The package itself imports torch and IPython where they are; its types need neither.
    package = types.ModuleType("model_explorer")
    package.__path__ = list(found.submodule_search_locations or ())
    monkeypatch.setitem(sys.modules, "model_explorer", package)
    builder = importlib.import_module("model_explorer.graph_builder")
    data = importlib.import_module("model_explorer.node_data_builder")
    dacite = pytest.importorskip("dacite")
    strict = dacite.Config(strict=True)
    for graph in files["graph"]:
        dacite.from_dict(builder.Graph, graph, strict)
    # Words are values, too, which its page shows, though its types say numbers alone.
    loose = dacite.Config(strict=True, check_types=False)
    for name in ("target", "reason", "time"):
        for overlay in files[name].values():
            dacite.from_dict(data.GraphNodeData, overlay, strict if name == "time" else loose)
        dacite.from_dict(data.GraphNodeData, files[f"onnx-{name}"], strict if name == "time" else loose)
