"""ONNX models with EPContext nodes: attributes, files, weights stored once, what stays ONNX, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tinycomp
from tests.driver.test_blobs import Device, X, model
from tinycomp.cli import main
from tinycomp.errors import UnsupportedError
from tinycomp.runtime.blob import Blob

FACTOR = np.float32([2.0] * 4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "kept"))


def exported(module: tinycomp.Module, path: Path, **about: Any) -> onnx.ModelProto:
    tinycomp.to_ep_context(module, path, **about)
    return onnx.load(path)


def contexts(proto: onnx.ModelProto) -> list[dict[str, Any]]:
    return [
        {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        for node in proto.graph.node
        if (node.domain, node.op_type) == ("com.microsoft", "EPContext")
    ]


def test_a_region_becomes_a_node_that_holds_its_blob(tmp_path: Path) -> None:
    module = tinycomp.compile(model(2.0), Device(version="1.5").target)
    proto = exported(module, tmp_path / "m.onnx")
    onnx.checker.check_model(proto)
    assert [node.op_type for node in proto.graph.node] == ["EPContext", "Neg"]
    assert contexts(proto) == [
        {
            "main_context": 1,
            "embed_mode": 1,
            "partition_name": b"scaler_0",
            "source": b"scaler",
            "ep_sdk_version": b"1.5",
            "ep_cache_context": FACTOR.tobytes(),
        }
    ]
    context, neg = proto.graph.node
    assert (context.input, context.output, neg.input, neg.output) == (["x"], ["p0"], ["p0"], ["y"])
    assert {entry.domain: entry.version for entry in proto.opset_import}["com.microsoft"] == 1
    assert not proto.functions
    assert [v.name for v in (*proto.graph.input, *proto.graph.output)] == ["x", "y"]


def test_blobs_may_be_files_beside_the_model(tmp_path: Path) -> None:
    module = tinycomp.compile(model(2.0, 3.0, 2.0), Device().target)
    proto = exported(module, tmp_path / "m.onnx", embed=False, sources={"scaler": "AcmeExecutionProvider"})
    found = contexts(proto)
    assert {c["source"] for c in found} == {b"AcmeExecutionProvider"}
    assert {c["embed_mode"] for c in found} == {0}
    names = [c["ep_cache_context"].decode() for c in found]
    assert names[0] == names[2] != names[1]
    for name, factor in zip(names, (2.0, 3.0, 2.0), strict=True):
        assert (tmp_path / name).read_bytes() == np.float32([factor] * 4).tobytes()
    assert len([*tmp_path.glob("m_*.bin")]) == 2


def test_arrays_are_initializers_stored_once(tmp_path: Path) -> None:
    module = tinycomp.compile(model(2.0, 3.0, 2.0), Device(arrays=True).target)
    proto = exported(module, tmp_path / "m.onnx")
    stored = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    assert len(stored) == 2
    nodes = [node for node in proto.graph.node if node.op_type == "EPContext"]
    assert [stored[node.input[1]][0] for node in nodes] == [2.0, 3.0, 2.0]
    assert {c["notes"] for c in contexts(proto)} == {b"operands from 1 on: factor"}


def test_a_region_that_comes_again_refers_to_the_first(tmp_path: Path) -> None:
    path = tmp_path / "branches.onnx"
    inner = [onnx.helper.make_node("Mul", ["x", "f"], ["p"]), onnx.helper.make_node("Neg", ["p"], ["r"])]
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [3, 4]) for n in "xy"]
    function = onnx.helper.make_function("local", "Twice", ["x", "f"], ["r"], inner, [onnx.helper.make_opsetid("", 17)])
    calls = [
        onnx.helper.make_node("Twice", ["x", "f"], ["h"], domain="local"),
        onnx.helper.make_node("Twice", ["h", "f"], ["y"], domain="local"),
    ]
    graph = onnx.helper.make_graph(calls, "g", info[:1], info[1:], [numpy_helper.from_array(FACTOR, "f")])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("local", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9), path)
    module = tinycomp.compile(path, Device().target)
    proto = exported(module, tmp_path / "m.onnx")
    onnx.checker.check_model(proto)
    found = contexts(proto)
    symbols = [c["partition_name"] for c in found]
    assert [c["main_context"] for c in found] == [int(s not in symbols[:i]) for i, s in enumerate(symbols)]
    assert all(("ep_cache_context" in c) == bool(c["main_context"]) for c in found)


def test_what_became_no_blob_stays_onnx(tmp_path: Path) -> None:
    module = tinycomp.compile(model(2.0), [Device().target, "c"])
    proto = exported(module, tmp_path / "m.onnx")
    assert proto.graph.node[0].op_type == "EPContext"
    assert [f.node[0].op_type for f in proto.functions] == ["Neg"]


def test_loaded_modules_are_exported_too(tmp_path: Path) -> None:
    module = tinycomp.compile(model(2.0), Device().target)
    loaded = tinycomp.load(module.to_bytes(), targets=[Device().target])
    first, second = (exported(m, tmp_path / f"{i}.onnx") for i, m in enumerate((module, loaded)))
    assert first == second


def test_a_module_without_blobs_is_refused(tmp_path: Path) -> None:
    message = r"no region of the module became a blob; expected a target whose .* a Blob; found c\. Graphs without"
    for module in (tinycomp.compile(model(2.0)), tinycomp.compile(model(2.0, shape="N, 4"))):
        with pytest.raises(UnsupportedError, match=message):
            tinycomp.to_ep_context(module, tmp_path / "m.onnx")
    with pytest.raises(UnsupportedError, match="found no region"):
        tinycomp.to_ep_context(tinycomp.compile(model(2.0), "host"), tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_blobs_for_some_sizes_are_refused(tmp_path: Path) -> None:
    module = tinycomp.compile(model(2.0, shape="N, 4"), Device(static_shapes=True).target)
    module(X)
    message = r"scaler, region scaler_0: the region has a blob for every set of sizes.*Compile with shapes="
    with pytest.raises(UnsupportedError, match=message):
        tinycomp.to_ep_context(module, tmp_path / "m.onnx")


def halver() -> tinycomp.Target:
    """Return a target that an entry point could name."""
    target = tinycomp.Target("halver")
    target.accept("Mul")
    target.codegen(lambda region: Blob(b"half", version="2"))
    target.loader(lambda blob: lambda x: x / 2)
    return target


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tinycomp.target.lookup._installed", lambda: {"halver": f"{__name__}:halver"})
    (tmp_path / "m.tir").write_text(str(model(0.5)))
    options = ["compile", str(tmp_path / "m.tir"), "-t", "halver", "--emit", "ep-context"]
    assert main([*options, "-o", str(tmp_path / "m.onnx"), "--context-files"]) == 0
    (context,) = contexts(onnx.load(tmp_path / "m.onnx"))
    assert (context["embed_mode"], context["ep_sdk_version"]) == (0, b"2")
    assert (tmp_path / context["ep_cache_context"].decode()).read_bytes() == b"half"
    capsys.readouterr()
    assert main(options) == 2
    assert "ONNX is binary" in capsys.readouterr().err
    assert main(["compile", "digits", "--context-files"]) == 2
    assert "there are no contexts" in capsys.readouterr().err
