from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import memory
from benchmarks.call_overhead import relu_model

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status tells of memory on Linux only")
WEIGHT_BYTES = 48 << 20


@pytest.fixture
def heavy(tmp_path: Path) -> Path:
    """A matrix product with weights that stand out of everything else that a process holds."""
    columns = WEIGHT_BYTES // 4 // 1024
    weights = numpy_helper.from_array(np.ones((1024, columns), np.float32), "w")
    types = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, s]) for n, s in (("x", 1024), ("y", columns))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "heavy", types[:1], types[1:], [weights])
    path = tmp_path / "heavy.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.mark.long
@linux
def test_the_peak_holds_the_weights_at_least_once(heavy: Path) -> None:
    peak = memory.peak_memory("tinycomp", heavy, {"x": np.ones((1, 1024), np.float32)}, threads=1)
    assert peak.added >= WEIGHT_BYTES
    assert 0 < peak.imported <= peak.load <= peak.run
    assert peak.anonymous <= peak.resident <= peak.run


@pytest.mark.long
@linux
def test_an_engine_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeError, match="not a complete ONNX protobuf"):
        memory.peak_memory("tinycomp", tmp_path / "bad.onnx", {}, threads=1)


@pytest.mark.long
@linux
def test_the_table_and_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, figures = tmp_path / "relu.onnx", tmp_path / "figures.json"
    model.write_bytes(relu_model())
    assert memory.main([str(model), "--engines", "tinycomp", "--json", str(figures)]) == 0
    (row,) = json.loads(figures.read_text())["rows"]
    assert memory.line(row, ["tinycomp"]) in capsys.readouterr().out
    assert row["engines"]["tinycomp"]["run"] > 10_000_000


def figures(added: float, run: float) -> dict[str, Any]:
    return {"added": added * 1e6, "run": run * 1e6, "resident": 90e6}


def test_a_ratio_is_the_smallest_peer_over_ours() -> None:
    engines = {"tinycomp": figures(50, 100), "a": figures(80, 150), "b": figures(40, 120), "c": {"error": "E: x | y"}}
    row = {"model": "m", "file": 2e6, "engines": engines}
    assert memory.line(row, list(engines)) == (
        "| m | 2 | 100 (50, 90) | 150 (80, 90) | 120 (40, 90) | E: x \\| y | 1.20 (0.80) |"
    )


def test_without_a_peer_there_is_no_ratio() -> None:
    row = {"model": "m", "file": 2e6, "engines": {"tinycomp": figures(50, 100)}}
    assert memory.line(row, ["tinycomp"]) == "| m | 2 | 100 (50, 90) |  |"
