"""``tinycomp quantize``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tinycomp.cli import exits
from tinycomp.data import digits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Calibration data: single images and a batch."""
    images, _ = digits()
    place = tmp_path / "images"
    place.mkdir()
    for number in range(5):
        np.save(place / f"{number}.npy", images[number : number + 1])
    np.savez(place / "batch.npz", image=images[10:60])
    (place / "notes.txt").write_text("not data")
    return place


def ops(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def test_a_folder_calibrates(call, folder, tmp_path) -> None:
    path = tmp_path / "int8.onnx"
    result = call("quantize", "digits", "--calibration", folder, "-o", path)
    assert result.code == exits.OK, result.err
    assert f"Wrote {path}: {path.stat().st_size:,} bytes, " in result.out.replace("\n", " ")
    assert ops(path).count("QuantizeLinear") == 12
    assert "labels" not in result.out
    assert call("verify", path, "--random", 0).code == exits.OK


def test_options_arrive(call, folder, tmp_path) -> None:
    plain, other = tmp_path / "plain.onnx", tmp_path / "other.onnx"
    call("quantize", "digits", "--calibration", folder, "-o", plain)
    result = call(
        "quantize", "digits", "--calibration", folder / "batch.npz", "-o", other, "--keep-float", "last 2 conv",
        "--keep-float", "Gemm", "--activations", "int8", "--symmetric", "--per-tensor", "--reduce-range",
        "--method", "percentile", "--percentile", 99.9, "--no-bias-correction", "--equalize", "--json",
    )  # fmt: skip
    assert result.json["bytes"] == other.stat().st_size
    assert ops(other).count("QuantizeLinear") < ops(plain).count("QuantizeLinear")
    arrays = [onnx.numpy_helper.to_array(t) for t in onnx.load(other).graph.initializer]
    weights = [a for a in arrays if a.dtype == np.int8 and a.ndim == 4]
    assert len(weights) == 4
    assert all(np.abs(w.astype(int)).max() == 64 for w in weights)


def test_the_noise_of_every_layer(call) -> None:
    result = call("quantize", "digits", "--calibration", "digits", "--noise", "--json")
    noise = result.json["noise"]
    assert [row["op"] for row in noise["layers"]].count("Conv") == 6
    assert noise["output"] > 20
    text = call("quantize", "digits", "--calibration", "digits", "--noise").out
    assert "stem/conv" in text
    assert "Worth keeping in float" in text


def test_weights_in_four_bits(call, tmp_path) -> None:
    path, coarse = tmp_path / "int4.onnx", tmp_path / "coarse.onnx"
    result = call("quantize", "digits", "--weights", "int4", "-o", path, "--json")
    assert result.json["bytes"] == path.stat().st_size
    assert "MatMulNBits" in ops(path)
    options = ("--block", 64, "--accuracy-level", 4, "--no-symmetric", "--method", "gptq", "--calibration", "digits")
    assert call("quantize", "digits", "--weights", "int4", *options, "-o", coarse).code == exits.OK
    (node,) = (n for n in onnx.load(coarse).graph.node if n.op_type == "MatMulNBits")
    found = {a.name: a.i for a in node.attribute}
    assert (found["block_size"], found["accuracy_level"]) == (64, 4)
    assert len(node.input) == 4
    assert call("verify", coarse, "--random", 0).code == exits.OK


def test_a_model_for_a_target_obeys_it_and_another_does_not(call, tmp_path) -> None:
    path, other = tmp_path / "npu.onnx", tmp_path / "other.onnx"
    assert call("quantize", "digits", "--calibration", "digits", "--target", "tosa", "-o", path).code == exits.OK
    result = call("quantize", path, "--check", "--target", "tosa")
    assert (result.code, result.out) == (exits.OK, "Every quantised layer obeys the rules of tosa.\n")
    model = onnx.load(path)
    (gemm,) = (node for node in model.graph.node if node.op_type == "Gemm")
    (rounding,) = (node for node in model.graph.node if node.input[0] == gemm.output[0])
    (scale,) = (t for t in model.graph.initializer if t.name == rounding.input[1])
    scale.raw_data = np.float32(1e-30).tobytes()  # sums times a ratio that no multiplier has
    onnx.save(model, other)
    result = call("quantize", other, "--check", "--target", "tosa")
    assert result.code == exits.FAILED
    assert "1 layer(s) do not obey the rules of tosa." in result.out
    (row,) = call("quantize", other, "--check", "--target", "tosa", "--json").json["violations"]
    assert (row["target"], row["op"]) == ("tosa", "Gemm")
    assert row["reason"] == "a ratio of scales leaves the range of RESCALE"
    assert row["remedy"].startswith("quantise the weight symmetrically, or the result")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--weights", "int4", "--noise"), "--noise does not go with these weights expected: --weights int8"),
        (
            ("--weights", "int4", "-o", "x.onnx", "--block", 7),
            "block cannot have this value where: block expected: one of 16",
        ),
        (("--weights", "int4", "-o", "x.onnx", "--method", "gptq"), "there is no calibration data where: calibration"),
        (("--calibration", "digits"), "there is nothing to do expected: -o FILE.onnx, --noise, or both"),
        (("--check",), "--check looks at a quantised model expected: --check --target NAME"),
        (("--check", "--target", "c"), "the target says nothing about quantisation where: target c"),
        (("-o", "x.onnx"), "the following arguments are required: --calibration"),
        (("--calibration", "nowhere", "-o", "x.onnx"), "there is no calibration data here where: nowhere"),
        (("--calibration", ".", "-o", "x.onnx"), "there is no calibration data here where: ."),
        (("--calibration", "digits", "-o", "x.onnx", "--keep-float", "last 9 conv"), "asks for more layers"),
        (("--calibration", "text.npy", "-o", "x.onnx"), "cannot be read as arrays where: text.npy"),
        (("--calibration", "wide.npy", "-o", "x.onnx"), "calibration input 0, "),
    ],
)
def test_what_is_wrong_is_said(call, tmp_path, monkeypatch, arguments, message) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("text.npy", "wide.npy"):
        if name in arguments:
            (tmp_path / "text.npy").write_text("text")
            np.save(tmp_path / "wide.npy", np.zeros((1, 1, 9, 9), np.float32))
    result = call("quantize", "digits", *arguments)
    assert result.code == exits.USAGE
    assert message in result.error
    assert not (tmp_path / "x.onnx").exists()
