"""A target from a package of its own: installed into a fresh environment, found by name, used."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.examples.environments import EXAMPLES, PACKAGES, call, environment_with, needs_pip

pytestmark = needs_pip

USE = """
import json
import numpy as np
import tinycomp
from tinycomp.ir import Graph, TensorType

def layer(graph, x, inputs, outputs):
    weight = np.linspace(-1, 1, inputs * outputs, dtype=np.float32).reshape(outputs, inputs)
    operands = [x, graph.add_const(weight, "w"), graph.add_const(np.ones(outputs, np.float32), "b")]
    return graph.add("Gemm", operands, {"transB": 1}, sources=[f"dense{outputs}"]).output

graph = Graph("mlp", opsets={"": 17})
x = graph.add_input("x", TensorType("float32", (2, 4)))
hidden = graph.add("Relu", [layer(graph, x, 4, 8)]).output
graph.set_outputs([layer(graph, graph.add("Add", [hidden, hidden]).output, 8, 3)], ["y"])
module = tinycomp.compile(graph, target="toy_npu", verify=True)
feed = np.arange(8, dtype=np.float32).reshape(2, 4)
report = module.report()
module.save("m.tcm")
print(json.dumps({
    "difference": float(np.abs(module(feed) - tinycomp.compile(graph, "host")(feed)).max()),
    "after_loading": bool((tinycomp.load("m.tcm")(feed) == module(feed)).all()),
    "regions": [r.target for r in report.regions],
    "host": {h.name: str(h.reasons) for h in report.hosts},
}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the package."""
    return environment_with(EXAMPLES / "toy_npu", tmp_path_factory.mktemp("toy_npu"))


def test_the_package_is_not_here_otherwise() -> None:
    assert "toy_npu" not in sys.modules
    listed = call(Path(sys.executable), "-c", f"import sys; sys.path.insert(0, {str(PACKAGES)!r})\n"
                  "import tinycomp.target; print(tinycomp.target.names())")  # fmt: skip
    assert "toy_npu" not in listed


@pytest.mark.long
def test_the_command_line_lists_it(python: Path, tmp_path: Path) -> None:
    targets = json.loads(call(python, "-m", "tinycomp", "targets", "--json", cwd=tmp_path))["targets"]
    (toy,) = [t for t in targets if t["name"] == "toy_npu"]
    assert toy["error"] == ""
    assert toy["composites"] == ["dense"]
    assert toy["operators"] == ["Add"]


def test_a_model_is_compiled_for_it_by_name(python: Path, tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE)
    found = json.loads(call(python, "use.py", cwd=tmp_path))
    assert found["difference"] < 1e-5
    assert found["after_loading"]
    assert found["regions"] == ["toy_npu"]
    assert list(found["host"]) == ["dense3"]
    assert "outputs must be a multiple of 8, got 3" in found["host"]["dense3"]
