"""Constants in mapped files: packed at any address, and their pages given back afterwards."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, run_single, single
from tinycomp.errors import TargetError
from tinycomp.memory.mapped import map_file
from tinycomp.runtime.native.executor import NativeProgram, Pool
from tinycomp.runtime.native.library import kernel_named

DEPTH, COLUMNS = 1024, 512
SIZES = {"m": 1, "n": COLUMNS, "k": DEPTH, "lda": DEPTH, "ldc": COLUMNS, "ldr": 0, "trans_b": 0}
PARAMS = {**SIZES, **OWN_BLOCKS, **NO_ACTIVATION}
OUTPUT = ("float32", (1, COLUMNS))


def in_a_file(array: np.ndarray, path: Path, skip: int) -> np.ndarray:
    path.write_bytes(b"\0" * skip + array.tobytes())
    with path.open("rb") as file:
        return map_file(file)[skip:].view(array.dtype).reshape(array.shape)


def resident(array: np.ndarray) -> int:
    """Bytes of the mapping around an array that are in memory, as ``/proc/self/smaps`` tells."""
    address = array.__array_interface__["data"][0]
    inside = False
    for line in Path("/proc/self/smaps").read_text(encoding="ascii").splitlines():
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(place[1], 16) <= address < int(place[2], 16)
        elif inside and line.startswith("Rss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the array lies in no mapping")


@pytest.mark.parametrize("skip", [0, 1, 2, 4])
def test_weights_are_packed_from_any_address(
    skip: int, tmp_path: Path, isa: str, pool: Pool, rng: np.random.Generator
) -> None:
    x, weights = rng.standard_normal((1, 40), np.float32), rng.standard_normal((40, 24), np.float32)
    bias, params = rng.standard_normal(24, np.float32), {**PARAMS, "n": 24, "k": 40, "lda": 40, "ldc": 24}
    output = ("float32", (1, 24))
    expected = run_single("gemm_f32", [x, Weight(weights), Weight(bias), None], params, output, isa, pool)
    mapped = [in_a_file(array, tmp_path / str(i), skip) for i, array in enumerate((weights, bias))]
    found = run_single("gemm_f32", [x, *map(Weight, mapped), None], params, output, isa, pool)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/smaps tells of pages on Linux only")
def test_packed_pages_are_given_back(tmp_path: Path, rng: np.random.Generator) -> None:
    weights = in_a_file(rng.standard_normal((DEPTH, COLUMNS), np.float32), tmp_path / "w", 0)
    assert weights.sum()
    assert resident(weights) == weights.nbytes
    x = np.ones((1, DEPTH), np.float32)
    program, feeds = single("gemm_f32", [x, Weight(weights), None, None], PARAMS, OUTPUT)
    native, result = NativeProgram(program), np.empty(OUTPUT[1], np.float32)
    native.run(feeds, [result])
    assert resident(weights) == 0
    np.testing.assert_allclose(result, x @ weights, rtol=1e-4, atol=1e-4)


def test_memory_that_no_file_stands_behind_is_left_alone(rng: np.random.Generator) -> None:
    weights = rng.standard_normal((DEPTH, COLUMNS), np.float32)
    before, x = weights.copy(), np.ones((1, DEPTH), np.float32)
    NativeProgram(single("gemm_f32", [x, Weight(weights), None, None], PARAMS, OUTPUT)[0])
    np.testing.assert_array_equal(weights, before)


def test_what_a_run_reads_must_be_aligned(tmp_path: Path) -> None:
    table = in_a_file(np.ones((8, 4), np.float32), tmp_path / "t", 1)
    x = np.ones((2, 8), np.float32)
    matmul = {**dict.fromkeys(kernel_named("matmul_f32").fields, 0), "batch0": 1, "batch1": 1, "m": 2, "n": 4, "k": 8}
    matmul |= {"a_row": 8, "a_column": 1, "b_row": 4, "b_column": 1, "c_row": 4, "alpha": 1.0}
    with pytest.raises(TargetError, match="operand 2: the constant is not aligned"):
        NativeProgram(single("matmul_f32", [x, Weight(table), None, None], matmul, ("float32", (2, 4)))[0])
