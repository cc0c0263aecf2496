"""The measurement of decoders, with tiny ones."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import decode
from benchmarks.architectures.decoders import TINY

ENGINES = ["tinycomp", "onnxruntime", "llama.cpp"]


def decode_row() -> dict[str, Any]:
    def engine(step: float) -> dict[str, Any]:
        times = {"generate": {"median": step, "minimum": step / 2}, "prefill": {"median": 1.0, "minimum": 0.5}}
        share = {"median": 0.25, "minimum": 0.5}
        return {**times, "bytes": 1e6, "prompt": 64, "share": share}

    engines = {"tinycomp": engine(0.01), "onnxruntime": engine(0.02), "llama.cpp": {"error": "E: x"}}
    return {"model": "net", "threads": 1, "engines": engines, "bandwidth": 9.87e9, "error": 0.0, "agrees": True}


def test_the_line_of_a_row() -> None:
    assert decode.line(decode_row(), ENGINES) == (
        "| net | 1 | 100.0 (200.0) | 50.0 (100.0) | E: x | 64.0 (128.0) | 64.0 (128.0) | E: x | 2.00 (2.00) |  "
        "| 1.00 (1.00) |  | 9.9 | 25% (50%) | 25% (50%) |  | 0.0e+00 |"
    )
    assert decode.heading(ENGINES).splitlines()[0].count("|") == decode.line(decode_row(), ENGINES).count("|")


def test_the_bytes_that_a_step_reads() -> None:
    weights = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96) + 67 * 64
    plain, packed = decode.Case(TINY, "float32"), decode.Case(TINY, "int4")
    assert plain.weight_bytes("tinycomp") == 4 * weights
    assert packed.weight_bytes("onnxruntime") == weights // 32 * 20
    assert packed.weight_bytes("llama.cpp") == weights // 32 * 18
    assert plain.cache_bytes("tinycomp", 10) == 2 * 2 * 32 * 10 * 4
    assert plain.cache_bytes("llama.cpp", 10) == 2 * 2 * 32 * 10 * 2


@pytest.mark.long
@pytest.mark.parametrize("weights", ["float32", "int4"])
def test_a_measurement_of_a_tiny_decoder(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="the engine that is compared with")
    monkeypatch.setenv("TINYCOMP_CORPUS", str(tmp_path))
    monkeypatch.setitem(decode.CASES, "tiny", decode.Case(TINY, weights, "scattered"))
    engines = ["--engines", "tinycomp", "onnxruntime"]
    assert decode.main(["tiny", "--quick", "--threads", "1", *engines, "--output", str(tmp_path / "f")]) == 0
    found = json.loads((tmp_path / "f" / "decode.json").read_text())
    (row,) = found["rows"]
    assert decode.line(row, found["engines"]) in capsys.readouterr().out
    assert row["bandwidth"] > 0
    for figures in row["engines"].values():
        assert 0 < figures["generate"]["minimum"] <= figures["generate"]["median"]
        assert figures["share"]["median"] > 0


@pytest.mark.parametrize("form", decode.FORMS)
def test_onnxruntime_keeps_a_cache_of_every_form(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="the engine of this test")
    monkeypatch.setenv("TINYCOMP_CORPUS", str(tmp_path))
    sizes = dataclasses.asdict(TINY)
    peer = decode.OnnxRuntime(decode.model(decode.Case(TINY, "float32", form)), sizes, 0)
    prompt, following = peer.logits()
    assert (prompt.shape, following.shape) == ((5, 67), (1, 67))
    peer._clear()
    whole = peer._step(decode.text(0, 6, 67))
    assert abs(whole[0, 5:] - following).max() < 1e-4
    assert len(peer.generate(3)) == 3
    assert len(peer.prefill(4, 2)) == 2


def test_an_interpreter_without_llama_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert not decode.has_llama("/nowhere/python")
    assert not decode.has_llama("/bin/false")
    with pytest.raises(SystemExit):
        decode.main(["--llama-python", "/nowhere/python", "unknown"])
    assert "--llama-python" in capsys.readouterr().err


def test_llama_takes_part_where_it_is_installed(tmp_path: Path) -> None:
    if not decode.has_llama(sys.executable):
        pytest.skip("needs llama-cpp-python and gguf")
    from benchmarks.llama_cpp_engine import LlamaCpp

    peer = LlamaCpp(tmp_path / "tiny.gguf", dataclasses.asdict(dataclasses.replace(TINY, vocabulary=64)), 0)
    assert len(peer.generate(3)) == 3
    assert len(peer.prefill(4, 2)) == 2
