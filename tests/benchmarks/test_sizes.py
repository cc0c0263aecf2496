"""Models whose sizes change, and the measurement of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks import changing, peers, sizes
from benchmarks.call_overhead import relu_model
from benchmarks.worker import worker

BUILT = ("graph convolution", "suppression", "autoencoder")
"""Models that neither need PyTorch nor are large."""


def sizes_row(**more: Any) -> dict[str, Any]:
    def engine(new: float, again: float) -> dict[str, Any]:
        both = {"new": new, "again": again, "twice": again}
        return {"growth": 2e6, **{kind: {"median": s, "minimum": s / 2, "worst": s} for kind, s in both.items()}}

    engines = {"tinycomp": engine(0.4, 0.1) | {"programs": [1, 9]}, "onnxruntime": engine(0.2, 0.2)}
    symbolic = [{"sizes": [3], "median": 1.5, "minimum": 1.25}]
    row = {"model": "net", "threads": 1, "sizes": 8, "engines": engines, "symbolic": symbolic, "error": 0.0}
    return {**row, "agrees": True, **more}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYCOMP_CORPUS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", changing.MODELS)
def test_a_sequence_holds_each_size_once(name: str) -> None:
    model = changing.MODELS[name]
    few = model.sequence(5)
    assert len(set(few)) == 5
    assert {model.sizes[0], model.sizes[-1]} <= set(few) <= set(model.sizes)
    assert few == model.sequence(5)
    assert sorted(model.sequence(10**6)) == sorted(model.sizes)
    assert 16 <= len(model.sequence()) <= 512


@pytest.mark.parametrize("name", BUILT)
def test_models_are_valid_and_run_at_their_least_and_greatest_size(name: str, folder: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="runs the models")
    model, file = changing.MODELS[name], changing.path(name)
    onnx.checker.check_model(file, full_check=True)
    assert (file.parent, changing.path(name)) == (folder, file)
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    for each in (model.sizes[0], model.sizes[-1]):
        results = session.run(None, model.feeds(each, np.random.default_rng(0)))
        assert all(result.size for result in results), (name, each)


def test_how_many_boxes_survive_depends_on_what_is_seen(folder: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="runs the model")
    session = ort.InferenceSession(changing.path("suppression"), providers=["CPUExecutionProvider"])
    make = changing.MODELS["suppression"].feeds
    counts = [len(session.run(None, make((n,), np.random.default_rng(n)))[0]) for n in range(1, 9)]
    assert len(set(counts)) > 4


@pytest.mark.parametrize("name", ["lstm", "detector"])
def test_exported_models_have_symbols(name: str, folder: Path) -> None:
    pytest.importorskip("torch", reason="exporting needs PyTorch")
    (image,) = onnx.load(changing.path(name)).graph.input
    dims = {dim.dim_param for dim in image.type.tensor_type.shape.dim} - {""}
    assert dims == {"lstm": {"batch", "frames"}, "detector": {"batch", "height", "width"}}[name]


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status tells of memory on Linux only")
def test_a_measurement_of_few_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the engine that is compared with")
    engines = ["--engines", "tinycomp", "onnxruntime"]
    given = ["autoencoder", "--quick", "--count", "4", "--threads", "1", *engines, "--output", str(folder / "f")]
    assert sizes.main(given) == 0
    found = json.loads((folder / "f" / "sizes.json").read_text())
    (row,) = found["rows"]
    assert sizes.line(row, found["engines"]) in capsys.readouterr().out
    assert (row["sizes"], row["agrees"]) == (3, True)
    assert row["error"] < 1e-4
    assert len(row["symbolic"]) == 3
    assert row["engines"]["tinycomp"]["programs"][0] >= 1
    for figures in row["engines"].values():
        assert all(0 < figures[kind]["minimum"] <= figures[kind]["worst"] for kind in sizes.KINDS)


def test_the_line_of_a_row() -> None:
    assert sizes.line(sizes_row(), ["tinycomp", "onnxruntime"]) == (
        "| net | 1 | 8 | 400.000 (200.000) | 100.000 (50.000) | 100.000 (50.000) | 0.50 (0.50) | 2.00 (2.00) "
        "| 2.00 (2.00) | 4.00 (4.00) | 1.50 (1.25) | 1 to 9 | 2, 2 | 0.0e+00 |"
    )


def test_an_engine_that_fails_says_why() -> None:
    row = sizes_row(agrees=False)
    row["engines"]["onnxruntime"] = {"error": "E: x"}
    assert "| E: x | E: x | E: x |" in sizes.line(row, ["tinycomp", "onnxruntime"])
    row["engines"]["tinycomp"] = {"error": "F: y"}
    assert "| F: y | F: y | F: y |" in sizes.line(row, ["tinycomp", "onnxruntime"])


def test_figures_are_over_rounds_and_then_over_sizes() -> None:
    figures = sizes._figures([[1.0, 4.0], [3.0, 8.0], [2.0, 9.0]])
    assert figures == {"median": 5.0, "minimum": 2.5, "worst": 4.0}


def test_our_programs_are_counted() -> None:
    import tinycomp

    before = sizes.programs()
    module = tinycomp.compile(relu_model(), target="c", threads=1)
    assert sizes.programs() == before + 1
    del module
    assert sizes.programs() == before


def test_no_engine_is_told_sizes_that_the_file_leaves_open(tmp_path: Path) -> None:
    (tmp_path / "relu.onnx").write_bytes(relu_model("n"))
    for name in {"tinycomp", "onnxruntime", "openvino"} & set(peers.installed()):
        run = peers.ENGINES[name].load(tmp_path / "relu.onnx", 1, {"x": np.ones(8, np.float32)})
        for count in (8, 3):
            (found,) = run({"x": np.full(count, -1, np.float32)})
            assert found.tolist() == [0.0] * count


def test_an_object_in_another_process_answers() -> None:
    with worker("collections", "Counter", "abca") as counter:
        assert counter.ask("most_common", 1) == [("a", 2)]
        assert counter.ask("pop", "z") is None
        assert counter.error == "KeyError: 'z'"
        assert counter.ask("most_common", 1) is None


def test_what_an_object_prints_is_no_answer() -> None:
    with worker("code", "InteractiveInterpreter") as interpreter:
        assert interpreter.ask("runsource", "print('a line')") is False
        assert interpreter.ask("runsource", "(") is True
        assert not interpreter.error


def test_an_object_that_cannot_be_made_says_why() -> None:
    with worker("collections", "Nothing") as nothing:
        assert nothing.error == "AttributeError: module 'collections' has no attribute 'Nothing'"
    with worker("collections", "Counter", python="/bin/false") as counter:
        assert counter.error == "the process ended"
