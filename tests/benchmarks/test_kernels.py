"""Single kernels: every case is a program that runs and is right about its sizes, and rows tell rates and shares."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kernel_cases, kernel_cases_int8, kernels
from benchmarks.kernels import Effort
from benchmarks.prototype import LIBRARY, Prototype
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.processor import available_isas, peak_flops, peak_int8

CASES = [*kernel_cases.cases(), *kernel_cases_int8.cases()]


def named(case: kernel_cases.Case) -> str:
    return f"{case.family} {case.shape} {case.kernel} {case.params.get('algorithm', 0)}"


def run(case: kernel_cases.Case, fill: float = np.nan) -> np.ndarray:
    program, feeds = case.program()
    result = np.full(program.outputs[0].shape, fill, case.element)
    NativeProgram(program).run(feeds, [result])
    return result


@pytest.mark.parametrize("case", CASES, ids=named)
def test_every_case_writes_its_whole_result_and_has_work_to_do(case: kernel_cases.Case) -> None:
    if case.element == "float32":
        assert np.isfinite(run(case)).all()
    else:
        np.testing.assert_array_equal(run(case, fill=1), run(case, fill=2))
    program, feeds = case.program()
    work = NativeProgram(program).work(0)
    there = (
        sum(x.nbytes for x in (*feeds, *program.constants))
        + int(np.prod(case.result)) * np.dtype(case.element).itemsize
    )
    if case.params.get("bits") == 4:  # which are kept two in a byte
        there -= sum(x.nbytes for x in program.constants if x.dtype == np.int8) // 2
    assert work.bytes == there
    assert work.operations > 0 or case.kernel == "copy"


def test_case_names_are_distinct() -> None:
    assert len({named(case) for case in CASES}) == len(CASES)


def test_winograd_cases_compute_what_the_direct_ones_do() -> None:
    direct = run(kernel_cases.conv(14, 32, 3))
    for tile in (2, 4):
        np.testing.assert_allclose(run(kernel_cases.conv(14, 32, 3, winograd=tile)), direct, rtol=1e-4, atol=1e-4)


def test_a_transpose_exchanges_the_dimensions_that_it_says() -> None:
    case = kernel_cases.transpose("heads", (5, 3, 4), (1, 0, 2))
    _, (x,) = case.program()
    np.testing.assert_array_equal(run(case), x.transpose(1, 0, 2))


def test_arithmetic_on_8_bit_numbers_has_a_peak_of_its_own() -> None:
    case = kernel_cases_int8.gemm(8, 64, 32)
    (row,) = kernels.measure(case, ["scalar"], None, Effort(rounds=1, block=0.001))
    assert row["share_of_peak"] == pytest.approx(row["gflops"] * 1e9 / peak_int8("scalar"))


def test_rows_hold_rates_for_every_instruction_set() -> None:
    case = kernel_cases.gemm(8, 64, 32)
    isas = available_isas()
    rows = kernels.measure(case, isas, None, Effort(rounds=1, block=0.001))
    assert [row["isa"] for row in rows] == list(isas)
    for row in rows:
        assert row["gflops"] == pytest.approx(2 * 8 * 64 * 32 / row["minimum"] / 1e9)
        assert row["share_of_peak"] == pytest.approx(row["gflops"] * 1e9 / peak_flops(row["isa"]))
        assert row["share_of_copy"] == 0
        assert 0 < row["minimum"] <= row["median"]


def test_movement_of_data_is_judged_by_a_copy() -> None:
    (row,) = kernels.measure(kernel_cases.softmax(64, 64), ["scalar"], None, Effort(rounds=1, block=0.001))
    assert row["share_of_copy"] == pytest.approx(row["gigabytes_per_second"] * 1e9 / row["copy"])
    cells = dict(zip(kernels.NAMES, kernels.cells(row), strict=True))
    assert (cells["GFLOP/s"], cells["of peak"]) == ("", "")
    assert cells["of a copy"].endswith("%")


def test_the_command_writes_figures_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels.main(["--only", "split", "--isa", "scalar", "--quick", "--output", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "kernels.json").read_text(encoding="utf-8"))
    assert [row["family"] for row in found["rows"]] == ["split of heads"]
    assert found["peaks"]["scalar"] == peak_flops("scalar")
    assert "--quick" in found["command"]
    assert (tmp_path / "kernels.md").read_text(encoding="utf-8").strip() in capsys.readouterr().out


def test_a_prototype_that_cannot_be_used_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError, match=LIBRARY):
        Prototype(tmp_path)
    arguments = ["--prototype", str(tmp_path), "--only", "no such kernel", "--isa", "scalar"]
    assert kernels.main(arguments) == 0
    assert "without the prototype" in capsys.readouterr().err


def test_a_prototype_for_another_processor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / LIBRARY).write_bytes(b"")
    monkeypatch.setattr("benchmarks.prototype.cpu_features", lambda: ("avx2",))
    with pytest.raises(RuntimeError, match="compiled for avx512f, which this processor lacks"):
        Prototype(tmp_path)
