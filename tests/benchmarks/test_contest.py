from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as launcher
from benchmarks import call_overhead, models
from benchmarks.call_overhead import callers, relu_model
from benchmarks.contest import Effort, Result, contest
from benchmarks.feeds import random_feeds
from benchmarks.peers import relative_error

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def relu(tmp_path: Path) -> Path:
    path = tmp_path / "relu.onnx"
    path.write_bytes(relu_model())
    return path


def result(engine: str, samples: list[float], output: list[float]) -> Result:
    return Result(engine, 0.1, 0.1, samples, [np.array(output, np.float32)])


def test_engines_take_turns_and_give_their_first_outputs(relu: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the engine of this test")
    feeds = {"x": np.arange(-4, 4, dtype=np.float32)}
    effort = Effort(rounds=2, block=0.01, pause=0.0)
    (measured,) = contest(relu, feeds, ["onnxruntime"], threads=1, effort=effort)
    np.testing.assert_array_equal(measured.outputs[0], np.maximum(feeds["x"], 0))
    assert not measured.error
    assert len(measured.samples) >= 2 * 3
    assert 0 < measured.minimum <= measured.median < 1


def test_a_failing_engine_says_why(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the engine of this test")
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    (failed,) = contest(tmp_path / "bad.onnx", {}, ["onnxruntime"], threads=1, effort=Effort(rounds=1))
    assert "InvalidProtobuf" in failed.error
    assert not failed.samples


def test_ratios_are_peer_over_ours() -> None:
    row = models.make_row(
        "m", [result("tinycomp", [2.0, 1.0, 4.0], [1, 2]), result("onnxruntime", [3.0, 2.0, 8.0], [1, 2])]
    )
    assert row["ratios"] == {"onnxruntime": {"median": 1.5, "minimum": 2.0}}
    assert (row["error"], row["agrees"]) == (0.0, True)


def test_a_wrong_output_is_told() -> None:
    engines = ["tinycomp", "onnxruntime"]
    row = models.make_row("m", [result(engines[0], [1.0], [1, 2.2]), result(engines[1], [1.0], [1, 2])])
    assert row["error"] == pytest.approx(0.1)
    assert not row["agrees"]
    assert (
        models.line(row, engines) == "| m | 1000.000 (1000.000) | 1000.000 (1000.000) | 1.00 (1.00) | 1.0e-01 differs |"
    )


def test_a_failure_of_ours_is_no_agreement() -> None:
    row = models.make_row("m", [Result("tinycomp", error="ModelError: a | b"), result("onnxruntime", [1.0], [1])])
    assert (row["ratios"], row["agrees"]) == ({}, False)
    assert "ModelError: a \\| b" in models.line(row, ["tinycomp", "onnxruntime"])


def test_means_are_geometric() -> None:
    rows = [{"ratios": {"a": {"median": 1.0}, "b": {"median": 2.0}}}, {"ratios": {"a": {"median": 4.0}}}]
    text = models.means(rows, ["tinycomp", "a", "b"])
    assert (
        text == "Geometric means of medians: a / ours 2.000 over 2, b / ours 2.000 over 1, fastest peer / ours 2.000."
    )


def test_means_of_nothing_are_said_to_be_nothing() -> None:
    assert models.means([], ["tinycomp"]) == "Geometric means of medians: fastest peer / ours n/a."


@pytest.mark.parametrize(
    ("found", "wanted", "error"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.inf], [np.inf], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0], [[1.0]], np.inf),
        ([], [], 0.0),
    ],
)
def test_relative_error(found: list[float], wanted: list[float], error: float) -> None:
    assert relative_error(np.array(found), np.array(wanted)) == error


def test_feeds_fit_the_model(relu: Path) -> None:
    first, again, other = random_feeds(relu), random_feeds(relu), random_feeds(relu, seed=1)
    assert (first["x"].shape, first["x"].dtype) == ((8,), np.float32)
    np.testing.assert_array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], other["x"])


def test_symbolic_sizes_are_given_or_one() -> None:
    from tinycomp.data import digits_model

    assert random_feeds(digits_model())["image"].shape == (1, 1, 8, 8)
    assert random_feeds(digits_model(), {"N": 3})["image"].shape == (3, 1, 8, 8)


@pytest.mark.parametrize("size", [8, "n"])
def test_calls_are_timed_for_fixed_and_symbolic_sizes(size: int | str) -> None:
    pytest.importorskip("onnxruntime", reason="the engine that is compared with")
    for call in callers(relu_model(size)).values():
        call()


def test_the_table_of_calls_has_both_kinds_of_model(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="the engine that is compared with")
    assert call_overhead.main(["--rounds", "1", "--calls", "2"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| tinycomp", "| onnxruntime"))]
    assert len(lines) == 8
    assert sum("symbolic size" in line for line in lines) == 4


def test_every_measurement_can_be_started_by_name() -> None:
    known = launcher.available()
    assert {"models", "call-overhead", "corpus", "sizes", "decode"} <= known.keys()
    assert all(known.values())
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "models", "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert "--threads" in run.stdout


def test_an_unknown_measurement_is_refused_with_the_known_ones() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "model"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 2
    assert "call-overhead" in run.stdout
