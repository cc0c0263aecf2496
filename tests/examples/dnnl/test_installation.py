"""The package installed into a fresh environment: found by its name, listed, used on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.examples.dnnl.harness import needs_dnnl
from tests.examples.environments import EXAMPLES, call, environment_with, needs_pip

pytestmark = needs_pip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(EXAMPLES / "dnnl", tmp_path_factory.mktemp("dnnl"))


@pytest.mark.long
def test_the_command_line_lists_the_target(python: Path, tmp_path: Path) -> None:
    targets = json.loads(call(python, "-m", "tinycomp", "targets", "--json", cwd=tmp_path))["targets"]
    (found,) = [t for t in targets if t["name"] == "dnnl"]
    assert found["composites"] == ["conv", "gemm", "matmul", "eltwise"]


@pytest.mark.long
@needs_dnnl
def test_the_command_line_compiles_for_it(python: Path, tmp_path: Path) -> None:
    report = json.loads(call(python, "-m", "tinycomp", "report", "digits", "-t", "dnnl", "--json", cwd=tmp_path))
    assert {region["target"] for region in report["regions"]} == {"dnnl"}
