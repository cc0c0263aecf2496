"""Dumps: a file per pass, constants in one store beside them, and reading them back."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tinycomp.data import digits, digits_model
from tinycomp.driver.dump import CONSTANTS, read_dump
from tinycomp.errors import ArtifactError, ParseError
from tinycomp.ir.equality import equal


def test_files_are_numbered_and_replay_to_the_same_results(tmp_path):
    images = digits()[0][:3]
    wanted = tinycomp.compile(digits_model(), dump=tmp_path)(images)
    files = sorted(tmp_path.glob("*.tir"))
    assert [f.name[:3] for f in files] == [f"{i:02}-" for i in range(len(files))]
    for file in files:
        np.testing.assert_allclose(tinycomp.compile(read_dump(file), passes="")(images), wanted, rtol=1e-4, atol=1e-6)
    assert equal(read_dump(files[0]), tinycomp.from_onnx(digits_model()))


def test_large_constants_are_stored_once(tmp_path):
    tinycomp.compile(digits_model(), dump=tmp_path)
    store = (tmp_path / CONSTANTS).stat().st_size
    assert store < 3 * digits_model().stat().st_size
    assert max(f.stat().st_size for f in tmp_path.glob("*.tir")) < 1 << 16


def test_a_store_that_is_missing_or_damaged(tmp_path):
    tinycomp.compile(digits_model(), dump=tmp_path)
    file = tmp_path / "00-input.tir"
    data = bytearray((tmp_path / CONSTANTS).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / CONSTANTS).write_bytes(data)
    with pytest.raises(ArtifactError, match=r"constants\.tca"):
        read_dump(file)
    (tmp_path / CONSTANTS).unlink()
    with pytest.raises(ParseError):
        read_dump(file)


def test_a_folder_used_again_holds_the_last_pipeline_only(tmp_path):
    tinycomp.compile(digits_model(), dump=tmp_path)
    kept = tmp_path / "mine.tir"
    kept.write_text("a graph of my own", encoding="utf-8")
    tinycomp.compile(digits_model(), [], dump=tmp_path, passes="simplify")
    assert sorted(p.name for p in tmp_path.glob("*.tir")) == ["00-input.tir", "01-simplify.tir", "mine.tir"]
    assert equal(read_dump(tmp_path / "00-input.tir"), tinycomp.from_onnx(digits_model()))
