"""A target from a package of its own: installed into a fresh environment, found by name, used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

import tinycomp

MISSING = [name for name in ("pip", "setuptools") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"building and installing the package needs {MISSING}")

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "toy_npu"
PACKAGES = Path(tinycomp.__file__).resolve().parents[1]
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
    """The interpreter of an environment with the package; all else comes from the environment of the tests."""
    folder = tmp_path_factory.mktemp("toy_npu")
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    around = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(PACKAGES)}
    (site / "around.pth").write_text("".join(f"{path}\n" for path in sorted(around)))
    shutil.copytree(SOURCE, folder / "source")  # a build leaves files behind
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    call(python, "-m", "pip", "install", *options, folder / "source")
    return python


def call(python: Path, *arguments: object, cwd: Path | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    done = subprocess.run(
        [python, *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_package_is_not_here_otherwise() -> None:
    assert "toy_npu" not in sys.modules
    listed = call(Path(sys.executable), "-c", f"import sys; sys.path.insert(0, {str(PACKAGES)!r})\n"
                  "import tinycomp.target; print(tinycomp.target.names())")  # fmt: skip
    assert "toy_npu" not in listed


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
