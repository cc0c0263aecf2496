from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tinycomp.cli import main


@dataclass
class Result:
    """What one call of the command line left behind; line breaks of wrapped messages count as spaces."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        return " ".join(self.err.split())

    @property
    def json(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.out)
        return data


Call = Callable[..., Result]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Call the command line in this process."""

    def run(*arguments: object) -> Result:
        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """An input of the digits model."""
    path = tmp_path / "image.npy"
    np.save(path, np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 1, 8, 8))
    return path


@pytest.fixture
def two_inputs(tmp_path: Path) -> Path:
    """A model that adds ``ids`` (int64) to ``offset`` (int64, with a default)."""
    infos = [helper.make_tensor_value_info(n, TensorProto.INT64, ["N"]) for n in ("ids", "offset", "sum")]
    graph = helper.make_graph(
        [helper.make_node("Add", ["ids", "offset"], ["sum"], "plus")], "two", infos[:2], infos[2:]
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.int64([7]), "offset"))
    return _save(tmp_path / "two.onnx", graph)


@pytest.fixture
def unknown_op(tmp_path: Path) -> Path:
    """A model with an operator that ONNX does not have."""
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Rleu", ["x"], ["y"], "act")], "g", infos[:1], infos[1:])
    return _save(tmp_path / "unknown.onnx", graph)


def _save(path: Path, graph: onnx.GraphProto) -> Path:
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
