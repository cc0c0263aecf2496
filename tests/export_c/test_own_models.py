"""Models of ONNX's own tests as projects, built with the sanitizers: as many as an environment variable says."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.fuzz.corpus import NODES
from tests.fuzz.exported import own_models

COUNT = "TINYCOMP_EXPORTED_MODELS"
"""How many; by default one, without the tests of single operators, which take long to make."""


@pytest.mark.long
def test_models_of_onnx_have_the_results_of_the_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    if COUNT not in os.environ:
        monkeypatch.setenv(NODES, "0")
    wanted = int(os.environ.get(COUNT, "1"))
    seen = own_models(wanted, 0)
    assert not seen["wrong"], capsys.readouterr().out
    assert seen["exported"] == wanted
